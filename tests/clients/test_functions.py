"""Functions as models, asked by unmodified clients over HTTP and gRPC."""

import asyncio
import http.client
import json
import queue
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, TypedDict

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from numpy.typing import NDArray
from patience import wait_until
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

import inferd
from inferd.errors import InvalidRequest


class SumAndDifference(TypedDict):
    OUTPUT0: NDArray[np.int32]
    OUTPUT1: NDArray[np.int32]


def add_sub(INPUT0: NDArray[np.int32], INPUT1: NDArray[np.int32]) -> SumAndDifference:  # noqa: N803
    return {"OUTPUT0": INPUT0 + INPUT1, "OUTPUT1": INPUT0 - INPUT1}


class Lengths:
    def __init__(self) -> None:
        lengths_made.append(self)
        self.batch_sizes = []
        self.go_on = threading.Event()

    def __call__(self, text: list[str]) -> list[int]:
        self.batch_sizes.append(len(text))
        self.go_on.wait(60)
        return [len(one) for one in text]


lengths_made = []
lengths = inferd.Model(
    Lengths,
    "lengths",
    batched=True,
    max_batch_size=16,
    dynamic_batching={"preferred_batch_size": [16]},
)


@inferd.model
async def greet(name: str, loudly: bool = False) -> str:  # noqa: FBT001
    await asyncio.sleep(0)
    return f"Hello {name.upper() if loudly else name}"


meeting = threading.Barrier(4)


@inferd.model(instances=4)
def meet(x: int) -> int:
    meeting.wait(60)
    return x


@inferd.model
async def meet_async(x: int) -> int:
    async with asyncio.timeout(60):
        await async_meeting.wait()
    return x


async_meeting = asyncio.Barrier(4)


@inferd.model
def count(n: int) -> Iterator[int]:
    yield from range(n)


@inferd.model
async def count_async(n: int) -> AsyncIterator[int]:
    for number in range(n):
        yield number


START = {"kind": "CONTROL_SEQUENCE_START", "int32_false_true": [0, 1]}
WARMUP = {"name": "w", "inputs": {"x": {"data_type": "TYPE_INT64", "dims": [1], "zero_data": True}}}


@inferd.model(
    name="running_sum",
    sequence_batching={"control_input": [{"name": "start", "control": [START]}]},
    model_warmup=[WARMUP],
)
class RunningSum:
    def __init__(self) -> None:
        self.sum = 0

    def __call__(self, x: int, start: Annotated[np.ndarray, inferd.Spec("INT32", [1])]) -> int:
        self.sum = x if start[0] else self.sum + x
        return self.sum


@inferd.model
def fail(why: str) -> str:
    if why == "client":
        msg = "this one is the client's fault"
        raise InvalidRequest(msg)
    if why == "output":
        return 7
    raise ValueError(why)


@inferd.model
def picture(
    pixels: Annotated[np.ndarray, inferd.Spec("UINT8", [-1, -1, 3])],
) -> tuple[Annotated[float, inferd.Spec(name="mean")], Annotated[bytes, inferd.Spec(name="raw")]]:
    return pixels.mean(), pixels.tobytes()


@pytest.fixture(scope="module")
def server():
    models = (
        add_sub,
        lengths,
        greet,
        meet,
        meet_async,
        count,
        count_async,
        RunningSum,
        fail,
        picture,
    )
    with inferd.Server(*models) as running:
        yield running


@pytest.fixture(params=[triton_http, triton_grpc], ids=["http", "grpc"])
def infer(request, server):
    """infer(model, name=array) returns the outputs by name, over each protocol in turn.

    Each call has a client of its own: those over HTTP belong to the thread that made them.
    """
    library = request.param
    where = server.grpc_url if library is triton_grpc else f"127.0.0.1:{server.http_port}"

    def call(model, **arrays):
        inputs = [tensor(library, name, np.asarray(value)) for name, value in arrays.items()]
        with library.InferenceServerClient(where) as client:
            answer = client.infer(model, inputs)
            metadata = client.get_model_metadata(model)
        outputs = metadata["outputs"] if library is triton_http else metadata.outputs
        names = [one["name"] if library is triton_http else one.name for one in outputs]
        return {name: answer.as_numpy(name).tolist() for name in names}

    return call


def tensor(library, name, array):
    one = library.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    one.set_data_from_numpy(array)
    return one


def text(*values):
    return np.array([value.encode() for value in values], object)


def test_a_function_answers(infer):
    left, right = np.array([5, 6], np.int32), np.array([1, 2], np.int32)
    answer = infer("add_sub", INPUT0=left, INPUT1=right)
    assert answer == {"OUTPUT0": [6, 8], "OUTPUT1": [4, 4]}


def test_arrays_and_bytes_go_both_ways(infer):
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    assert infer("picture", pixels=pixels) == {"mean": [5.5], "raw": [pixels.tobytes()]}


def test_an_asynchronous_function_answers_and_what_has_a_default_may_be_left_out(infer):
    assert infer("greet", name=text("you")) == {"output": [b"Hello you"]}
    loud = infer("greet", name=text("you"), loudly=np.array([True]))
    assert loud == {"output": [b"Hello YOU"]}


def test_a_batched_function_gets_requests_together(server, infer):
    [model] = lengths_made
    model.batch_sizes.clear()
    model.go_on.clear()

    def ask(number):
        if number == 9:  # the others wait for the first
            wait_until(lambda: waiting(server) == 8)
            model.go_on.set()
            return
        words = text("a" * number, "b")
        assert infer("lengths", text=words.reshape(2, 1)) == {"output": [[number], [1]]}

    at_once(ask, range(10))
    assert model.batch_sizes == [2, 16]


def waiting(server):
    """How many requests for `lengths` wait."""
    with urllib.request.urlopen(server.metrics_url, timeout=30) as answer:
        found = re.search(
            r'^nv_inference_pending_request_count{model="lengths".*} (\d+)$',
            answer.read().decode(),
            re.MULTILINE,
        )
    return int(found[1])


def test_several_instances_run_at_once(infer):
    at_once(lambda number: infer("meet", x=np.array([number])), range(4))


def test_one_instance_of_an_asynchronous_function_runs_requests_at_once(infer):
    at_once(lambda number: infer("meet_async", x=np.array([number])), range(4))


def at_once(work, values):
    with ThreadPoolExecutor(len(values)) as pool:
        list(pool.map(work, values))


@pytest.mark.parametrize(
    ("why", "complaint"),
    [
        ("client", "this one is the client's fault"),
        ("output", "model 'fail': output 'output' holds an element of type int, expected str"),
        ("disk", "model 'fail' failed: ValueError: disk"),
    ],
)
def test_what_goes_wrong_is_told_with_the_models_name(infer, caplog, why, complaint):
    with pytest.raises(InferenceServerException, match=complaint) as caught:
        infer("fail", why=text(why))
    is_clients = why == "client"
    assert caught.value.status() in (
        ("400", "StatusCode.INVALID_ARGUMENT") if is_clients else ("500", "StatusCode.INTERNAL")
    )
    assert bool(caplog.records) != is_clients
    assert all("fail" in record.getMessage() for record in caplog.records)


def test_text_that_is_not_utf_8_is_refused(infer):
    with pytest.raises(InferenceServerException, match="input 'name' is text, and holds bytes"):
        infer("greet", name=np.array([b"\xff"], object))


def test_a_class_keeps_the_state_of_a_sequence(server):
    with triton_grpc.InferenceServerClient(server.grpc_url) as client:
        sums = [
            client.infer(
                "running_sum",
                [tensor(triton_grpc, "x", np.array([5]))],
                sequence_id=7,
                sequence_start=number == 0,
                sequence_end=number == 2,
            )
            for number in range(3)
        ]
    assert [answer.as_numpy("output").tolist() for answer in sums] == [[5], [10], [15]]


@pytest.mark.parametrize("model", ["count", "count_async"])
def test_a_generator_streams_over_grpc(server, model):
    answers = queue.SimpleQueue()
    with triton_grpc.InferenceServerClient(server.grpc_url) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer(
            model, [tensor(triton_grpc, "n", np.array([5]))], enable_empty_final_response=True
        )
        got = [answers.get(timeout=60) for _ in range(6)]
        client.stop_stream()
    assert [error for _, error in got] == [None] * 6
    assert [result.as_numpy("output").tolist() for result, _ in got[:5]] == [[n] for n in range(5)]
    parameters = got[5][0].get_response().parameters
    assert parameters["triton_final_response"].bool_param


@pytest.mark.parametrize("model", ["count", "count_async"])
def test_a_generator_streams_over_http(server, model):
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    connection.request("POST", f"/v2/models/{model}/generate_stream", json.dumps({"n": 3}))
    events = connection.getresponse().read().decode().split("\n\n")
    connection.close()
    assert [json.loads(event.removeprefix("data: "))["output"] for event in events if event] == [
        0,
        1,
        2,
    ]


def test_a_generator_cannot_be_asked_for_one_answer(infer):
    with pytest.raises(InferenceServerException, match="model 'count' is decoupled"):
        infer("count", n=np.array([3]))


def test_metadata_tell_the_signature(server):
    with triton_grpc.InferenceServerClient(server.grpc_url) as client:
        metadata = client.get_model_metadata("picture", as_json=True)
        config = client.get_model_config("lengths", as_json=True)["config"]
    shape = ["-1", "-1", "3"]
    assert metadata["inputs"] == [{"name": "pixels", "datatype": "UINT8", "shape": shape}]
    assert [one["name"] for one in metadata["outputs"]] == ["mean", "raw"]
    assert metadata["platform"] == "function"
    assert config["max_batch_size"] == 16
    assert config["dynamic_batching"]["preferred_batch_size"] == [16]


APP = """
import numpy as np
from numpy.typing import NDArray
import inferd

@inferd.model
def double(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return 2 * x
"""


@pytest.mark.slow
def test_an_app_file_is_served_from_the_command_line(start, tmp_path):
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "other.py").write_text(APP.replace("double", "twice"))
    process = start(tmp_path / "other.py", models=tmp_path / "app.py")
    with triton_grpc.InferenceServerClient(process.grpc) as client:
        for name in ("double", "twice"):
            x = tensor(triton_grpc, "x", np.array([1, 2], np.float32))
            assert client.infer(name, [x]).as_numpy("output").tolist() == [2, 4]
    process.terminate()
    assert process.end() == 0


@pytest.mark.slow
def test_an_app_file_that_fails_ends_the_server_with_its_line(tmp_path):
    (tmp_path / "app.py").write_text(APP + "\nimport nothing_of_that_name\n")
    command = [sys.executable, "-m", "inferd", "serve", str(tmp_path / "app.py")]
    ports = ["--http-port=0", "--grpc-port=0"]
    done = subprocess.run(
        [*command, *ports], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 1
    assert "app.py, line 10: ModuleNotFoundError: No module named 'nothing_of" in done.stderr
