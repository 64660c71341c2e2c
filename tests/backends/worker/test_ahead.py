"""Executions that a worker is given while it is busy, and what becomes of them when it ends."""

import pytest
from fields import with_fields
from line_peer import MOST, packed, result
from scene import begun, played, until

from inferd.backends.worker.under_way import AHEAD_BYTES
from inferd.core.request import InferRequest
from inferd.errors import TooLarge, Unavailable
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd_worker import packet

IN_TURN = packed(packet.READY, [[], None, False, True])
ANSWER = [[], None, None, True, 1]


@pytest.fixture
def quick(scene):
    """quick(...) is a scene whose worker executes in turn, and has been quick so far."""

    def make(at_start=IN_TURN, **more):
        one = scene(at_start, ahead=16, **more)
        one.instance.start()
        one.peer.hear()
        outcomes, number = begun(one, "first")
        one.peer.say(result(number, [[number, *ANSWER]]))
        one.instance._read_until(lambda: bool(outcomes))
        return one

    return make


def begun_ahead(one, *ids):
    """Begin an execution for each of `ids`; return where their outcomes will stand."""
    outcomes = []
    for id in ids:
        assert one.instance.is_free
        one.instance.begin([InferRequest("m", id=id)], outcomes.append)
    one.instance._link.flush()
    for _ in ids:
        one.peer.hear()
    return outcomes, one.instance._numbers


def test_all_that_come_in_one_datagram_are_heard(quick):
    one = quick()
    for id in "abc":
        one.instance.begin([InferRequest("m", id=id)], lambda _: None)
    one.instance._link.flush()
    heard = [one.peer.hear() for _ in "abc"]
    assert [document[0][0][0] for _, document, _ in heard] == ["a", "b", "c"]


def test_who_executes_side_by_side_is_given_one_at_a_time(quick):
    one = quick(packed(packet.READY, [[], None, False, False]))
    one.instance.begin([InferRequest("m")], lambda _: None)
    assert not one.instance.is_free


def large(size):
    """Return a request of so many bytes."""
    return InferRequest("m", inputs=[Tensor("X", DataType.UINT8, (size,), bytes(size))])


def test_nothing_is_sent_while_the_worker_has_many_bytes(quick):
    one = quick()
    outcomes = []
    for _ in range(8):
        assert one.instance.is_free
        one.instance.begin([large(AHEAD_BYTES // 8)], outcomes.append)
    assert not one.instance.is_free
    number = one.instance._numbers - 7
    one.peer.say(result(number, [[number, *ANSWER]]))
    one.instance._read_until(lambda: bool(outcomes))
    assert one.instance.is_free


def test_what_finds_no_memory_waits_for_that_of_those_before(quick):
    one = quick()
    outcomes = []
    one.instance.begin([large(AHEAD_BYTES // 4)], outcomes.append)
    number = one.instance._numbers
    one.instance.begin([large(MOST + 1)], outcomes.append)
    [untaken] = outcomes
    assert untaken.is_untaken
    assert not one.instance.is_free
    one.peer.say(result(number, [[number, *ANSWER]]))
    one.instance._read_until(lambda: len(outcomes) == 2)
    assert one.instance.is_free
    one.instance.begin([large(MOST + 1)], outcomes.append)
    assert isinstance(outcomes[2], TooLarge)
    assert "find no room in the memory" in str(outcomes[2])
    assert not outcomes[2].is_untaken
    assert one.instance.is_free


def test_requests_that_find_no_room_together_may_be_asked_again(quick):
    one = quick(growth_setting="the-limit")
    outcomes = []
    one.instance.begin([large(MOST // 2), large(MOST // 2 + 1)], outcomes.append)
    [failed] = outcomes
    assert type(failed) is Unavailable
    assert "model 'm': the inputs of 2 requests are too large: " in failed.message
    assert failed.message.endswith(
        "; --backend-config=BACKEND,the-limit=BYTES lets it grow further"
    )


def test_only_what_a_process_was_executing_is_lost_with_it(quick):
    one = quick(answers_each=True)
    outcomes, last = begun_ahead(one, "answered", "executing", "behind", "behind, too")

    async def play():
        one.peer.say(result(last - 3, [[last - 3, *ANSWER]]))  # nobody has read that yet
        one.process.end("was killed")
        await until(lambda: len(outcomes) == 4)
        [answered], *others = outcomes
        assert answered.id == "answered"
        assert [error.is_lost for error in others] == [True] * 3
        assert [error.is_untaken for error in others] == [False, True, True]
        await until(lambda: one.instance.is_free)  # there is another process

    played(play, one)


def test_what_a_process_may_have_executed_is_lost_with_it(quick):
    one = quick()  # it answers several at once
    outcomes, _ = begun_ahead(one, "a", "b")

    async def play():
        one.process.end("was killed")
        await until(lambda: len(outcomes) == 2)
        assert [error.is_untaken for error in outcomes] == [False, False]
        await until(lambda: one.instance.is_free)

    played(play, one)


def test_answers_that_have_come_are_read_in_one_turn_of_the_event_loop(quick):
    one = quick()
    outcomes, last = begun_ahead(one, "a", "b", "c", "d")
    seen = []

    async def play():
        one.instance.on_change = lambda: seen.append(len(outcomes))
        for number in range(last - 3, last + 1):
            one.peer.say(result(number, [[number, *ANSWER]]))
        one.instance._link._read_several()
        assert seen == [1, 2, 3]  # whether the last one is there is for the event loop to see

    played(play, one)


def test_what_was_sent_ahead_has_waited_until_the_one_before_was_executed(quick):
    one = quick()
    first, second = (
        with_fields(InferRequest("m"), started_ns=1),
        with_fields(InferRequest("m"), started_ns=2),
    )
    for request in (first, second):
        one.instance.begin([request], lambda _: None)
    number = one.instance._numbers

    async def play():
        one.peer.say(result(number - 1, [[number - 1, *ANSWER]], began_ns=10, ended_ns=20))
        one.peer.say(result(number, [[number, *ANSWER]], began_ns=21, ended_ns=30))
        await until(lambda: second.computed_ns)
        assert (second.started_ns, second.computing_ns) == (20, 21)

    played(play, one)
