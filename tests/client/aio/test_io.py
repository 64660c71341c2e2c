"""Slots of asyncio: waiting in order, giving up, giving back; connections, and what they keep."""

import asyncio
import contextlib
import errno
import importlib
import socket
import time

import pytest

from inferd.client import ConnectFailed, DeadlineExceeded
from inferd.client.aio.io import AsyncByteStream, AsyncCallSlots, open_stream
from inferd.client.settings import read_settings


async def later(slots, names, name, deadline):
    await slots.take(deadline)
    names.append(name)


def test_those_that_wait_are_served_in_their_order():
    asyncio.run(_test_those_that_wait_are_served_in_their_order())


async def _test_those_that_wait_are_served_in_their_order():
    slots, names = AsyncCallSlots(1), []
    far = time.monotonic() + 60
    await slots.take(far)
    tasks = [asyncio.create_task(later(slots, names, name, far)) for name in "abc"]
    await asyncio.sleep(0)
    tasks[1].cancel()
    for expected in ("a", "ac"):
        slots.give_back()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert "".join(names) == expected
    await asyncio.gather(*tasks, return_exceptions=True)


def test_a_slot_given_to_who_is_cancelled_goes_to_the_next():
    asyncio.run(_test_a_slot_given_to_who_is_cancelled_goes_to_the_next())


async def _test_a_slot_given_to_who_is_cancelled_goes_to_the_next():
    slots, names = AsyncCallSlots(1), []
    far = time.monotonic() + 60
    await slots.take(far)
    first, second = (asyncio.create_task(later(slots, names, name, far)) for name in "ab")
    await asyncio.sleep(0)
    slots.give_back()
    first.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert names == ["b"]


def test_the_deadline_ends_the_wait():
    asyncio.run(_test_the_deadline_ends_the_wait())


async def _test_the_deadline_ends_the_wait():
    slots = AsyncCallSlots(1)
    await slots.take(0)
    with pytest.raises(DeadlineExceeded):
        await slots.take(time.monotonic() - 1)
    slots.give_back()
    await slots.take(0)


@pytest.mark.parametrize("module", ["asyncio", "uvloop"])
def test_an_array_is_its_owner_s_again_when_it_was_sent(module):
    if module == "uvloop":
        pytest.importorskip("uvloop")
    loop = importlib.import_module(module).new_event_loop()
    with contextlib.closing(loop):
        loop.run_until_complete(_test_an_array_is_its_owner_s_again_when_it_was_sent())


async def _test_an_array_is_its_owner_s_again_when_it_was_sent():
    loop = asyncio.get_running_loop()
    left, right = socket.socketpair()
    # Less than a transport keeps before it wants to be waited for, more than the system takes.
    left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    array = bytearray(b"x" * 60_000)
    transport, stream = await loop.create_unix_connection(AsyncByteStream, sock=left)
    stream.deadline = time.monotonic() + 60
    sending = asyncio.create_task(stream.send([b"head", memoryview(array)]))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not sending.done()
    reading = loop.run_in_executor(None, _read_all, right)
    await sending
    array[:] = bytes(len(array))
    transport.close()
    assert await reading == b"head" + b"x" * len(array)


def _read_all(sock):
    with sock, sock.makefile("rb") as file:
        return file.read()


class PlainTransport(asyncio.Transport):
    """A transport without TLS, that nothing is sent over."""

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def resume_reading(self):
        pass


def test_what_arrives_as_a_wait_is_given_up_is_kept():
    asyncio.run(_test_what_arrives_as_a_wait_is_given_up_is_kept())


async def _test_what_arrives_as_a_wait_is_given_up_is_kept():
    stream = AsyncByteStream()
    stream.connection_made(PlainTransport())
    stream.deadline = time.monotonic() + 60
    waiting = asyncio.create_task(stream.recv_into(memoryview(bytearray(100))))
    await asyncio.sleep(0)
    for data in (b"abc", b"de"):
        stream.get_buffer(-1)[: len(data)] = data
        stream.buffer_updated(len(data))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not stream.is_quiet()
    view = memoryview(bytearray(100))
    assert bytes(view[: await stream.recv_into(view)]) == b"abcde"
    assert stream.is_quiet()


@pytest.mark.parametrize(
    ("raised", "connect_timeout_s", "expected"),
    [
        (TimeoutError(), 60, DeadlineExceeded),
        (TimeoutError(), 10, ConnectFailed),
        (TimeoutError(errno.ETIMEDOUT, "Connection timed out"), 60, ConnectFailed),
    ],
)
def test_the_nearer_limit_ends_a_connection_however_early_its_timer(
    raised, connect_timeout_s, expected
):
    async def refuse(*_arguments, **_options):
        raise raised

    async def ask():
        asyncio.get_running_loop().create_connection = refuse
        settings = read_settings("http://127.0.0.1", {"connect_timeout_s": connect_timeout_s})
        await open_stream(settings, time.monotonic() + 30)

    with (
        contextlib.closing(asyncio.SelectorEventLoop()) as loop,
        pytest.raises(expected),
    ):
        loop.run_until_complete(ask())
