"""Traces of the requests that models in Python make of others."""

import json

import numpy as np
import pytest
from serving import ONE_CONFIG, parameter

pytestmark = pytest.mark.slow

NUMBERS = np.array([1, 2], np.int32)

STEP = """
    class TritonPythonModel:
        def execute(self, requests):
            return [pb_utils.InferenceResponse([pb_utils.Tensor(
                "OUT", request.inputs()[0].as_numpy())]) for request in requests]
"""

CALLS = """
    import asyncio, threading
    def step(request, **more):
        given = pb_utils.Tensor("IN", request.inputs()[0].as_numpy())
        return pb_utils.InferenceRequest(
            model_name="step", requested_output_names=["OUT"], inputs=[given], **more)
    class TritonPythonModel:
        {}
        def answers(self, requests):
            return [pb_utils.InferenceResponse([pb_utils.Tensor(
                "OUT", request.inputs()[0].as_numpy())]) for request in requests]
"""

WAYS = {
    "exec": """def execute(self, requests):
            for request in requests:
                step(request).exec()
                step(request).exec()
            return self.answers(requests)""",
    "async_exec": """async def execute(self, requests):
            await asyncio.gather(*(step(request).async_exec() for request in requests * 2))
            return self.answers(requests)""",
    "exec in another thread, with the trace": """def execute(self, requests):
            call = step(requests[0], trace=requests[0].trace())
            for _ in range(2):
                thread = threading.Thread(target=call.exec)
                thread.start()
                thread.join()
            return self.answers(requests)""",
}


@pytest.fixture
def traced(serve, tmp_path):
    """traced(options, **models) is a context: a server that traces everything, and its file."""

    def start(**models):
        file = tmp_path / "traces.json"
        options = {"trace_config": ("level=TIMESTAMPS", "rate=1", f"triton,file={file}")}
        return serve(options, **models), file

    return start


def told(file):
    return [one for one in json.loads(file.read_text()) if "model_name" in one]


@pytest.mark.parametrize("place", ["worker", "server"])
@pytest.mark.parametrize("way", WAYS)
def test_calls_of_other_models_are_children_of_the_request_they_are_made_for(traced, way, place):
    source = CALLS.format(WAYS[way]), ONE_CONFIG + parameter("inferd_process", place)
    server, file = traced(calls=source, step=STEP)
    with server as asked:
        asked.ask("calls", IN=NUMBERS)
        asked.ask("calls", "grpc", IN=NUMBERS)
    wholes = [one for one in told(file) if one["model_name"] == "calls"]
    steps = [one for one in told(file) if one["model_name"] == "step"]
    assert ["parent_id" in one for one in wholes] == [False, False]
    assert sorted(one["parent_id"] for one in steps) == sorted(one["id"] for one in wholes * 2)


def test_calls_of_a_decoupled_model_are_children_too(traced):
    decoupled = ONE_CONFIG + "model_transaction_policy { decoupled: true }\n"
    way = """def execute(self, requests):
            for request in requests:
                for answer in step(request).exec(decoupled=True):
                    pass
                sender = request.get_response_sender()
                sender.send(self.answers([request])[0])
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)"""
    server, file = traced(calls=(CALLS.format(way), decoupled), step=STEP)
    with server as asked:
        asked.stream("calls", IN=NUMBERS)
    assert [one["model_name"] for one in told(file)] == ["calls", "step"]
    assert told(file)[1]["parent_id"] == told(file)[0]["id"]
