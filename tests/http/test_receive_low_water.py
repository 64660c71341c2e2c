import asyncio
import select
import socket

import pytest
import uvloop

from inferd.http.receive_low_water import LEAST_BYTES, PATIENCE_S, WAKE_BYTES, ReceiveLowWater


class Transport(asyncio.BaseTransport):
    """What tells of a real socket."""

    def __init__(self, sock):
        super().__init__({"socket": sock})


class Alarms:
    """The clock of an event loop: what is due later waits here till it is rung for."""

    def __init__(self):
        self.due = []

    def call_later(self, delay_s, callback):
        assert delay_s == PATIENCE_S
        self.due.append(callback)

    def ring(self):
        due, self.due = self.due, []
        for callback in due:
            callback()


@pytest.fixture
def ends():
    """Both ends of a TCP connection, the server's first."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        accepted, _ = listener.accept()
        with accepted:
            yield accepted, client


@pytest.fixture
def sock(ends):
    return ends[0]


@pytest.fixture
def alarms():
    return Alarms()


@pytest.fixture
def receive_low_water(sock, alarms):
    return ReceiveLowWater(Transport(sock), alarms)


def mark(sock):
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


def test_the_mark_is_what_is_missing_up_to_a_limit(receive_low_water, sock):
    receive_low_water.note_read(1, LEAST_BYTES - 1)
    assert mark(sock) == 1
    for missing in (3 * WAKE_BYTES, WAKE_BYTES, WAKE_BYTES - 1, LEAST_BYTES):
        receive_low_water.note_read(1, missing)
        assert mark(sock) == min(missing, WAKE_BYTES)
    receive_low_water.note_read(1, LEAST_BYTES - 1)
    assert mark(sock) == 1


def test_the_system_says_nothing_of_less_than_the_mark(receive_low_water, ends):
    sock, client = ends
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    receive_low_water.note_read(1, WAKE_BYTES)
    client.sendall(bytes(1000))
    assert not poll.poll(0)
    client.sendall(bytes(WAKE_BYTES - 1000))
    assert poll.poll(30_000)


def test_the_end_of_the_connection_is_told_all_the_same(receive_low_water, ends):
    sock, client = ends
    receive_low_water.note_read(1, WAKE_BYTES)
    client.shutdown(socket.SHUT_WR)
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    assert poll.poll(30_000)


def test_a_mark_under_which_nothing_comes_is_lowered_and_that_stream_is_known_as_slow(
    receive_low_water, sock, alarms
):
    receive_low_water.note_read(1, 2 * WAKE_BYTES)
    alarms.ring()
    assert mark(sock) == 1
    assert not alarms.due
    receive_low_water.note_read(1, 2 * WAKE_BYTES)
    assert mark(sock) == 1
    receive_low_water.note_read(3, 2 * WAKE_BYTES)
    assert mark(sock) == WAKE_BYTES


def test_the_mark_stays_high_as_long_as_something_comes(receive_low_water, sock, alarms):
    receive_low_water.note_read(1, 9 * WAKE_BYTES)
    for left in (8, 7):
        receive_low_water.note_read(1, left * WAKE_BYTES)
        alarms.ring()
        assert mark(sock) == WAKE_BYTES
    assert len(alarms.due) == 1
    alarms.ring()
    assert mark(sock) == 1


def test_nobody_looks_at_a_mark_that_is_low_again(receive_low_water, sock, alarms):
    receive_low_water.note_read(1, WAKE_BYTES)
    receive_low_water.note_read(1, 0)
    alarms.ring()
    assert not alarms.due
    receive_low_water.note_read(1, WAKE_BYTES)  # the same stream, which was not slow
    assert mark(sock) == WAKE_BYTES
    assert len(alarms.due) == 1


def test_a_closed_socket_is_no_error(receive_low_water, sock, alarms):
    receive_low_water.note_read(1, WAKE_BYTES)
    sock.close()
    alarms.ring()
    receive_low_water.note_read(3, WAKE_BYTES)


def test_a_connection_that_uvloop_has_closed_is_no_error(alarms):
    async def use():
        loop = asyncio.get_running_loop()
        made, lost = loop.create_future(), loop.create_future()

        class Server(asyncio.Protocol):
            def connection_made(self, transport):
                made.set_result(transport)

            def connection_lost(self, exc):
                lost.set_result(None)

        server = await loop.create_server(Server, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        transport = await made
        ReceiveLowWater(transport, alarms).note_read(1, WAKE_BYTES)
        transport.abort()
        await lost
        writer.close()
        server.close()
        await server.wait_closed()
        alarms.ring()

    uvloop.run(use())


def test_unix_sockets_have_no_mark(alarms):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ReceiveLowWater(Transport(ours), alarms).note_read(1, WAKE_BYTES)
        assert mark(ours) == 1
    ReceiveLowWater(Transport(None), alarms).note_read(1, WAKE_BYTES)
