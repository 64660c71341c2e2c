"""How many lines a worker may log in a second."""

from inferd.backends.worker.lines import Rate


class Clock:
    now_s = 10.0

    def __call__(self):
        return self.now_s


def test_lines_beyond_the_rate_are_counted_until_their_second_is_over():
    clock = Clock()
    rate = Rate(3, clock)
    allowed = []
    for _ in range(5):
        assert rate.missed() == 0
        allowed.append(rate.allows())
    assert allowed == [True, True, True, False, False]
    clock.now_s = 11.5
    assert rate.missed() == 2
    assert rate.missed() == 0
    assert rate.allows()


def test_the_end_tells_what_was_missed_in_the_last_second():
    rate = Rate(1, Clock())
    rate.missed()
    assert [rate.allows(), rate.allows()] == [True, False]
    assert rate.missed(at_end=True) == 1
    assert rate.missed(at_end=True) == 0
