"""Strips: rows lie side by side, blocks are used again once nothing views them."""

import weakref

import numpy as np
import pytest

from inferd.memory import batch_memory as strips_module
from inferd.memory.batch_memory import (
    FORGETS_SWEEPS,
    IDLE_SWEEPS,
    MOST_MISSES,
    MOST_STRIPS,
    Strips,
    row_count_of,
)

SIZE = 1000
TARGET = b"/v2/models/m/infer"


@pytest.fixture
def strips(monkeypatch):
    """Strips whose blocks have four rows."""
    monkeypatch.setattr(strips_module, "MOST_ROWS", 7)
    return Strips()


def sweep(strips, seconds):
    for _ in range(seconds):
        strips.sweep(strips._swept_s + 1)


def strip_of(strips):
    """Return a strip whose requests were joined."""
    strip = strips.note(TARGET, SIZE).strip
    strip.note_joined(as_view=True)
    return strip


def test_before_a_batch_was_joined_requests_have_memory_of_their_own(strips):
    assert strips.get(TARGET) is None
    row = strips.note(TARGET, SIZE)
    assert row.block is None and strips.get(TARGET) is row.strip
    assert row.strip.place().block is None
    assert strips.block_bytes == 0


def test_rows_lie_one_behind_the_other(strips):
    strip = strip_of(strips)
    rows = [strip.place() for _ in range(5)]
    for number, row in enumerate(rows):
        row.view()[:] = bytes([number]) * SIZE
    assert rows[0].block is rows[1].block is rows[2].block is rows[3].block is not rows[4].block
    assert bytes(rows[0].block) == b"".join(bytes([number]) * SIZE for number in range(4))
    assert [row.index for row in rows] == [0, 1, 2, 3, 0]


def test_a_batch_that_was_apart_begins_a_block_once_the_next_has_begun(strips):
    strip = strip_of(strips)
    first = strip.place()
    strip.note_joined(as_view=False)
    assert strip.place().block is first.block
    strip.note_started()
    rows = [strip.place() for _ in range(2)]
    assert first.block is not rows[0].block is rows[1].block
    strip.note_joined(as_view=True)
    strip.note_started()
    assert strip.place().index == 2


@pytest.mark.parametrize(
    ("row_bytes", "count"),
    [(1, 64), (2**18, 64), (2**18 + 1, 32), (602_112, 16), (2**23, 2), (2**23 + 1, 1), (2**25, 0)],
)
def test_a_block_has_a_power_of_two_of_rows_and_a_limit(row_bytes, count):
    assert row_count_of(row_bytes) == count
    assert (Strips().note(TARGET, row_bytes) is None) is (count < 2)


def test_a_block_is_used_again_only_when_nothing_views_it(strips):
    strip = strip_of(strips)
    rows = [strip.place() for _ in range(4)]
    views = [row.view() for row in rows]
    address = rows[0].block.ctypes.data
    array = np.frombuffer(views[1], np.uint8)
    del rows, views
    second = [strip.place() for _ in range(4)]
    assert second[0].block.ctypes.data != address  # `array` is still there
    del array
    third = strip.place()
    assert third.block.ctypes.data == address
    assert strips.block_bytes == 8 * SIZE


def test_beyond_the_limit_requests_have_memory_of_their_own(strips, monkeypatch):
    monkeypatch.setattr(strips_module, "MOST_BYTES", 9 * SIZE)
    strip = strip_of(strips)
    rows = [strip.place() for _ in range(9)]
    assert [row.block is None for row in rows] == [False] * 8 + [True]
    del rows
    assert strip.place().block is not None


def test_where_batches_never_lie_in_one_piece_no_block_is_begun_for_a_while(strips):
    strip = strip_of(strips)
    for _ in range(MOST_MISSES - 1):
        strip.note_joined(as_view=False)
    assert strip.place().block is not None
    strip.note_joined(as_view=False)
    strip.note_started()
    assert strip.place().block is None
    for _ in range(FORGETS_SWEEPS):
        strip.place()
        sweep(strips, 1)
    assert strip.place().block is not None


def test_what_no_request_uses_is_dropped_with_its_memory(strips):
    strip = strip_of(strips)
    held = strip.place()
    for _ in range(IDLE_SWEEPS):
        sweep(strips, 1)
        strips.sweep(strips._swept_s + 0.5)  # another server's
        assert strips.get(TARGET) is strip
    sweep(strips, 1)
    assert strips.get(TARGET) is None
    held.view()[:] = bytes(SIZE)  # a request that is under way keeps its memory
    assert strips.block_bytes == 4 * SIZE  # and it counts
    del held
    sweep(strips, 1)
    assert strips.block_bytes == 0 and not strips.left


def test_a_few_requests_of_another_size_change_nothing(strips):
    strip = strip_of(strips)
    row = strip.place()
    assert strips.note(TARGET, 2 * SIZE) is None
    assert strips.get(TARGET) is strip and strip.place().block is row.block


def test_requests_of_another_size_get_the_strip_once_the_first_no_longer_come(strips):
    strip = strip_of(strips)
    strip.place()
    sweep(strips, 3)
    other = strips.note(TARGET, 2 * SIZE).strip
    assert strips.get(TARGET) is other is not strip
    assert strips.block_bytes == 0
    assert strips.note(TARGET, SIZE).strip is not other  # none were joined


def test_blocks_that_one_row_holds_count_as_long_as_it_does(strips, monkeypatch):
    monkeypatch.setattr(strips_module, "MOST_BYTES", 40 * SIZE)
    held, blocks = [], []
    for number in range(30):
        strip = strips.note(TARGET, SIZE + number % 2).strip
        strip.note_joined(as_view=True)
        row = strip.place()
        if row.block is not None:
            held.append(row)
            blocks.append(weakref.ref(row.block))
        sweep(strips, 3)
    del row
    assert sum(len(block()) for block in blocks) == strips.block_bytes <= 40 * SIZE
    held.clear()
    assert strips.note(TARGET, SIZE + 2).strip is not None
    sweep(strips, 1)
    assert strips.block_bytes == 0 and not any(block() is not None for block in blocks)


def test_there_are_only_so_many_strips_and_those_of_no_use_make_room(strips):
    for number in range(MOST_STRIPS):
        strips.note(b"/%d" % number, SIZE).strip.note_joined(as_view=True)
    assert strips.note(TARGET, SIZE) is None
    sweep(strips, 2)
    assert strips.note(TARGET, SIZE) is not None
    assert len(strips._strips) == MOST_STRIPS
