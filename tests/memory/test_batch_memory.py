"""BatchMemory: slots lie side by side, blocks are used again once nothing views them."""

import weakref

import numpy as np
import pytest

from inferd.memory import batch_memory as module
from inferd.memory.batch_memory import (
    FORGETS_SWEEPS,
    IDLE_SWEEPS,
    MOST_MISSES,
    MOST_POOLS,
    BatchMemory,
    slot_count_of,
)

SIZE = 1000
TARGET = b"/v2/models/m/infer"


@pytest.fixture
def batch_memory(monkeypatch):
    """BatchMemory whose blocks have four slots."""
    monkeypatch.setattr(module, "MOST_SLOTS", 7)
    return BatchMemory()


def sweep(batch_memory, seconds):
    for _ in range(seconds):
        batch_memory.sweep(batch_memory._swept_s + 1)


def pool_of(batch_memory):
    """Return a pool whose requests were joined."""
    pool = batch_memory.note(TARGET, SIZE).pool
    pool.note_joined(as_view=True)
    return pool


def test_before_a_batch_was_joined_requests_have_memory_of_their_own(batch_memory):
    assert batch_memory.get(TARGET) is None
    slot = batch_memory.note(TARGET, SIZE)
    assert slot.block is None and batch_memory.get(TARGET) is slot.pool
    assert slot.pool.place().block is None
    assert batch_memory.block_bytes == 0


def test_rows_lie_one_behind_the_other(batch_memory):
    pool = pool_of(batch_memory)
    slots = [pool.place() for _ in range(5)]
    for number, slot in enumerate(slots):
        slot.view()[:] = bytes([number]) * SIZE
    assert (
        slots[0].block is slots[1].block is slots[2].block is slots[3].block is not slots[4].block
    )
    assert bytes(slots[0].block) == b"".join(bytes([number]) * SIZE for number in range(4))
    assert [slot.index for slot in slots] == [0, 1, 2, 3, 0]


def test_a_batch_that_was_apart_begins_a_block_once_the_next_has_begun(batch_memory):
    pool = pool_of(batch_memory)
    first = pool.place()
    pool.note_joined(as_view=False)
    assert pool.place().block is first.block
    pool.note_started()
    slots = [pool.place() for _ in range(2)]
    assert first.block is not slots[0].block is slots[1].block
    pool.note_joined(as_view=True)
    pool.note_started()
    assert pool.place().index == 2


@pytest.mark.parametrize(
    ("slot_bytes", "count"),
    [(1, 64), (2**18, 64), (2**18 + 1, 32), (602_112, 16), (2**23, 2), (2**23 + 1, 1), (2**25, 0)],
)
def test_a_block_has_a_power_of_two_of_rows_and_a_limit(slot_bytes, count):
    assert slot_count_of(slot_bytes) == count
    assert (BatchMemory().note(TARGET, slot_bytes) is None) is (count < 2)


def test_a_block_is_used_again_only_when_nothing_views_it(batch_memory):
    pool = pool_of(batch_memory)
    slots = [pool.place() for _ in range(4)]
    views = [slot.view() for slot in slots]
    address = slots[0].block.ctypes.data
    array = np.frombuffer(views[1], np.uint8)
    del slots, views
    second = [pool.place() for _ in range(4)]
    assert second[0].block.ctypes.data != address  # `array` is still there
    del array
    third = pool.place()
    assert third.block.ctypes.data == address
    assert batch_memory.block_bytes == 8 * SIZE


def test_beyond_the_limit_requests_have_memory_of_their_own(batch_memory, monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 9 * SIZE)
    pool = pool_of(batch_memory)
    slots = [pool.place() for _ in range(9)]
    assert [slot.block is None for slot in slots] == [False] * 8 + [True]
    del slots
    assert pool.place().block is not None


def test_where_batches_never_lie_in_one_piece_no_block_is_begun_for_a_while(batch_memory):
    pool = pool_of(batch_memory)
    for _ in range(MOST_MISSES - 1):
        pool.note_joined(as_view=False)
    assert pool.place().block is not None
    pool.note_joined(as_view=False)
    pool.note_started()
    assert pool.place().block is None
    for _ in range(FORGETS_SWEEPS):
        pool.place()
        sweep(batch_memory, 1)
    assert pool.place().block is not None


def test_what_no_request_uses_is_dropped_with_its_memory(batch_memory):
    pool = pool_of(batch_memory)
    held = pool.place()
    for _ in range(IDLE_SWEEPS):
        sweep(batch_memory, 1)
        batch_memory.sweep(batch_memory._swept_s + 0.5)  # another server's
        assert batch_memory.get(TARGET) is pool
    sweep(batch_memory, 1)
    assert batch_memory.get(TARGET) is None
    held.view()[:] = bytes(SIZE)  # a request that is under way keeps its memory
    assert batch_memory.block_bytes == 4 * SIZE  # and it counts
    del held
    sweep(batch_memory, 1)
    assert batch_memory.block_bytes == 0 and not batch_memory.left


def test_a_few_requests_of_another_size_change_nothing(batch_memory):
    pool = pool_of(batch_memory)
    slot = pool.place()
    assert batch_memory.note(TARGET, 2 * SIZE) is None
    assert batch_memory.get(TARGET) is pool and pool.place().block is slot.block


def test_requests_of_another_size_get_the_strip_once_the_first_no_longer_come(batch_memory):
    pool = pool_of(batch_memory)
    pool.place()
    sweep(batch_memory, 3)
    other = batch_memory.note(TARGET, 2 * SIZE).pool
    assert batch_memory.get(TARGET) is other is not pool
    assert batch_memory.block_bytes == 0
    assert batch_memory.note(TARGET, SIZE).pool is not other  # none were joined


def test_blocks_that_one_row_holds_count_as_long_as_it_does(batch_memory, monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 40 * SIZE)
    held, blocks = [], []
    for number in range(30):
        pool = batch_memory.note(TARGET, SIZE + number % 2).pool
        pool.note_joined(as_view=True)
        slot = pool.place()
        if slot.block is not None:
            held.append(slot)
            blocks.append(weakref.ref(slot.block))
        sweep(batch_memory, 3)
    del slot
    assert sum(len(block()) for block in blocks) == batch_memory.block_bytes <= 40 * SIZE
    held.clear()
    assert batch_memory.note(TARGET, SIZE + 2).pool is not None
    sweep(batch_memory, 1)
    assert batch_memory.block_bytes == 0 and not any(block() is not None for block in blocks)


def test_there_are_only_so_many_strips_and_those_of_no_use_make_room(batch_memory):
    for number in range(MOST_POOLS):
        batch_memory.note(b"/%d" % number, SIZE).pool.note_joined(as_view=True)
    assert batch_memory.note(TARGET, SIZE) is None
    sweep(batch_memory, 2)
    assert batch_memory.note(TARGET, SIZE) is not None
    assert len(batch_memory._pools) == MOST_POOLS
