"""Models whose `execute` is a coroutine function, and whose calls read the worker's socket."""

import queue
import time

import numpy as np
import pytest
import tritonclient.grpc

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
