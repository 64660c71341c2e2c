import asyncio
import itertools

import pytest

from inferd.http.outflow import IN_A_ROW, IN_A_ROW_BYTES, Outflow


class Counting:
    """Pieces 0, 1, 2, ... that never wait; ends at `count`, or raises `error` there."""

    filler = b"-"

    def __init__(self, count, error=None):
        self.count = count
        self.error = error
        self.made = 0
        self.is_closed = False

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self.made == self.count:
            raise self.error or StopAsyncIteration
        self.made += 1
        return b"%d" % self.made

    async def aclose(self):
        self.is_closed = True


async def test_all_pieces_are_sent_in_order_and_closed():
    sent = []
    pieces = Counting(3)
    await Outflow(pieces, sent.append).run()
    assert sent == [b"1", b"2", b"3"]
    assert pieces.is_closed


async def test_none_is_taken_while_the_client_does_not_read():
    pieces = Counting(10)
    sent = []

    def write(piece):
        sent.append(piece)
        if len(sent) == 4:
            outflow.hold()

    outflow = Outflow(pieces, write)
    running = asyncio.ensure_future(outflow.run())
    for _ in range(10):
        await asyncio.sleep(0)
    assert (len(sent), pieces.made) == (4, 4)
    outflow.release()
    await running
    assert len(sent) == 10


async def test_one_that_is_held_from_the_start_takes_nothing():
    pieces = Counting(1)
    outflow = Outflow(pieces, bytes)
    outflow.hold()
    running = asyncio.ensure_future(outflow.run())
    await asyncio.sleep(0)
    assert pieces.made == 0
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert pieces.is_closed


async def test_others_get_their_turn_between_pieces_that_never_wait():
    pieces = Counting(10 * IN_A_ROW)
    running = asyncio.ensure_future(Outflow(pieces, bytes).run())
    made = []
    while not running.done():
        await asyncio.sleep(0)
        made.append(pieces.made)
    assert all(after - before <= IN_A_ROW for before, after in itertools.pairwise(made))


async def test_large_pieces_are_sent_one_at_a_time():
    class Large(Counting):
        async def __anext__(self):
            await super().__anext__()
            return bytes(IN_A_ROW_BYTES + 1)

    pieces = Large(10)
    running = asyncio.ensure_future(Outflow(pieces, bytes).run())
    await asyncio.sleep(0)
    assert pieces.made == 1
    await running


async def test_pieces_that_fail_are_closed():
    pieces = Counting(1, ArithmeticError())
    with pytest.raises(ArithmeticError):
        await Outflow(pieces, bytes).run()
    assert pieces.is_closed


async def test_a_filler_is_sent_only_to_who_reads():
    sent = []
    outflow = Outflow(Counting(0), sent.append)
    outflow.fill()
    outflow.hold()
    outflow.fill()
    outflow.release()
    outflow.fill()
    assert sent == [b"-", b"-"]
