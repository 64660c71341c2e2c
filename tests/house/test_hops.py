"""The path of one request, written down; adding a hop means editing these lists, with a reason."""

import asyncio
import json
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

from inferd.engine.engine import Engine
from inferd.transport.http_message import HttpRequest
from inferd.transport.http_routes import HttpRoutes
from inferd.wire.v2_rest import JsonRules

TO_THE_ENGINE_AND_BACK = [
    "engine.Engine.infer",
    "engine.Engine._find",
    "served.Served.check_request",
    "dynamic.DynamicScheduler.run",  # or DirectScheduler.run, in a model that does not batch
    "execution.Execution.run_inline",
    "execution._size_class",
    "instance.OnnxInstance.execute",
    "instance.OnnxInstance._answer_plain",
    "served.Served.check_response",
    "served._are_named",
    "stats.Counts.add_success",  # every statistic and metric of the request, in one call
]
JSON_HOPS = [
    "http_routes.HttpRoutes.answer",
    "http_routes.HttpRoutes.infer",
    "v2_rest.V2Rest.decode_infer_request",
    "json_document.JsonReader.read_fast",
    "v2_rest.V2Rest._request",
    "json_data.decode_flat",  # once for each input
    "json_data.decode_flat",
    *TO_THE_ENGINE_AND_BACK,
    "v2_rest.V2Rest.encode_infer_response",
    "json_data.encode_data",  # once for each output
    "json_data.encode_data",
]
BINARY_INPUT = [
    "v2_rest.V2Rest._described_input",
    "v2_binary.Blobs.take",
]
BINARY_OUTPUT = ["tensor.Tensor.view", "tensor.flat_view"]
BINARY_HOPS = [
    "http_routes.HttpRoutes.answer",
    "http_routes.HttpRoutes.infer",
    "v2_binary.json_length",
    "v2_rest.V2Rest.decode_infer_request",
    "json_document.JsonReader.read_fast",
    "v2_rest.V2Rest._request",
    *BINARY_INPUT,
    *BINARY_INPUT,
    "v2_rest_parameters.set_parameters",  # binary_data_output
    "v2_rest_parameters._set_binary_output",
    "v2_rest_parameters._boolean",
    *TO_THE_ENGINE_AND_BACK,
    "v2_rest.V2Rest.encode_infer_response",
    *BINARY_OUTPUT,
    *BINARY_OUTPUT,
]

MOST_RUNS = 5000
OVERRUN = "execution.Execution._note_overrun"
NAMES = ("INPUT0", "INPUT1")
VALUES = np.arange(16, dtype=np.int32).reshape(1, 16)


@pytest.fixture
def repository(tmp_path):
    """The model every benchmark asks: sum and difference of two INT32 [n, 16]."""
    kind, shape = TensorProto.INT32, ["n", 16]
    outputs = ("OUTPUT0", "OUTPUT1")
    nodes = [
        helper.make_node(operator, NAMES, [output])
        for operator, output in zip(("Add", "Sub"), outputs, strict=True)
    ]
    values = {name: helper.make_tensor_value_info(name, kind, shape) for name in (*NAMES, *outputs)}
    graph = helper.make_graph(
        nodes, "graph", [values[name] for name in NAMES], [values[name] for name in outputs]
    )
    opsets = [helper.make_opsetid("", 21)]
    folder = tmp_path / "addsub" / "1"
    folder.mkdir(parents=True)
    content = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    (folder / "model.onnx").write_bytes(content)
    return tmp_path


def http_request(inputs, binary=b""):
    document = {"inputs": inputs}
    if binary:
        document["parameters"] = {"binary_data_output": True}
    head = json.dumps(document).encode()
    length = {b"inference-header-content-length": str(len(head)).encode()} if binary else {}
    target = b"/v2/models/addsub/infer"
    return HttpRequest(b"POST", target, length, True, False, memoryview(head + binary))


def json_request():
    data = VALUES.ravel().tolist()
    return http_request(
        [{"name": n, "datatype": "INT32", "shape": [1, 16], "data": data} for n in NAMES]
    )


def binary_request():
    size = {"binary_data_size": VALUES.nbytes}
    return http_request(
        [{"name": n, "datatype": "INT32", "shape": [1, 16], "parameters": size} for n in NAMES],
        VALUES.tobytes() * 2,
    )


def calls_of(function):
    """Return what `function` returns, and the functions of ours that ran, in order."""
    seen = []

    def note(frame, event, _arg):
        module = frame.f_globals.get("__name__", "")
        name = frame.f_code.co_qualname
        # Python 3.12 has no frames for comprehensions any more.
        if event == "call" and module.startswith("inferd.") and not name.endswith(">"):
            seen.append(f"{module.rpartition('.')[2]}.{name}")

    sys.setprofile(note)
    try:
        return function(), seen
    finally:
        sys.setprofile(None)


async def answered_inline(engine, request):
    """Ask until the model has moved onto the event loop; return that answer, and its calls.

    On a busy machine a run may take long by no fault of its own; then another one tells.
    """
    routes = HttpRoutes(engine, JsonRules(True, "tokens", 2**20), not_ready_status=400)

    def answer():
        answering = routes.answer(request)
        try:
            answering.send(None)
        except StopIteration as done:
            return done.value
        answering.close()
        return None  # it waited for a thread

    for _ in range(MOST_RUNS):
        found, seen = calls_of(answer)
        if found is None:
            await routes.answer(request)
        elif OVERRUN not in seen:
            return found, seen
    msg = f"after {MOST_RUNS} runs the model is still in threads"
    raise AssertionError(msg)


@pytest.mark.parametrize(
    ("request_", "hops"), [(json_request(), JSON_HOPS), (binary_request(), BINARY_HOPS)]
)
def test_a_request_takes_these_hops_and_no_others(repository, request_, hops):
    async def go():
        engine = Engine()
        await engine.load_all([repository])
        found = await answered_inline(engine, request_)
        await engine.close(30)
        return found

    answer, seen = asyncio.run(go())
    assert answer.status == 200
    body = b"".join(answer.buffers)
    total = 2 * VALUES
    assert (total.tobytes() in body) or json.loads(body)["outputs"][0]["data"] == total[0].tolist()
    assert seen == hops
