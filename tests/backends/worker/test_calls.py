"""What a worker that is starting asks of a server that has ended, or does not get to it."""

import asyncio
import gc
import warnings
from types import SimpleNamespace

import msgspec
import pytest

from inferd.backends.worker.bootstrap.inferd_worker import packet
from inferd.backends.worker.calls import WorkerCalls
from inferd.backends.worker.loads import Loads
from inferd.core.interfaces import Surroundings

LOAD = msgspec.json.encode([[], 7, "load", ["other", None, {}]])


@pytest.fixture
def loop():
    made = asyncio.new_event_loop()
    yield made
    made.close()


def ask_to_load(loop):
    """Receive a command in this thread, as while a model is loaded; return what was warned of."""
    calls = WorkerCalls("m", Surroundings(loop=loop), Loads())
    plan = SimpleNamespace(start_timeout_s=0.01)
    calls.instance = SimpleNamespace(plan=plan, give=None, reads_on=None)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        calls.receive(packet.COMMAND, LOAD, None)
        gc.collect()
    return [str(one.message) for one in warned]


def test_a_server_that_has_ended_is_not_asked(loop):
    loop.close()
    assert ask_to_load(loop) == []


def test_a_server_that_does_not_get_to_it_is_waited_for_no_longer_than_the_start(loop):
    assert ask_to_load(loop) == []
