"""Tensors that are not copied because they lie where the server reads them: what nobody notices."""

import contextlib
import http.client
import json
import os
import signal
import threading

import numpy as np
import pytest
from serving import ONE_CONFIG, parameter
from tritonclient.utils import InferenceServerException

COUNT = 1_000_000  # more than the sockets between a server and its client hold
SAME = """
class TritonPythonModel:
    def initialize(self, args):
        self.kept = None
    def execute(self, requests):
        if self.kept is not None:
            self.change()
        array = requests[0].inputs()[0].as_numpy()
        tensor = pb_utils.Tensor("OUT", array)
        response = pb_utils.InferenceResponse([tensor])
        responses = [response]
        KEEP
        return responses
    def change(self):
        np.asarray(self.kept)[:] = -1
"""
WAYS = {
    "nothing": "pass",
    "the array": "self.kept = array",
    "a part of it": "self.kept = array[-10:]",
    "a view of its memory": "self.kept = memoryview(array)",
    "the output": "self.kept = tensor; self.change = lambda: tensor.as_numpy().fill(-1)",
    "the response": """self.kept = response
        self.change = lambda: response.output_tensors()[0].as_numpy().fill(-1)""",
    "the list": """self.kept = responses
        self.change = lambda: responses[0].output_tensors()[0].as_numpy().fill(-1)""",
    "the request": """self.kept = request = requests[0]
        self.change = lambda: request.inputs()[0].as_numpy().fill(-1)""",
}
PLACES = ["worker", "server"]


def config(place, kind=ONE_CONFIG):
    return kind + parameter("inferd_process", place)


@contextlib.contextmanager
def unread(asked, model, array):
    """Ask over HTTP; yield what reads the answer to the end, of which little has been read."""
    head = {
        "inputs": [
            {
                "name": "IN",
                "shape": list(array.shape),
                "datatype": "INT32",
                "parameters": {"binary_data_size": array.nbytes},
            }
        ],
        "parameters": {"binary_data_output": True},
    }
    text = json.dumps(head).encode()
    connection = http.client.HTTPConnection("127.0.0.1", asked.server.http_port, timeout=60)
    with contextlib.closing(connection):
        headers = {"Inference-Header-Content-Length": str(len(text))}
        connection.request("POST", f"/v2/models/{model}/infer", text + array.tobytes(), headers)
        answer = connection.getresponse()
        assert answer.status == 200
        answer.read(int(answer.headers["Inference-Header-Content-Length"]))
        yield lambda: np.frombuffer(answer.read(), np.int32)


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", WAYS)
def test_a_slow_client_reads_what_was_answered_whatever_the_model_has_kept(serve, way, place):
    source = SAME.replace("KEEP", WAYS[way])
    array = np.arange(COUNT, dtype=np.int32)
    with serve(same=(source, config(place))) as asked, unread(asked, "same", array) as read:
        for number in range(1, 8):  # whose bytes go where there is room
            got = asked.ask("same", "grpc", IN=array + number)["OUT"]
            assert np.array_equal(got, array + number)
        assert np.array_equal(read(), array)


@pytest.mark.slow
def test_a_slow_client_reads_what_was_answered_by_a_worker_that_is_killed(serve, eventually):
    source = """
        import os
        class TritonPythonModel:
            def execute(self, requests):
                array = requests[0].inputs()[0].as_numpy()
                if len(array) == 1:
                    array = np.array([os.getpid()], np.int32)
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)])]
    """
    array = np.arange(COUNT, dtype=np.int32)
    one = np.zeros(1, np.int32)
    with serve(same=source) as asked:
        [worker] = asked.ask("same", "grpc", IN=one)["OUT"]
        with unread(asked, "same", array) as read:
            os.kill(worker, signal.SIGKILL)
            eventually(lambda: not os.path.exists(f"/proc/{worker}"))
            [another] = asked.ask("same", "grpc", IN=one)["OUT"]
            assert another != worker
            assert np.array_equal(asked.ask("same", "grpc", IN=-array)["OUT"], -array)
            assert np.array_equal(read(), array)


CALLS = """
import asyncio
class TritonPythonModel:
    def execute(self, requests):
        array = requests[0].inputs()[0].as_numpy()
        expected = array.copy()
        WAY
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", answer)])]
    def request(self, array):
        return pb_utils.InferenceRequest(
            model_name="called", requested_output_names=["OUT"],
            inputs=[pb_utils.Tensor("IN", array)])
    def answer(self, response):
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return response.output_tensors()[0].as_numpy()
"""
CALL_WAYS = {
    "written when it is answered": """
        answer = self.answer(self.request(array).exec())
        array.fill(-1)
        assert np.array_equal(answer, expected)
    """,
    "part by part": """
        half = len(array) // 2
        parts = [self.answer(self.request(part).exec()) for part in (array[:half], array[half:])]
        answer = np.concatenate(parts)
    """,
    "one after the other": """
        answer = array
        for _ in range(5):
            answer = self.answer(self.request(answer).exec())
            assert np.array_equal(answer, expected)
        answer += 1
        answer = self.answer(self.request(answer).exec())
        answer -= 1
    """,
    "with the tensor that has come": """
        request = pb_utils.InferenceRequest(
            model_name="called", requested_output_names=["OUT"], inputs=requests[0].inputs())
        answer = self.answer(request.exec())
    """,
    "not in order": """
        turned = self.answer(self.request(array[::-1]).exec())
        answer = self.answer(self.request(turned[::-1]).exec())
    """,
    "written at once, while nobody waits": """
        async def call():
            calls = [self.request(array).async_exec() for _ in range(3)]
            await asyncio.sleep(0)  # now they are on their way
            array.fill(-1)
            return [self.answer(one) for one in await asyncio.gather(*calls)]
        first, *others = asyncio.run(call())
        assert all(np.array_equal(first, other) for other in others)
        answer = first
    """,
    "that fails": """
        odd = pb_utils.InferenceRequest(
            model_name="called", requested_output_names=["OUT"],
            inputs=[pb_utils.Tensor("IN", array.reshape(2, -1))])
        assert odd.exec().has_error()
        answer = self.answer(self.request(array).exec())
    """,
}


def called(kind):
    """A model that gives back what it gets: in the server, where outputs are inputs, or not."""
    if kind == "identity":
        return None, ONE_CONFIG
    return SAME.replace("KEEP", "pass"), config(kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["identity", *PLACES])
@pytest.mark.parametrize("place", PLACES)
def test_calls_hand_over_what_the_model_has_at_that_time(models, serve, place, kind):
    asks = {
        f"asks_{number}": (CALLS.replace("WAY", way.strip()), config(place))
        for number, way in enumerate(CALL_WAYS.values())
    }
    root = models(called=called(kind))
    if kind == "identity":
        file = root / "called" / "config.pbtxt"
        file.write_text(file.read_text().replace('"python"', '"identity"'))
    array = np.arange(50_000, dtype=np.int32)
    with serve(**asks) as asked:
        for number, way in enumerate(CALL_WAYS):
            for _ in range(3):
                got = asked.ask(f"asks_{number}", "grpc", IN=array)["OUT"]
                assert np.array_equal(got, array), way


TOLD_CALL = """
        import os, pathlib
        here = pathlib.Path(__file__).parent.parent.parent / "called" / "1"
        (here / "caller").write_text(str(os.getpid()))
        answer = self.answer(self.request(array).exec())
"""


@pytest.mark.slow
def test_a_worker_that_is_killed_while_it_waits_harms_no_model_that_reads_its_memory(
    serve, eventually, tmp_path
):
    slow = """
        import pathlib, threading
        class TritonPythonModel:
            def execute(self, requests):
                array = requests[0].inputs()[0].as_numpy()
                before = array.copy()
                here = pathlib.Path(__file__).parent
                (here / "called").touch()
                while not (here / "go").exists():
                    threading.Event().wait(0.01)
                assert np.array_equal(array, before)
                (here / "done").touch()
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)])]
    """
    asks = CALLS.replace("WAY", TOLD_CALL)
    array = np.arange(50_000, dtype=np.int32)
    folder = tmp_path / "models" / "called" / "1"
    with serve(asks=asks, called=slow) as asked:
        told = []

        def ask():
            with pytest.raises(InferenceServerException) as error:
                asked.ask("asks", "grpc", IN=array)
            told.append(str(error.value))

        thread = threading.Thread(target=ask)
        thread.start()
        eventually((folder / "called").exists)
        os.kill(int((folder / "caller").read_text()), signal.SIGKILL)
        thread.join()
        assert "SIGKILL" in told[0]
        (folder / "go").touch()
        eventually((folder / "done").exists)
        assert np.array_equal(asked.ask("asks", "grpc", IN=array)["OUT"], array)
