import pytest

from inferd.http.h2.budget import EMPTY_FRAMES, EMPTY_FRAMES_PER_STREAM, RESETS, FloodBudget
from inferd.http.h2.frames import ConnectionFault, ErrorCode


def spend(note, count, last_stream_id=0):
    for _ in range(count):
        note(last_stream_id)


def assert_floods(note, last_stream_id=0):
    with pytest.raises(ConnectionFault) as raised:
        note(last_stream_id)
    assert raised.value.code is ErrorCode.ENHANCE_YOUR_CALM


def test_useless_frames_are_few_between_two_ticks():
    budget = FloodBudget()
    spend(budget.note_empty, EMPTY_FRAMES)
    assert_floods(budget.note_empty)


def test_each_new_stream_allows_some_more_useless_frames():
    budget = FloodBudget()
    spend(budget.note_empty, EMPTY_FRAMES + 2 * EMPTY_FRAMES_PER_STREAM, last_stream_id=4)
    assert_floods(budget.note_empty, last_stream_id=4)


def test_resets_are_few_unless_most_streams_are_not_reset():
    budget = FloodBudget()
    spend(budget.note_reset, RESETS // 2)
    assert_floods(budget.note_reset)
    budget = FloodBudget()
    spend(budget.note_reset, RESETS, last_stream_id=2 * RESETS)


@pytest.mark.parametrize("name", ["note_empty", "note_reset"])
def test_a_tick_refills_the_budgets_but_old_streams_allow_nothing_more(name):
    budget = FloodBudget()
    count = {"note_empty": EMPTY_FRAMES, "note_reset": RESETS // 2}[name]
    spend(getattr(budget, name), count)
    budget.tick(100)
    spend(getattr(budget, name), count, last_stream_id=100)
    assert_floods(getattr(budget, name), last_stream_id=100)
