"""When a sweep ends an exchange: for its deadline, its pace, or a client that does not read."""

import msgspec
import pytest

from inferd.config.server import ServerConfig
from inferd.http.grpc.exchange import QUEUED_BYTES, StreamExchange
from inferd.http.h2.frames import RST_STREAM, ErrorCode
from inferd.http.h2.request import RequestHead
from inferd.http.h2.sender import H2Sender
from inferd.http.h2.stream import H2Stream
from inferd.server.options import grpc_options

LIMITS = msgspec.structs.replace(
    grpc_options(ServerConfig()), write_timeout_s=10.0, message_timeout_s=3.0
)


class Noting(StreamExchange):
    """Notes what the sweep has it do."""

    def __init__(self, window=0):
        super().__init__(H2Stream(1, RequestHead(b"POST", b"/", [], 0), window), H2Sender())
        self.sender.handlers[1] = self
        self.paces = []
        self.is_expired = self.is_reset = False

    def check_pace(self, now, limit_s):
        self.paces.append((now, limit_s))

    def expire(self):
        self.is_expired = True

    def on_reset(self):
        self.is_reset = True

    def send(self, size, ending=b""):
        self.sender.send_data(self.stream, [bytes(size)], ending)

    def sweep(self, *times):
        """Have the time checked; return whether it has been reset."""
        for now in times:
            self.check_time(now, LIMITS)
        return self.is_reset


@pytest.fixture
def exchange():
    return Noting()


def test_the_pace_of_what_comes_is_checked_at_each_sweep(exchange):
    exchange.sweep(1.0, 2.0)
    assert exchange.paces == [(1.0, 3.0), (2.0, 3.0)]


def test_a_deadline_ends_it_once_it_has_passed(exchange):
    exchange.deadline_s = 5.0
    exchange.sweep(4.9, 5.0)
    assert not exchange.is_expired
    exchange.sweep(5.1)
    assert exchange.is_expired


def test_who_reads_nothing_of_an_answer_is_given_up(exchange):
    exchange.send(100)
    assert not exchange.sweep(1.0, 6.0, 11.0)
    assert exchange.sweep(11.1)
    assert exchange.sender.out[-1][3] == RST_STREAM
    assert exchange.sender.out[-1][-1] == ErrorCode.CANCEL


def test_who_reads_a_little_is_waited_for(exchange):
    exchange.send(100)
    for now in range(0, 100, 9):
        exchange.stream.send_window += 1
        exchange.sender.blocked[1] = exchange.stream
        exchange.sender.pump()
        assert not exchange.sweep(float(now))


def test_without_an_answer_nobody_is_waited_for(exchange):
    assert not exchange.sweep(0.0, 100.0)


@pytest.mark.parametrize(("size", "is_given_up"), [(QUEUED_BYTES, False), (QUEUED_BYTES + 1, True)])
def test_an_answer_that_is_streamed_waits_only_if_its_producer_does(exchange, size, is_given_up):
    exchange.send(size, ending=None)
    assert exchange.sweep(0.0, 100.0) is is_given_up


def test_an_exchange_may_have_no_limits_of_its_own():
    exchange = StreamExchange(H2Stream(1, RequestHead(b"GET", b"/", [], 0), 1), H2Sender())
    exchange.check_time(1e9, LIMITS)
    exchange.watch_deadline()
    exchange.go_on()
    exchange.cut()
    assert exchange.sender.out == []
