import asyncio
from contextlib import aclosing

import numpy as np
import pytest

from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.config.options.trace import TraceSettings
from inferd.core.interfaces import Opened
from inferd.core.request import InferRequest, InferResponse
from inferd.engine.engine import Engine
from inferd.engine.serving.served import Served
from inferd.engine.traced import TracedEngine
from inferd.errors import BackendFailed, InvalidRequest, ModelNotFound, Unsupported
from inferd.observe.tracing.trace import Trace
from inferd.schedulers.direct import DirectScheduler
from inferd.schedulers.execution.execution import Execution
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

INT32 = DataType.INT32
ALL = [
    "REQUEST_START",
    "QUEUE_START",
    "COMPUTE_START",
    "COMPUTE_INPUT_END",
    "COMPUTE_OUTPUT_START",
    "COMPUTE_END",
    "INFER_RESPONSE_COMPLETE",
    "REQUEST_END",
]


class Doubling:
    """Answers Y = X + X, or twice so when it is decoupled, and tells the times of its work."""

    def __init__(self, error=None):
        self.error = error
        self.tells_times = True

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def stream(self, request):
        yield self.answer(request)
        yield self.answer(request)

    def answer(self, request):
        if self.error:
            raise self.error
        if self.tells_times:
            request.computing_ns = request.started_ns + 1
            request.computed_ns = request.started_ns + 2
        [given] = request.inputs
        return InferResponse("", "", "", [Tensor.from_numpy("Y", given.numpy() * 2, INT32)])

    def close(self):
        pass


def engine_of(instance, *, decoupled=False):
    config = ModelConfig(
        "m",
        input=(ModelInput("X", INT32, (-1,)),),
        output=(ModelOutput("Y", INT32, (-1,)),),
        decoupled=decoupled,
    )
    execution = Execution("m", [Opened(instance, instance)], may_run_inline=False)
    engine = Engine()
    engine.catalog.add(Served(config, 3, "identity", DirectScheduler(execution)))
    return engine


def trace_of(*levels):
    return Trace(1, "m", TraceSettings(levels=levels or ("TIMESTAMPS",)))


def request_of(*values):
    return InferRequest("m", id="q", inputs=[Tensor.from_numpy("X", np.array(values, "i4"), INT32)])


def infer(instance, trace, request=None):
    async def go():
        engine = engine_of(instance)
        try:
            return await TracedEngine(engine, trace).infer(request or request_of(1, 2))
        finally:
            await engine.close(30)

    return asyncio.run(go())


def stream(instance, trace):
    async def go():
        engine = engine_of(instance, decoupled=True)
        async with aclosing(TracedEngine(engine, trace).stream(request_of(1))) as responses:
            count = len([response async for response in responses])
        await engine.close(30)
        return count

    return asyncio.run(go())


def names(trace):
    return [name for name, _ in sorted(trace.stamps, key=lambda stamp: stamp[1])]


def test_an_answer_is_passed_on_and_all_its_moments_are_noted_in_order():
    trace = trace_of()
    assert infer(Doubling(), trace).outputs[0].numpy().tolist() == [2, 4]
    assert names(trace) == ALL
    assert (trace.request_id, trace.version) == ("q", "3")
    times = dict(trace.stamps)
    assert times["COMPUTE_INPUT_END"] - times["COMPUTE_START"] == 1
    assert times["COMPUTE_OUTPUT_START"] - times["COMPUTE_START"] == 2


def test_a_backend_that_cannot_tell_its_own_work_has_none():
    instance = Doubling()
    instance.tells_times = False
    trace = trace_of()
    infer(instance, trace)
    times = dict(trace.stamps)
    assert times["COMPUTE_INPUT_END"] == times["COMPUTE_START"]
    assert times["COMPUTE_START"] < times["COMPUTE_OUTPUT_START"] <= times["COMPUTE_END"]


def test_a_model_that_fails_was_computing():
    trace = trace_of()
    with pytest.raises(BackendFailed):
        infer(Doubling(BackendFailed("broken")), trace)
    assert [name for name in ALL if name not in names(trace)] == ["INFER_RESPONSE_COMPLETE"]
    assert trace.version == "3"


def test_a_stream_that_fails_has_its_version():
    trace = trace_of()
    with pytest.raises(BackendFailed):
        stream(Doubling(BackendFailed("broken")), trace)
    assert trace.version == "3"


def test_a_request_that_does_not_fit_gets_nowhere():
    trace = trace_of("TIMESTAMPS", "TENSORS")
    with pytest.raises(InvalidRequest):
        infer(Doubling(), trace, InferRequest("m", id="q"))
    assert names(trace) == ["REQUEST_START", "REQUEST_END"]
    assert (trace.version, trace.tensors) == ("3", [])


def test_of_an_unknown_model_no_version_is_chosen():
    trace = trace_of()
    with pytest.raises(ModelNotFound):
        infer(Doubling(), trace, InferRequest("nope", id="q"))
    assert (trace.request_id, trace.version) == ("q", "")


def test_tensors_are_noted_where_they_go_in_and_come_out():
    trace = trace_of("TENSORS")
    infer(Doubling(), trace)
    assert trace.stamps == []
    assert [
        (one.activity, one.tensor.name, one.tensor.numpy().tolist()) for one in trace.tensors
    ] == [
        ("TENSOR_QUEUE_INPUT", "X", [1, 2]),
        ("TENSOR_BACKEND_INPUT", "X", [1, 2]),
        ("TENSOR_BACKEND_OUTPUT", "Y", [2, 4]),
    ]


def test_the_inputs_of_a_request_that_fails_in_its_model_are_noted():
    trace = trace_of("TENSORS")
    with pytest.raises(BackendFailed):
        infer(Doubling(ValueError("broken")), trace)
    assert [one.activity for one in trace.tensors] == ["TENSOR_QUEUE_INPUT", "TENSOR_BACKEND_INPUT"]


def test_each_answer_of_a_stream_is_noted():
    trace = trace_of("TIMESTAMPS", "TENSORS")
    assert stream(Doubling(), trace) == 2
    assert names(trace).count("INFER_RESPONSE_COMPLETE") == 2
    assert names(trace)[0] == "REQUEST_START"
    assert names(trace)[-1] == "REQUEST_END"
    activities = [one.activity for one in trace.tensors]
    assert activities.count("TENSOR_BACKEND_OUTPUT") == 2
    assert activities.count("TENSOR_QUEUE_INPUT") == 1


def test_other_questions_are_passed_on():
    async def go():
        engine = TracedEngine(engine_of(Doubling(), decoupled=True), trace_of())
        assert engine.is_decoupled("m", "")
        assert not engine.is_decoupled("nope", "")  # asking it fails
        with pytest.raises(Unsupported):
            engine.check_model("m", "3")
        with pytest.raises(ModelNotFound):
            engine.check_model("nope", "")

    asyncio.run(go())
