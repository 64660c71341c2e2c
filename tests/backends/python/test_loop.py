"""Models whose `execute` is a coroutine function, and whose calls read the worker's socket."""

import queue
import time

import numpy as np
import pytest
import tritonclient.grpc
from serving import parameter

pytestmark = pytest.mark.slow  # a process starts

PATIENCE_S = 60

LOOKS = """
    import os, time

    class TritonPythonModel:
        async def execute(self, requests):
            for request in requests:
                sender = request.get_response_sender()
                path = pb_utils.get_input_tensor_by_name(request, "PATH").as_numpy()[0].decode()
                is_there = not path
                while not is_there:  # and one look more, when it is
                    is_there = os.path.exists(path)
                    sender.is_cancelled()
                out = pb_utils.Tensor("PATH", np.array([path.encode()], np.object_))
                sender.send(
                    pb_utils.InferenceResponse([out]),
                    flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL,
                )

        def is_ready(self):
            return True
"""

CONFIG = """
model_transaction_policy { decoupled: true }
input { name: "PATH" data_type: TYPE_STRING dims: 1 }
output { name: "PATH" data_type: TYPE_STRING dims: 1 }
"""


def given(path):
    tensor = tritonclient.grpc.InferInput("PATH", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([path.encode()], np.object_))
    return [tensor]


GATED = """
    import asyncio, os

    class TritonPythonModel:
        async def execute(self, requests):  # one answer per path, once there is such a file
            for request in requests:
                sender = request.get_response_sender()
                for path in pb_utils.get_input_tensor_by_name(request, "PATH").as_numpy():
                    while path and not os.path.exists(path) and not sender.is_cancelled():
                        await asyncio.sleep(0.001)
                    if sender.is_cancelled():
                        open(path + b".cancelled", "w").close()
                        break
                    out = pb_utils.Tensor("PATH", np.array([path], np.object_))
                    sender.send(pb_utils.InferenceResponse([out]))
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

GATED_CONFIG = CONFIG.replace("dims: 1 ", "dims: -1 ")

CALLS = """
    import asyncio, os

    PATIENCE_S = 30

    def call(*paths, model="gated"):
        array = np.array(paths, np.object_)
        return pb_utils.InferenceRequest(
            model_name=model, inputs=[pb_utils.Tensor("PATH", array)]
        ).async_exec(decoupled=True)

    def text_of(response):
        if response.has_error():
            return b"error"
        return b"".join(tensor.as_numpy()[0] for tensor in response.output_tensors())

    async def open_gates(paths):  # long after the call has been sent
        for path in paths:
            for _ in range(100):
                await asyncio.sleep(0)
            open(path, "w").close()

    class TritonPythonModel:
        async def execute(self, requests):
            answers = []
            for request in requests:
                way, folder = pb_utils.get_input_tensor_by_name(request, "PATH").as_numpy()
                got = await getattr(self, way.decode())(folder)
                out = pb_utils.Tensor("PATH", np.array(got, np.object_))
                answers.append(pb_utils.InferenceResponse([out]))
            return answers

        async def in_a_for(self, folder):
            path = folder + b"/in_a_for"
            gates = asyncio.create_task(open_gates([path]))
            got = [text_of(response) for response in await call(path)]
            await gates
            return got

        async def in_an_async_for(self, folder):
            paths = [folder + b"/%d" % number for number in range(3)]
            gates = asyncio.create_task(open_gates(paths))
            got = [text_of(response) async for response in await call(*paths)]
            await gates
            return got

        async def given_up(self, folder):
            never = folder + b"/never"
            try:
                await asyncio.wait_for(call(never), 0.1)
            except asyncio.TimeoutError:
                pass
            async def noticed():
                while not os.path.exists(never + b".cancelled"):
                    await asyncio.sleep(0.001)
            await asyncio.wait_for(noticed(), PATIENCE_S)
            return [b"noticed"]

        async def many(self, folder):
            calls = [call(b"", b"", b"") for _ in range(200)]
            return [b"%d" % sum([1 for _ in each]) for each in await asyncio.gather(*calls)]

        async def wrong(self, folder):
            return [text_of(response) for response in await call(b"", model="nobody")]
"""

CALLS_CONFIG = GATED_CONFIG.replace("decoupled: true", "decoupled: false")


def test_what_comes_while_a_model_looks_is_not_lost(serve, tmp_path):
    flag = tmp_path / "flag"
    with serve(looks=(LOOKS, CONFIG)) as asked:
        capacity = asked.server.engine.capacity
        answers = queue.Queue()
        asked.grpc.start_stream(lambda result, error: answers.put(error or result))
        asked.grpc.async_stream_infer("looks", given(str(flag)))
        asked.grpc.async_stream_infer("looks", given(""))
        deadline = time.monotonic() + PATIENCE_S
        while capacity.request_count < 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        flag.touch()
        paths = [answers.get(timeout=PATIENCE_S).as_numpy("PATH")[0] for _ in range(2)]
        assert sorted(paths) == [b"", str(flag).encode()]
        asked.grpc.stop_stream()
        assert asked.grpc.is_model_ready("looks")


@pytest.mark.parametrize("place", ["worker", "server"])
def test_awaited_calls_of_decoupled_models_leave_the_event_loop_free(serve, tmp_path, place):
    process = parameter("inferd_process", place)
    gated = (GATED, GATED_CONFIG + process)
    with serve(gated=gated, calls=(CALLS, CALLS_CONFIG + process)) as asked:

        def got(way):
            given = np.array([way.encode(), str(tmp_path).encode()], np.object_)
            return [*asked.ask("calls", PATH=given)["PATH"]]

        def path(name):
            return f"{tmp_path}/{name}".encode()

        assert got("in_a_for") == [path("in_a_for"), b""]
        assert got("in_an_async_for") == [path(0), path(1), path(2), b""]
        assert got("given_up") == [b"noticed"]
        assert got("many") == [b"4"] * 200  # each with an empty one at the end
        assert got("wrong") == [b"error"]
