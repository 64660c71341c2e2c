"""The load of a point, against small servers in the same loop."""

import asyncio
import time

import pytest

from inferd.bench.generator.load import MOST_FAILURES, PointLoad
from inferd.bench.plan import Address, Message, Plan, Point, samples
from inferd.errors import Unavailable

pytestmark = pytest.mark.slow

REQUEST = b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
MESSAGES = (Message(REQUEST),)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BAD = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\n\r\nbad"


class SmallServer(asyncio.Protocol):
    """Answers each request with what `answers` gives for its number, None for never."""

    def __init__(self, state):
        self.state = state

    def connection_made(self, transport):
        self.transport = transport
        self.state.connections += 1
        self.state.transports.add(transport)

    def connection_lost(self, error):
        self.state.transports.remove(self.transport)

    def data_received(self, data):
        state = self.state
        for request in data.split(b"\r\n\r\n")[:-1]:
            state.under_way += 1
            state.most_under_way = max(state.most_under_way, state.under_way)
            state.requests.append(request)
            state.loop.call_soon(self.answer, len(state.requests))

    def answer(self, number):
        self.state.under_way -= 1
        answer = self.state.answer(number)
        if answer == b"":
            self.transport.close()
        elif answer is not None:
            self.transport.write(answer)


class State:
    """What the connections of a server know together."""

    def __init__(self, answer):
        self.loop = asyncio.get_running_loop()
        self.answer = answer
        self.requests, self.transports = [], set()
        self.connections = self.under_way = self.most_under_way = 0


def load(point, answer=lambda number: OK, messages=MESSAGES, during=None, **plan):
    """Return the sample of a point against a server, the server's state, and the progress."""

    async def run():
        state, progress = State(answer), []
        server = await state.loop.create_server(lambda: SmallServer(state), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        made = PointLoad(
            Plan(Address("127.0.0.1", port), list(messages), **plan), point, progress.append
        )
        if during is not None:
            during(made, state)
        try:
            sample = await made.run(time.monotonic_ns())
        finally:
            # What was accepted last becomes a connection in a task of asyncio's, which fails, and
            # leaves the connection open, if the server is closed then.
            while accepting := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(accepting)
            server.close()
            for one in state.transports:
                one.abort()
            while state.transports:  # noqa: ASYNC110  there is no event to wait for
                await asyncio.sleep(0)
        return sample, state, progress

    return asyncio.run(run())


CLOSED = Point(concurrency=3, seconds=0.3, warmup_s=0.1)
OPEN = Point(rate=200, seconds=0.3, warmup_s=0.0, connections=2)


def test_so_many_requests_are_under_way_at_a_time():
    sample, state, progress = load(CLOSED)
    assert state.connections == 3 and state.most_under_way <= 3
    assert sample.answered > 3 and not sample.errors
    assert len(samples(sample.latencies)) == len(samples(sample.sent)) >= sample.answered - 3
    assert samples(sample.latencies).min() > 0
    assert sample.ended_ns - sample.began_ns == 300_000_000
    assert progress[-1].answered > 0


def test_at_a_rate_requests_are_sent_whenever_they_are_due():
    sample, state, _ = load(OPEN)
    assert len(samples(sample.sent)) == len(state.requests) == 60
    assert set(samples(sample.sent)[1:] - samples(sample.sent)[:-1]) == {5_000_000}


def test_a_latency_counts_from_when_a_request_was_due():
    """The answers to the first two wait until 30 more are due: those wait, and it counts."""
    released = []

    def during(made, state):
        def wait():
            if made._due < 32:
                state.loop.call_later(0.001, wait)
                return
            released.append(time.monotonic_ns())
            for one in made._connections:
                if one.is_busy:
                    one.buffer_updated(put(one))

        def put(one):
            one.get_buffer(-1)[: len(OK)] = OK
            return len(OK)

        state.loop.call_soon(wait)

    sample, _, _ = load(OPEN, lambda number: None if number <= 2 else OK, during=during)
    waited = [
        (due, latency)
        for due, latency in zip(samples(sample.sent), samples(sample.latencies), strict=True)
        if due < released[0]
    ]
    assert len(waited) >= 32 and sample.waiting_share >= 30 / 60
    assert all(latency >= released[0] - due for due, latency in waited)
    assert max(latency for _, latency in waited) >= 30 * 5_000_000


def test_recorded_times_are_kept():
    point = Point(seconds=1, warmup_s=0, offsets_s=[7.0, 7.1, 7.15], connections=2)
    sample, _, _ = load(point)
    first = samples(sample.sent)[0]
    assert (samples(sample.sent) - first).tolist() == [0, 100_000_000, 150_000_000]


def test_each_recorded_request_is_sent_at_its_own_time_by_one_of_the_processes():
    made = [Message(b"POST /%d HTTP/1.1\r\nContent-Length: 0\r\n\r\n" % one) for one in range(5)]
    offsets = [0.0, 0.1, 0.2, 0.3, 0.4]
    point = Point(seconds=1, warmup_s=0, offsets_s=offsets, speed=2.0, part=1, parts=2)
    sample, state, _ = load(point, messages=made)
    assert [one.split()[1] for one in state.requests] == [b"/1", b"/3"]
    first, second = samples(sample.sent)
    assert second - first == 100_000_000


def test_messages_are_sent_in_turn_beginning_with_the_part():
    made = [Message(b"POST /%d HTTP/1.1\r\nContent-Length: 0\r\n\r\n" % one) for one in range(3)]
    _, state, _ = load(
        Point(concurrency=1, seconds=0.1, warmup_s=0, part=1, parts=2), messages=made
    )
    assert [one.split()[1] for one in state.requests[:4]] == [b"/1", b"/2", b"/0", b"/1"]


def test_sequences_have_a_number_of_their_own_and_begin_and_end():
    kinds = [Message(b"POST /%b-" % one, b" HTTP/1.1\r\n\r\n") for one in (b"f", b"m", b"l", b"o")]
    point = Point(concurrency=2, seconds=0.1, warmup_s=0)
    _, state, _ = load(point, messages=kinds, sequence_length=3)
    steps = {}
    for one in state.requests:
        kind, _, number = one.split()[1].decode().partition("-")
        assert len(number) == 10
        steps.setdefault(number, []).append(kind)
    assert len(steps) >= 2 and all(one == ["/f", "/m", "/l"] for one in steps.values())


def test_errors_are_counted_and_the_load_goes_on():
    sample, _, _ = load(CLOSED, lambda number: BAD if number % 2 else OK)
    assert sample.errors.keys() == {"400: bad"} and sample.answered > 0


def test_errors_of_the_warm_up_are_not_counted():
    point = Point(rate=100, seconds=0.2, warmup_s=0.2, connections=2)
    sample, _, progress = load(point, lambda number: BAD if number < 4 else OK)
    assert progress[-1].errors == 3 and not sample.errors


def test_lost_connections_are_made_anew():
    sample, state, _ = load(CLOSED, lambda number: b"" if number % 5 == 0 else OK)
    assert sample.errors.keys() == {"the connection was lost"}
    assert state.connections > 3 and sample.answered > 5


def test_a_point_without_any_answer_is_given_up():
    with pytest.raises(Unavailable, match="400: bad"):
        load(Point(concurrency=1, seconds=3600, warmup_s=3600), lambda number: BAD)
    assert MOST_FAILURES < 1000


def test_no_server_is_said_at_once():
    async def run():
        plan = Plan(Address("127.0.0.1", 1), [Message(REQUEST)])
        await PointLoad(plan, CLOSED, lambda _: None).run(time.monotonic_ns())

    with pytest.raises(Unavailable, match=r"no connection to 127.0.0.1:1: nobody listens"):
        asyncio.run(run())


def test_a_stopped_load_gives_what_was_measured():
    def during(made, state):
        def wait():
            if len(state.requests) < 20:
                state.loop.call_later(0.001, wait)
            else:
                made.stop()

        state.loop.call_soon(wait)

    for point in (Point(concurrency=2, seconds=3600), Point(rate=500, seconds=3600)):
        sample, _, _ = load(point, during=during)
        assert len(samples(sample.latencies)) >= 10
        assert sample.ended_ns - sample.began_ns < 600e9


def test_a_request_without_an_answer_in_time_is_an_error():
    sample, _, _ = load(
        Point(concurrency=2, seconds=0.7, warmup_s=0),
        lambda number: None if number == 1 else OK,
        timeout_s=0.2,
    )
    assert sample.errors.keys() == {"no answer within 0.2 s"} and sample.answered > 0
