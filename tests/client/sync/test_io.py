"""What blocks, run in one step; slots of threads: waiting, giving up, giving back; connections."""

import socket
import threading
import time

import pytest

from inferd.client import ConnectFailed, DeadlineExceeded
from inferd.client.settings import read_settings
from inferd.client.sync import io
from inferd.client.sync.io import ThreadCallSlots, open_stream, run


async def doubled(awaited):
    return 2 * await awaited


async def three():
    return 3


def test_a_coroutine_that_never_suspends_is_run_in_one_step():
    assert run(doubled(three())) == 6


def test_a_coroutine_that_waits_for_an_event_loop_is_an_error(loop):
    with pytest.raises(RuntimeError, match="event loop"):
        run(doubled(loop.create_future()))


def test_a_slot_that_is_given_back_is_taken_by_who_waits():
    slots, done = ThreadCallSlots(1), []
    run(slots.take(0))

    def take():
        run(slots.take(time.monotonic() + 60))
        done.append(1)

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in threads:
        slots.give_back()
    for thread in threads:
        thread.join()
    assert len(done) == 3


def test_the_deadline_ends_the_wait():
    slots = ThreadCallSlots(1)
    run(slots.take(0))
    with pytest.raises(DeadlineExceeded):
        run(slots.take(time.monotonic() - 1))
    slots.give_back()
    run(slots.take(0))


@pytest.fixture
def of_addresses(monkeypatch):
    """Have each name stand for some addresses of this machine."""

    def have(*ports):
        kind = socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, ""
        found = [(*kind, ("127.0.0.1", port)) for port in ports]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

    return have


def test_the_next_address_is_tried_if_one_refuses(of_addresses):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    settings = read_settings("http://some", {})
    with socket.create_server(("127.0.0.1", 0)) as listener:
        of_addresses(port, listener.getsockname()[1])
        run(open_stream(settings, time.monotonic() + 20)).close()
    of_addresses(port, port)
    with pytest.raises(ConnectFailed, match="no server listens"):
        run(open_stream(settings, time.monotonic() + 20))


class Clock:
    """The time of connections, which passes only where they wait."""

    def __init__(self):
        self.now_s = 0.0

    def monotonic(self):
        return self.now_s


def test_all_addresses_of_a_server_share_the_time_of_a_call(of_addresses, monkeypatch):
    clock, waits = Clock(), []

    def connect(sock, _address):
        waits.append(sock.gettimeout())
        clock.now_s += waits[-1]
        raise TimeoutError("timed out")

    of_addresses(1, 2, 3, 4)
    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(io, "time", clock)
    with pytest.raises(DeadlineExceeded):
        run(open_stream(read_settings("http://some", {}), 20.0))
    assert sum(waits) <= 20
