"""Generators as processes, against a server in this one."""

import signal
import threading

import pytest
from small_site import SmallSite

from inferd.bench.plan import Address, Message, Plan, Point, samples
from inferd.bench.processes import Generators, Hooks
from inferd.errors import Unavailable

pytestmark = pytest.mark.slow

REQUEST = b"POST /%b HTTP/1.1\r\nContent-Length: 0\r\n\r\n"


class Seen:
    """Hooks that remember what was called."""

    def __init__(self, during=None):
        self.calls = []
        self.during = during
        self.hooks = Hooks(
            lambda: self.calls.append("begin"), lambda: self.calls.append("end"), self.progress
        )

    def progress(self, share, now):
        self.calls.append(now)
        if self.during is not None:
            self.during()


@pytest.fixture
def plan():
    """A plan for a small site."""
    with SmallSite() as site:
        yield Plan(Address("127.0.0.1", site.port), [Message(REQUEST % b"a")])


def test_processes_measure_one_point_after_the_other(plan):
    with Generators(plan, 2) as generators:
        for point in (
            Point(concurrency=3, seconds=0.3, warmup_s=0.1),
            Point(rate=100, seconds=0.3),
        ):
            seen = Seen()
            samples_of, is_whole = generators.run(point, seen.hooks)
            assert is_whole and len(samples_of) == 2
            assert all(len(samples(one.latencies)) for one in samples_of)
            assert [one for one in seen.calls if isinstance(one, str)] == ["begin", "end"]
            assert any(isinstance(one, list) for one in seen.calls)
        assert sum(len(samples(one.sent)) for one in samples_of) == 30
        assert len(generators.run(Point(concurrency=1, seconds=0.1), Seen().hooks).samples) == 1


def test_ctrl_c_ends_a_point_with_what_was_measured(plan):
    """The first progress is answered with the signal that Ctrl-C sends."""
    once = iter([True])

    def interrupt():
        if next(once, False):
            signal.raise_signal(signal.SIGINT)

    # A background job is born deaf to it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with Generators(plan, 1) as generators:
            point = Point(concurrency=2, seconds=3600, warmup_s=0)
            found, is_whole = generators.run(point, Seen(interrupt).hooks)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not is_whole and len(samples(found[0].latencies)) > 0
    assert threading.active_count() >= 1


def test_no_server_and_a_generator_that_ends_are_errors(plan):
    nobody = Plan(Address("127.0.0.1", 1), plan.messages)
    with (
        Generators(nobody, 1) as generators,
        pytest.raises(Unavailable, match="nobody listens there"),
    ):
        generators.run(Point(concurrency=1), Seen().hooks)
    with Generators(plan, 1) as generators:
        generators._processes[0].kill()
        with pytest.raises(Unavailable, match="a load generator has ended"):
            generators.run(Point(concurrency=1), Seen().hooks)
