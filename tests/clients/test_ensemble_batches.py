"""Ensembles that batch with steps that do not, and the other way, asked over HTTP and gRPC.

Models with a batch dim: `double` (ONNX), `sums` (Python, keeps sequences) and `same`. Models
without: `plus` (Python) and `repeat`, which answers once for each value.
"""

import queue

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

PLUS = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("O", request.inputs()[0].as_numpy() + 1)])
            for request in requests
        ]
"""
SUMS = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        id, given = request.correlation_id(), request.inputs()[0].as_numpy()
        is_first = request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
        self.sums[id] = given if is_first else self.sums[id] + given
        return pb_utils.InferenceResponse([pb_utils.Tensor("O", self.sums[id])])
"""


def puts(kind, name, dims):
    return f'{kind} {{ name: "{name}" data_type: TYPE_INT32 dims: [ {dims} ] }}\n'


def model(backend, batch, dims, more=""):
    return (
        f'backend: "{backend}" max_batch_size: {batch} {more}\n'
        f"{puts('input', 'I', dims)}{puts('output', 'O', dims)}"
    )


def ensemble(batch, dims, *steps, out=None):
    """A chain of `steps`; of two names the second and third are the model's input and output."""
    text = f'platform: "ensemble" max_batch_size: {batch}\n'
    text += puts("input", "X", dims) + puts("output", "Y", out or dims)
    tensors = ["X", *(f"t{number}" for number in range(len(steps) - 1)), "Y"]
    text += "ensemble_scheduling {\n"
    for at, step in enumerate(steps):
        name, reads, writes = (step, "I", "O") if isinstance(step, str) else step
        text += (
            f'step {{ model_name: "{name}" model_version: -1 '
            f'input_map {{ key: "{reads}" value: "{tensors[at]}" }} '
            f'output_map {{ key: "{writes}" value: "{tensors[at + 1]}" }} }}\n'
        )
    return text + "}"


ENSEMBLES = {
    "flat": ensemble(0, "3", "double", "plus", "same"),
    "batched": ensemble(8, "3", "plus", "double", "plus"),
    "whole": ensemble(0, "-1, 3", "double", "same"),
    "outer": ensemble(4, "3", ("flat", "X", "Y"), ("batched", "X", "Y")),
    "summed": ensemble(0, "3", "plus", "sums"),
    "repeated": ensemble(0, "-1", ("repeat", "IN", "OUT"), "same1", out="1"),
}


def doubling():
    ends = [helper.make_tensor_value_info(n, TensorProto.INT32, ["batch", 3]) for n in "IO"]
    graph = helper.make_graph([helper.make_node("Add", "II", "O")], "graph", ends[:1], ends[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    return made.SerializeToString()


@pytest.fixture(scope="module")
def mixed(start_for_module, tmp_path_factory):
    """A server of such models."""
    root = tmp_path_factory.mktemp("mixed")
    models = {
        "double": model("onnxruntime", 8, "3", "dynamic_batching { }"),
        "same": model("identity", 8, "3"),
        "same1": model("identity", 8, "1"),
        "plus": model("python", 0, "3"),
        "sums": model("python", 8, "3", "sequence_batching { }"),
        "repeat": 'backend: "repeat"',
        **ENSEMBLES,
    }
    for name, config in models.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(config)
    (root / "double/1/model.onnx").write_bytes(doubling())
    (root / "plus/1/model.py").write_text(PLUS)
    (root / "sums/1/model.py").write_text(SUMS)
    return start_for_module(models=root)


@pytest.fixture(params=[tritonclient.http, tritonclient.grpc], ids=["http", "grpc"])
def infer(request, mixed):
    """infer(model, values) is output Y as lists; over HTTP and gRPC in turn."""
    package = request.param
    place = mixed.http if package is tritonclient.http else mixed.grpc
    with package.InferenceServerClient(place) as client:

        def ask(name, values, **said):
            array = np.array(values, np.int32)
            given = package.InferInput("X", array.shape, "INT32")
            given.set_data_from_numpy(array)
            return client.infer(name, [given], **said).as_numpy("Y").tolist()

        yield ask


@pytest.mark.parametrize(
    ("name", "values", "got"),
    [
        ("flat", [1, 2, 3], [3, 5, 7]),
        ("batched", [[1, 2, 3]], [[5, 7, 9]]),
        ("whole", [[1, 2, 3], [4, 5, 6]], [[2, 4, 6], [8, 10, 12]]),
        ("outer", [[1, 2, 3]], [[9, 13, 17]]),
    ],
)
def test_a_batch_dim_is_added_and_dropped_between_steps(infer, name, values, got):
    assert infer(name, values) == got


def test_a_batch_of_several_is_refused_by_a_step_that_takes_one_item(infer):
    with pytest.raises(InferenceServerException) as caught:
        infer("batched", [[1, 2, 3], [4, 5, 6]])
    assert caught.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")
    assert caught.value.message() == (
        "in ensemble 'batched', unexpected shape for input 'I' for model 'plus'. Expected [3], got "
        "[2,3]; step 0 (model 'plus'): input 'I' is tensor 'X', INT32 [2, 3]"
    )


def test_the_requests_of_a_sequence_get_a_batch_dim(infer):
    first = infer("summed", [1, 2, 3], sequence_id=7, sequence_start=True)
    last = infer("summed", [1, 2, 3], sequence_id=7, sequence_end=True)
    assert last == [2 * value for value in first]


def test_each_answer_of_a_decoupled_step_gets_a_batch_dim(mixed):
    answers = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(mixed.grpc) as client:
        client.start_stream(lambda result, error: answers.put(error or result))
        given = tritonclient.grpc.InferInput("X", [3], "INT32")
        given.set_data_from_numpy(np.array([5, 6, 7], np.int32))
        client.async_stream_infer("repeated", [given])
        got = [answers.get(timeout=30) for _ in range(3)]
        client.stop_stream()
    assert [answer.as_numpy("Y").tolist() for answer in got] == [[5], [6], [7]]
