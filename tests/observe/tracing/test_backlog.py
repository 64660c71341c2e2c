import logging
import threading
import time

from inferd.config.options.trace import TraceSettings
from inferd.observe.tracing.backlog import Backlog
from inferd.observe.tracing.trace import Trace

PATIENCE_S = 30


def trace(number=1):
    return Trace(number, "m", TraceSettings())


def until(condition):
    """Look again and again until `condition()` holds."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s
        threading.Event().wait(0.001)


class Written:
    """Collects what it is given to write, once it may."""

    def __init__(self):
        self.ids = []
        self.threads = set()
        self.may_go = threading.Event()
        self.may_go.set()
        self.started = threading.Event()

    def __call__(self, traces):
        self.started.set()
        assert self.may_go.wait(PATIENCE_S)
        self.threads.add(threading.current_thread())
        self.ids += [one.id for one in traces]


def test_all_that_was_taken_is_written_in_order_in_one_other_thread():
    written = Written()
    backlog = Backlog(written)
    for number in range(1000):
        backlog.take(trace(number))
    backlog.close(PATIENCE_S)
    assert written.ids == list(range(1000))
    assert len(written.threads - {threading.current_thread()}) == 1


def test_what_was_never_needed_has_no_thread():
    before = set(threading.enumerate())
    backlog = Backlog(Written())
    assert not set(threading.enumerate()) - before
    backlog.close(PATIENCE_S)


def test_more_than_may_wait_is_dropped_and_said_ever_more_rarely(caplog):
    written = Written()
    written.may_go.clear()
    backlog = Backlog(written, max_waiting_bytes=3 * trace().size_bytes)
    with caplog.at_level(logging.WARNING, "inferd.trace"):
        backlog.take(trace(0))
        assert written.started.wait(PATIENCE_S)
        for number in range(1, 120):
            backlog.take(trace(number))
    assert [message.split()[0] for message in caplog.messages] == ["1", "10", "100"]
    written.may_go.set()
    backlog.close(PATIENCE_S)
    assert written.ids == [0, 1, 2]


def test_there_is_room_again_when_something_has_been_written():
    written = Written()
    backlog = Backlog(written, max_waiting_bytes=1)
    for number in range(3):
        written.started.clear()
        backlog.take(trace(number))
        assert written.started.wait(PATIENCE_S)
        until(lambda: not backlog.is_full)
    backlog.close(PATIENCE_S)
    assert written.ids == [0, 1, 2]


def test_closing_waits_only_so_long():
    written = Written()
    written.may_go.clear()
    backlog = Backlog(written)
    backlog.take(trace())
    backlog.close(0.01)
    assert written.ids == []
    written.may_go.set()


def test_a_failure_costs_those_traces_and_no_others(caplog):
    written = Written()

    def write(traces):
        if written.ids == [] and not written.threads:
            written.threads.add(None)
            raise ValueError
        written(traces)

    backlog = Backlog(write)
    backlog.take(trace(1))
    until(lambda: written.threads)
    backlog.take(trace(2))
    backlog.close(PATIENCE_S)
    assert written.ids == [2]
    assert "unexpected failure in writing traces" in caplog.text
