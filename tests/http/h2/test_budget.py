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


def reset(budget, opened, count, start=0):
    """Reset the first `count` of `opened` streams that were opened after stream `start`."""
    last = start + 2 * opened
    for number in range(count):
        budget.note_reset(start + 2 * number + 1, last)


def test_resets_are_few_unless_most_streams_are_not_reset():
    reset(FloodBudget(), RESETS, RESETS)
    with pytest.raises(ConnectionFault, match="only to be reset"):
        reset(FloodBudget(), RESETS + 1, RESETS + 1)
    reset(FloodBudget(), 3 * RESETS, 2 * RESETS)
    with pytest.raises(ConnectionFault):
        reset(FloodBudget(), 3 * RESETS, 2 * RESETS + 1)


def test_a_tick_refills_the_budgets_but_old_streams_allow_nothing_more():
    budget = FloodBudget()
    spend(budget.note_empty, EMPTY_FRAMES)
    reset(budget, RESETS, RESETS)
    budget.tick(2 * RESETS)
    spend(budget.note_empty, EMPTY_FRAMES, last_stream_id=2 * RESETS)
    assert_floods(budget.note_empty, last_stream_id=2 * RESETS)
    reset(budget, RESETS, RESETS, start=2 * RESETS)
    with pytest.raises(ConnectionFault):
        reset(budget, RESETS + 1, 1, start=2 * RESETS)


def test_streams_from_before_the_last_tick_may_all_be_reset_at_once():
    budget = FloodBudget()
    budget.tick(20 * RESETS)
    reset(budget, 10 * RESETS, 10 * RESETS)
