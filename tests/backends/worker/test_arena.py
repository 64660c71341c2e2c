"""Blocks of shared memory: taken by one side, read by the other, released by being forgotten."""

import os
import threading

import numpy as np
import pytest
from line_peer import taken_count

from inferd_worker.arena import Arena, ArenaFull, NeverFits, Received

SIZE = 1 << 16


@pytest.fixture
def pair():
    """An arena and the other side's view of it."""
    fd = os.memfd_create("test-inferd-arena")
    os.ftruncate(fd, SIZE)
    yield Arena(fd, SIZE, most=1 << 20), Received(fd, SIZE, 1 << 20, writable=True)
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


def test_blocks_beyond_the_arena_have_the_room_that_their_sender_has(pair):
    arena, received = pair
    most = 1 << 20
    whole = received.block(write(arena, bytes(most)), most)
    os.ftruncate(arena._fd, SIZE + 4 * most)  # a writer may grow its file as it likes
    with pytest.raises(ValueError, match="there is no block of 4096 bytes"):
        received.block(SIZE + 2 * most, 4096)
    del whole
    received.released()
    assert received.block(SIZE + 2 * most, 4096).size == 4096


def test_what_could_not_be_told_is_told_later(pair):
    arena, received = pair
    received.block(write(arena, bytes(64)), 64)
    received.fresh.extend(received.released())
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
    assert taken_count(arena) == 0
    assert write(arena, data) == offset


def test_more_than_the_most_is_refused_and_the_rest_goes_on(pair):
    arena, _ = pair
    with pytest.raises(NeverFits, match="2000000 bytes find no room"):
        arena.take(2_000_000)
    assert arena.take(100)[0] == 0


def test_what_finds_no_room_may_find_it_later(pair):
    arena, _ = pair
    offset, _ = arena.take(800_000)
    with pytest.raises(
        ArenaFull, match=r"900000 bytes find no room .* 802816 are in use"
    ) as caught:
        arena.take(900_000)
    assert type(caught.value) is ArenaFull
    arena.give(offset)
    arena.give(arena.take(900_000)[0])


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


# --- blocks that are lent ---


@pytest.mark.parametrize("first", ["give", "forget"])
def test_a_lent_block_is_taken_again_when_both_sides_have_let_go(pair, first):
    arena, _ = pair
    offset = write(arena, b"tensor")
    lent = [arena.lend(offset), arena.lend(offset)[2:4]]
    ways = {"give": lambda: arena.give(offset), "forget": lent.clear}
    ways.pop(first)()
    assert taken_count(arena) == 1
    assert arena.take(1)[0] != offset
    [last] = ways.values()
    last()
    assert taken_count(arena) == 1
    assert arena.take(1)[0] == offset


def test_each_who_reads_a_lent_block_keeps_it(pair):
    arena, _ = pair
    offset = write(arena, b"tensor")
    lent = [arena.lend(offset) for _ in range(3)]
    arena.give(offset)
    arena.give(offset)
    while lent:
        assert lent[-1].tobytes()[:6] == b"tensor"
        assert arena.take(1)[0] != offset
        lent.pop()
    assert arena.take(1)[0] == offset


def test_a_lent_block_may_be_forgotten_in_another_thread(pair):
    arena, _ = pair
    offset = write(arena, b"tensor")
    lent = [arena.lend(offset)]
    arena.give(offset)
    thread = threading.Thread(target=lent.clear)
    thread.start()
    thread.join()
    assert taken_count(arena) == 0


def test_a_lent_block_may_outlive_its_arena(pair):
    arena, _ = pair
    lent = arena.lend(write(arena, b"tensor"))
    del arena
    assert lent.tobytes()[:6] == b"tensor"


def test_a_lent_block_may_not_be_written(pair):
    arena, _ = pair
    with pytest.raises(ValueError, match="read-only"):
        arena.lend(write(arena, b"tensor"))[0] = 1


def test_what_the_other_side_does_not_have_is_not_lent(pair):
    arena, _ = pair
    given, lent, region = write(arena, b"a"), write(arena, b"b"), write(arena, bytes(2 * SIZE))
    arena.give(given)
    reader = arena.lend(lent)
    arena.give(lent)
    for offset in (given, lent, lent + 1, region, -64, 1 << 70):
        with pytest.raises(ValueError, match="no block to be lent"):
            arena.lend(offset)
    del reader


def test_what_lies_in_a_block_is_found_there(pair):
    arena, received = pair
    offset = write(arena, bytes(64))
    offset = write(arena, bytes(4096))
    whole = received.block(offset, 4096)
    part = np.ndarray((8, 4), np.float32, whole[64:], 128)
    for array, at in (
        (whole[:], 0),
        (whole[64:], 64),
        (part, 192),
        (part[2:], 224),
        (part.T.T, 192),
    ):
        block, found = received.find(array)
        assert (block.offset, found) == (offset, at)


def test_what_lies_elsewhere_is_not_found(pair):
    arena, received = pair
    block = received.block(write(arena, bytes(64)), 64)
    region = received.block(write(arena, bytes(2 * SIZE)), 2 * SIZE)
    beyond = np.lib.stride_tricks.as_strided(block, (4096,), (1,))
    apart = np.frombuffer(memoryview(block), np.uint8)
    for array in (np.zeros(64), np.zeros(64)[8:], block.copy(), region, region[64:], beyond, apart):
        assert received.find(array) is None


def test_a_claimed_block_is_told_by_who_claims_it_alone(pair):
    arena, received = pair
    arrays = [received.block(write(arena, bytes(64)), 64)[8:], "another"]
    block, _ = received.find(arrays[0])
    assert received.claim(block, arrays, [0]) is None
    assert arrays == [None, "another"]
    assert received.released() == []
    received.block(0, 64)  # it may come again


@pytest.mark.parametrize("keep", [np.asarray, memoryview, lambda a: a[:1], lambda a: [a]])
def test_a_block_that_somebody_has_kept_cannot_be_claimed(pair, keep):
    arena, received = pair
    arrays = [received.block(write(arena, b"tensor"), 6)[1:]]
    kept = keep(arrays[0])
    block, _ = received.find(arrays[0])
    array = received.claim(block, arrays, [0])
    assert array.tobytes() == b"tensor"
    del array
    assert arrays == [None]
    assert received.released() == []
    del kept
    assert received.released() == [0]


@pytest.mark.parametrize("size", [100, SIZE + 100], ids=["mapped", "a region of its own"])
def test_the_text_of_a_block_ends_with_the_block(pair, size):
    arena, received = pair
    write(arena, b"before".ljust(64))
    offset = write(arena, b"text" * (size // 4))
    write(arena, b"behind".ljust(64))
    block = received.block(offset, size)
    assert received.text(block, offset, 6) == b"textte"
    assert received.text(block, offset, 1 << 30) == b"text" * (size // 4)


@pytest.mark.parametrize("datatype", ["<M8[s]", "<f8"])
def test_what_may_not_be_written_or_is_no_plain_number_is_found_as_well(pair, datatype):
    arena, received = pair
    block = received.block(write(arena, bytes(128)), 128)
    view = block[64:].view(datatype)
    view.flags.writeable = False
    found, at = received.find(view)
    assert found() is block
    assert at == 64
