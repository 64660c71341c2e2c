from inferd.ray.attempts import FORGIVEN_S, LONGEST_S, MOST_FAILURES, StartAttempts


def test_each_failure_doubles_the_wait():
    attempts = StartAttempts()
    waits = []
    for _ in range(10):
        attempts.failed("no", 100.0, served_s=0.0)
        waits.append(attempts.due_s - 100.0)
    assert waits[:4] == [1.0, 2.0, 4.0, 8.0]
    assert waits[-1] == LONGEST_S


def test_what_never_served_is_given_up_and_what_did_is_not():
    never, did = StartAttempts(), StartAttempts()
    did.served()
    for count in range(MOST_FAILURES):
        assert not never.is_given_up, count
        for each in (never, did):
            each.failed("no", 0.0, served_s=0.0)
    assert never.is_given_up
    assert not did.is_given_up


def test_what_had_served_for_long_is_replaced_at_once():
    attempts = StartAttempts()
    attempts.failed("no", 0.0, served_s=0.0)
    attempts.failed("killed", 100.0, served_s=FORGIVEN_S)
    assert attempts.due_s == 100.0
    assert attempts.reason == "killed"
    attempts.settled()
    assert attempts.reason == ""
