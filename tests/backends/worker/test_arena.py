"""Blocks of shared memory: taken by one side, read by the other, released by being forgotten."""

import os

import numpy as np
import pytest

from inferd.backends.worker.bootstrap.inferd_worker.arena import Arena, ArenaFull, Received

SIZE = 1 << 16


@pytest.fixture
def pair():
    """An arena and the other side's view of it."""
    fd = os.memfd_create("test-inferd-arena")
    os.ftruncate(fd, SIZE)
    yield Arena(fd, SIZE, most=1 << 20), Received(fd, SIZE, writable=True)
    os.close(fd)


def write(arena, data):
    offset, block = arena.take(len(data))
    block[:] = data
    return offset


def test_the_other_side_reads_what_was_written(pair):
    arena, received = pair
    offset = write(arena, b"tensor")
    assert received.block(offset, 6).tobytes() == b"tensor"


def test_a_block_is_released_when_the_last_view_of_it_is_gone(pair):
    arena, received = pair
    array = received.block(write(arena, bytes(64)), 64)
    view = np.ndarray((8,), np.float64, array[:64])
    flat = memoryview(view)
    del array
    assert received.released() == []
    del view
    assert received.released() == []
    del flat
    assert received.released() == [0]


def test_what_could_not_be_told_is_told_later(pair):
    arena, received = pair
    received.block(write(arena, bytes(64)), 64)
    received.put_back(received.released())
    assert not received.is_much
    assert received.released() == [0]


def test_released_blocks_are_taken_again_and_holes_grow_together(pair):
    arena, _ = pair
    offsets = [arena.take(SIZE // 4)[0] for _ in range(4)]
    assert sorted(offsets) == [0, SIZE // 4, SIZE // 2, 3 * SIZE // 4]
    for offset in (offsets[1], offsets[3], offsets[2], offsets[0]):
        arena.give(offset)
    assert arena.take(SIZE)[0] == 0


def test_one_block_that_is_kept_holds_up_nobody(pair):
    arena, _ = pair
    arena.take(100)
    others = {arena.take(SIZE // 2)[0]}
    for _ in range(10):
        arena.give(others.pop())
        others.add(arena.take(SIZE // 2)[0])
    assert max(others) < SIZE


def test_what_finds_no_hole_gets_memory_of_its_own_that_is_given_back(pair):
    arena, received = pair
    data = os.urandom(5 * SIZE)
    offset = write(arena, data)
    assert offset >= SIZE
    block = received.block(offset, len(data))
    assert block.tobytes() == data
    del block
    [released] = received.released()
    arena.give(released)
    assert arena.taken_count == 0
    assert write(arena, data) == offset


def test_more_than_the_most_is_refused_and_the_rest_goes_on(pair):
    arena, _ = pair
    with pytest.raises(ArenaFull, match="2000000 bytes find no room"):
        arena.take(2_000_000)
    assert arena.take(100)[0] == 0


def test_what_was_never_taken_is_given_back_without_harm(pair):
    arena, _ = pair
    arena.give(64)
    arena.give(1 << 40)
    assert arena.take(SIZE)[0] == 0


@pytest.mark.parametrize(
    ("offset", "size"), [(-1, 5), (0, 0), (1 << 40, 5), (SIZE, 5), (SIZE - 1, 9)]
)
def test_a_place_that_is_no_block_is_refused(pair, offset, size):
    _, received = pair
    with pytest.raises(ValueError, match="there is no block"):
        received.block(offset, size)


def test_a_block_that_is_in_use_cannot_come_again(pair):
    arena, received = pair
    offset = write(arena, b"tensor")
    kept = received.block(offset, 6)
    with pytest.raises(ValueError, match="there is no block"):
        received.block(offset, 6)
    assert len(kept) == 6
