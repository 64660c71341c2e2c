"""What a worker that is starting asks of a server that has ended, or does not get to it."""

import asyncio
import gc
import warnings
from types import SimpleNamespace

import msgspec
import pytest

from inferd.aio.promise import Promise
from inferd.backends.worker.calls import WorkerCalls
from inferd.backends.worker.commands import Loads
from inferd.backends.worker.document import Command, Content
from inferd.core.interfaces import BackendContext
from inferd.core.request import InferResponse
from inferd.observe.family import CustomMetrics
from inferd_worker import packet

CALL = msgspec.json.encode([[], ["other", -1, "", [], [], None, 0, 0, 0, 0], False, []])
LOAD = Command([], "load", ["other", None, {}])


@pytest.fixture
def loop():
    made = asyncio.new_event_loop()
    yield made
    made.close()


def calls_of(context, **caller):
    """Return the calls of a worker of model m."""
    plan = SimpleNamespace(model="m", start_timeout_s=0.01)
    return WorkerCalls(context, Loads(), SimpleNamespace(plan=plan, **caller))


def ask_to_load(loop):
    """Receive a command in this thread, as while a model is loaded; return what was warned of."""
    calls = calls_of(BackendContext(loop=loop), reads_on=None)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        calls.receive(packet.COMMAND, LOAD, 7)
        gc.collect()
    return [str(one.message) for one in warned]


def test_a_server_that_has_ended_is_not_asked(loop):
    loop.close()
    assert ask_to_load(loop) == []


def test_a_server_that_does_not_get_to_it_is_waited_for_no_longer_than_the_start(loop):
    assert ask_to_load(loop) == []


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("metric_family", ["name", None, "counter"]),
        ("metric_family", [7, "help", "counter"]),
        ("metric", [1, "sizes", {}, [None]]),
        ("metric", [1, "sizes", {"of": 7}, [1.0]]),
        ("metric", [1, "no such family", {}, None]),
    ],
)
def test_metrics_that_cannot_be_are_refused_and_leave_the_others_as_they_are(verb, arguments):
    metrics = CustomMetrics()
    metrics.add_family("sizes", "How large", "histogram")
    before = [[*family.pieces()] for family in metrics.families()]
    said = []
    calls = calls_of(BackendContext(metrics=metrics), send=lambda *sent: said.append(sent[1]))
    calls.receive(packet.COMMAND, Command([], verb, arguments), 7)
    [[is_last, [kind, code, _]]] = said
    assert (is_last, kind, code) == (True, "error", 3)
    assert [[*family.pieces()] for family in metrics.families()] == before


class Waiting:
    """Models that never answer; `asked_count` says how often they were asked."""

    asked_count = 0

    async def infer(self, request):
        self.asked_count += 1
        await Promise()


class Told:
    """Models that never answer, and wait for what only a task can; `ends` is what ended that."""

    def __init__(self):
        self.ends = []
        self.ended = asyncio.Event()

    async def infer(self, request):
        try:
            await asyncio.Event().wait()
        except BaseException as error:
            self.ends.append(type(error))
            self.ended.set()
            raise


@pytest.mark.parametrize("how", ["hang up", "end"])
def test_a_call_hears_that_it_is_given_up_before_its_task_has_begun(how):
    models = Told()

    async def call_and_give_up():
        calls = calls_of(BackendContext(models=models), reads_on=asyncio.get_running_loop())
        calls.receive_call(CALL, b"", 1, None)
        if how == "end":
            calls.end()
        else:
            calls.receive(packet.HANG_UP, Content([]), 1)
        await asyncio.wait_for(models.ended.wait(), 20)

    asyncio.run(call_and_give_up())
    assert models.ends == [asyncio.CancelledError]


def test_a_call_that_nobody_waits_for_any_more_is_no_call(monkeypatch):
    monkeypatch.setattr("inferd.backends.worker.calls.MAX_CALLS", 1)
    models = Waiting()

    async def call_and_hang_up():
        calls = calls_of(BackendContext(models=models), reads_on=asyncio.get_running_loop())
        for number in range(3):
            calls.receive_call(CALL, b"", number, None)
            calls.receive(packet.HANG_UP, Content([]), number)

    asyncio.run(call_and_hang_up())
    assert models.asked_count == 3


class Gives:
    """Models that give their inputs back, if those can be read."""

    async def infer(self, request):
        return InferResponse(request.model, "1", request.id, request.inputs)


@pytest.mark.parametrize(
    ("place", "data", "is_answered"),
    [((0, 8), b"12345678", True), ((0, 8), b"1234", False), ((4, 8), b"12345678", False)],
)
def test_inputs_that_are_not_where_they_are_said_to_be_end_their_call_alone(
    place, data, is_answered
):
    said = []

    async def call():
        calls = calls_of(
            BackendContext(models=Gives()),
            reads_on=asyncio.get_running_loop(),
            send=lambda *sent: said.append(sent),
        )
        asked = ["other", -1, "", [["X", "FP32", [2], *place]], [], None, 0, 0, 0, 0]
        document = msgspec.json.encode([[], asked, False, []])
        for number in (1, 2):  # the second time it was read before
            calls.receive_call(document, data, number, None)

    asyncio.run(call())
    kinds = [(number, document[1][0]) for _, document, _, number in said]
    assert kinds == [(number, "response" if is_answered else "error") for number in (1, 2)]
