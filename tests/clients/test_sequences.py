"""Sequences as Triton's clients ask for them, over HTTP and over streams of both gRPC transports.

The models: `rows` and `oldest` add up X in a state that the server keeps (ONNX), `named` does so
for ids that are texts, `remembers` keeps the sums itself, by id (Python).
"""

import queue
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

PATIENCE_S = 60
LIVE = "max_sequence_idle_microseconds: 600000000"
STATE = 'state { input_name: "SUM" output_name: "NEXT" data_type: TYPE_INT64 dims: 1 }'
START = (
    'control_input { name: "START" control { kind: CONTROL_SEQUENCE_START '
    "bool_false_true: [false, true] } }"
)
IDS = 'control_input {{ name: "ID" control {{ kind: CONTROL_SEQUENCE_CORRID data_type: {} }} }}'
TENSORS = (
    'input { name: "X" data_type: TYPE_INT64 dims: 1 } '
    'output { name: "Y" data_type: TYPE_INT64 dims: 1 } '
)
REMEMBERS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        id, flags = request.correlation_id(), request.flags()
        if not id:  # a row of the batch without a request
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.zeros((1, 1), np.int64))])
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        if flags & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            self.sums[id] = 0
        self.sums[id] += int(x[0, 0])
        y = np.array([[self.sums[id]]], np.int64)
        if flags & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END:
            del self.sums[id]
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)])
"""


def config(strategy, more="", backend="onnxruntime", count=4):
    return (
        f'backend: "{backend}" max_batch_size: 128 {TENSORS} '
        f"instance_group {{ kind: KIND_CPU count: {count} }} "
        f"sequence_batching {{ {strategy} {LIVE} {more} }}"
    )


def adder(controls):
    """Return a model file: Y and NEXT are SUM + X; of `controls` it takes no notice."""
    names = {"X": TensorProto.INT64, "SUM": TensorProto.INT64, **controls}
    nodes = [helper.make_node("Add", ["X", "SUM"], [name]) for name in ("Y", "NEXT")]
    nodes += [helper.make_node("Identity", [name], [f"{name}_SEEN"]) for name in controls]
    inputs = [helper.make_tensor_value_info(n, kind, ["n", 1]) for n, kind in names.items()]
    seen = {f"{name}_SEEN": kind for name, kind in controls.items()}
    given = {"Y": TensorProto.INT64, "NEXT": TensorProto.INT64, **seen}
    outputs = [helper.make_tensor_value_info(n, kind, ["n", 1]) for n, kind in given.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


MODELS = {
    "rows": (config("direct {}", STATE + START), {"START": TensorProto.BOOL}),
    "oldest": (
        config("oldest { max_candidate_sequences: 128 }", STATE + IDS.format("TYPE_UINT64")),
        {"ID": TensorProto.UINT64},
    ),
    "named": (
        config("direct {}", STATE + IDS.format("TYPE_STRING"))
        + ' output { name: "ID_SEEN" data_type: TYPE_STRING dims: 1 }',
        {"ID": TensorProto.STRING},
    ),
    "narrow": (  # two sequences at a time
        config("direct {}", STATE + START, count=2).replace("size: 128", "size: 1"),
        {"START": TensorProto.BOOL},
    ),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("sequences")
    for name, (text, controls) in MODELS.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(text)
        (root / name / "1" / "model.onnx").write_bytes(adder(controls))
    return root


class OverHttp:
    """Asks over HTTP, some requests at once: in threads, each with a client of its own."""

    package = tritonclient.http

    def __init__(self, server):
        self.server = server
        self.here = threading.local()
        self.threads = ThreadPoolExecutor(8)

    def ask_all(self, asked):
        """Return the answer or the error to each (model, inputs, fields)."""
        return list(self.threads.map(self._ask, asked))

    def _ask(self, one):
        model, inputs, fields = one
        if not hasattr(self.here, "client"):
            self.here.client = self.package.InferenceServerClient(
                self.server.http, network_timeout=PATIENCE_S
            )
        try:
            return self.here.client.infer(model, inputs, **fields)
        except InferenceServerException as error:
            return error

    def close(self):
        self.threads.shutdown()
        del self.here  # and with it the clients


class OverStream:
    """Asks over one gRPC stream."""

    package = tritonclient.grpc

    def __init__(self, server):
        self.client = self.package.InferenceServerClient(server.grpc)
        self.answers = queue.Queue()
        self.client.start_stream(lambda result, error: self.answers.put(error or result))

    def ask_all(self, asked):
        """Return the answer or the error to each (model, inputs, fields): all in their order."""
        for model, inputs, fields in asked:
            self.client.async_stream_infer(model, inputs, **fields)
        return [self.answers.get(timeout=PATIENCE_S) for _ in asked]

    def close(self):
        self.client.stop_stream()
        self.client.close()


WAYS = {"http": ("own", OverHttp), "own": ("own", OverStream), "grpcio": ("grpcio", OverStream)}


@pytest.fixture(scope="module")
def server_of(start_for_module, root):
    """server_of(transport) is one server for all tests that want that transport."""
    started = {}

    def start(transport):
        if transport not in started:
            started[transport] = start_for_module(f"--grpc-transport={transport}", models=root)
        return started[transport]

    return start


@pytest.fixture(params=WAYS)
def client(request, server_of):
    transport, kind = WAYS[request.param]
    client = kind(server_of(transport))
    yield client
    client.close()


def asked(client, model, x, id=0, start=False, end=False):
    """Return a request that adds the numbers `x`, a batch of them if there are several."""
    given = client.package.InferInput("X", [len(x), 1], "INT64")
    given.set_data_from_numpy(np.array(x, np.int64).reshape(-1, 1))
    fields = {"sequence_id": id, "sequence_start": start, "sequence_end": end}
    return model, [given], fields


def one(client, *request, **fields):
    [answer] = client.ask_all([asked(client, *request, **fields)])
    return answer


def sum_of(answer):
    assert not isinstance(answer, InferenceServerException), answer
    return answer.as_numpy("Y").tolist()


def run_interleaved(client, model, ids, steps):
    """Run a sequence for each of `ids`, a request of each in turn; return the wrong sums."""
    rng = random.Random(7)
    values = {id: [rng.randrange(-(2**40), 2**40) for _ in range(steps)] for id in ids}
    sums = dict.fromkeys(ids, 0)
    wrong = []
    for step in range(steps):
        order = rng.sample(ids, len(ids))
        is_first, is_last = step == 0, step == steps - 1
        answers = client.ask_all(
            [asked(client, model, [values[id][step]], id, is_first, is_last) for id in order]
        )
        for id, answer in zip(order, answers, strict=True):
            sums[id] += values[id][step]
            if sum_of(answer) != [[sums[id]]]:
                wrong.append((id, step, sum_of(answer), sums[id]))
    return wrong


@pytest.mark.parametrize("model", ["rows", "oldest"])
def test_sums_of_interleaved_sequences_are_right(client, model):
    assert run_interleaved(client, model, range(1, 31), 3) == []


def test_sequences_may_have_names(client):
    ids = [f"guest {number}" for number in range(20)]
    assert run_interleaved(client, "named", ids, 3) == []
    answer = one(client, "named", [5], "ä" * 64, start=True, end=True)
    assert (sum_of(answer), answer.as_numpy("ID_SEEN")[0, 0]) == ([[5]], ("ä" * 64).encode())


def test_one_stream_may_begin_more_sequences_than_there_are_slots_for(server_of):
    for transport in ("own", "grpcio"):
        client = OverStream(server_of(transport))
        ids = range(1, 301)
        begins = [asked(client, "narrow", [id], id, start=True) for id in ids]
        ends = [asked(client, "narrow", [1], id, end=True) for id in ids]
        answers = client.ask_all(begins + ends)
        assert [sum_of(answer) for answer in answers[len(ids) :]] == [[[id + 1]] for id in ids]
        client.close()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["rows", "oldest"])
def test_500_sequences_over_4_instances_have_the_right_sums(client, model):
    assert run_interleaved(client, model, range(1, 501), 6) == []


@pytest.mark.slow
def test_500_sequences_with_names_have_the_right_sums(client):
    assert run_interleaved(client, "named", [f"{number:x}" for number in range(500)], 6) == []


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["direct {}", "oldest { max_candidate_sequences: 128 }"])
@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_remembers_its_sequences_has_the_right_sums(start, tmp_path, way, strategy):
    (tmp_path / "remembers" / "1").mkdir(parents=True)
    text = config(strategy, backend="python")
    (tmp_path / "remembers" / "config.pbtxt").write_text(text)
    (tmp_path / "remembers" / "1" / "model.py").write_text(REMEMBERS)
    transport, kind = WAYS[way]
    server = start(f"--grpc-transport={transport}", models=tmp_path)
    client = kind(server)
    try:
        assert run_interleaved(client, "remembers", range(1, 501), 4) == []
    finally:
        client.close()
    server.terminate()
    assert server.end() == 0


# --- what is wrong ---

NO_ID = "must specify a non-zero or non-empty correlation ID, which is the parameter sequence_id"
NO_START = "must specify the START flag on the first request of the sequence"
ROWS = "must specify batch-size 1 due to requirements of sequence batcher"
ID = "sequence batching control 'ID' data-type is"


@pytest.mark.parametrize(
    ("model", "x", "fields", "text"),
    [
        ("rows", [1], {}, NO_ID),
        ("rows", [1], {"id": 900}, NO_START),
        ("rows", [1], {"id": 900, "end": True}, NO_START),
        ("rows", [1, 2], {"id": 900, "start": True}, ROWS),
        ("oldest", [1], {"id": "me", "start": True}, f"{ID} 'BYTES', but model 'oldest' expects"),
        ("named", [1], {"id": 900, "start": True}, f"{ID} 'UINT64', but model 'named' expects"),
        ("named", [1], {"id": "x" * 129, "start": True}, "the sequence_id has 129 bytes"),
    ],
)
def test_what_belongs_to_no_sequence_is_refused(client, model, x, fields, text):
    error = one(client, model, x, **fields)
    assert isinstance(error, InferenceServerException)
    assert text in error.message()
    if isinstance(client, OverHttp):
        assert error.status() == "400"


def test_a_sequence_that_has_ended_takes_no_more(client):
    assert sum_of(one(client, "rows", [1], 7, start=True)) == [[1]]
    assert sum_of(one(client, "rows", [2], 7, end=True)) == [[3]]
    assert (
        "inference request for sequence 7 to model 'rows' must specify the START flag"
        in one(client, "rows", [4], 7).message()
    )


def test_a_second_start_begins_anew(client):
    assert sum_of(one(client, "rows", [1], 8, start=True)) == [[1]]
    assert sum_of(one(client, "rows", [5], 8, start=True)) == [[5]]
    assert sum_of(one(client, "rows", [2], 8, end=True)) == [[7]]


def test_what_is_refused_leaves_the_sequence_as_it_was(client):
    assert sum_of(one(client, "rows", [1], 9, start=True)) == [[1]]
    for model, inputs, fields in (
        asked(client, "rows", [1, 2], 9),
        asked(client, "rows", [], 9),
    ):
        [error] = client.ask_all([(model, inputs, fields)])
        assert isinstance(error, InferenceServerException)
    control = client.package.InferInput("START", [1, 1], "BOOL")
    control.set_data_from_numpy(np.array([[True]]))
    model, inputs, fields = asked(client, "rows", [1], 9)
    [error] = client.ask_all([(model, [*inputs, control], fields)])
    assert "has no input 'START'" in error.message()
    assert sum_of(one(client, "rows", [2], 9, end=True)) == [[3]]
