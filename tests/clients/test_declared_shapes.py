"""Models whose files declare outputs that they do not have: clients get the real ones."""

import json
import os
import re
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import onnx
import pytest
import tritonclient.grpc
import tritonclient.http
import tritonclient.utils.shared_memory as shm
from onnx import TensorProto, helper, numpy_helper
from tritonclient.utils import InferenceServerException

TRITON = {"http": tritonclient.http, "grpc": tritonclient.grpc}
WEIGHTS = np.arange(28, dtype=np.float32).reshape(4, 7)
X = np.arange(12, dtype=np.float32).reshape(3, 4)
DECLARED = {
    "other_size": ["n", 5],
    "batch_of_one": [1, 7],  # exported with one example, and no word of the outputs' dims
    "more_dims": ["n", 7, 1],
    "fewer_dims": ["n"],
    "no_rank": None,
}
BINDING = """
input { name: "x" data_type: TYPE_FP32 dims: [ -1, 4 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ -1, 5 ] }
"""
REPAIRED = """
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }
"""
JOINED = "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 2000 }"
IN_WORKER = 'parameters { key: "inferd_process" value: { string_value: "worker" } }'
ENSEMBLE = """
platform: "ensemble"
input {{ name: "x" data_type: TYPE_FP32 dims: [ -1, 4 ] }}
output {{ name: "y" data_type: TYPE_FP32 dims: [ {} ] }}
ensemble_scheduling {{ step {{
  model_name: "no_rank" model_version: -1
  input_map {{ key: "x" value: "x" }} output_map {{ key: "y" value: "y" }}
}} }}
"""


def hidden(given, wanted):
    """Nodes that only a run can tell the shape of: `wanted` is `given`."""
    node = helper.make_node
    return [
        node("Shape", [given], ["shape"]),
        node("ReduceSum", [given], ["sum"], keepdims=0),
        node("Mul", ["sum", "zero"], ["none"]),
        node("Cast", ["none"], ["whole"], to=TensorProto.INT64),
        node("Add", ["whole", "rank"], ["count"]),
        node("Slice", ["shape", "start", "count"], ["same"]),  # all of it
        node("Reshape", [given, "same"], [wanted]),
    ]


def write(root, name, nodes, declared, config=""):
    constants = {
        "weights": WEIGHTS,
        "zero": np.float32(0),
        "rank": np.array([9]),
        "start": np.array([0]),
        "eight": np.ones(8, np.float32),
    }
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, declared)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    (root / name / "1").mkdir(parents=True)
    opset = helper.make_opsetid("", 13)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    onnx.save(model, root / name / "1" / "model.onnx")
    if config:
        (root / name / "config.pbtxt").write_text(config)


PRODUCT = [helper.make_node("MatMul", ["x", "weights"], ["product"]), *hidden("product", "y")]
SUMS = [
    helper.make_node("ReduceSum", ["x"], ["all"], keepdims=0),
    helper.make_node("Mul", ["all", "eight"], ["sums"]),
    *hidden("sums", "y"),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("declared")
    for name, declared in DECLARED.items():
        write(root, name, PRODUCT, declared)
        write(root, f"{name}_worker", PRODUCT, declared, IN_WORKER)
    write(root, "cached", PRODUCT, ["n", 5], "response_cache { enable: true }")
    write(root, "binding", PRODUCT, ["n", 5], BINDING)
    write(root, "repaired", PRODUCT, ["n", 5], REPAIRED)
    write(root, "repaired_batch", PRODUCT, [1, 7], REPAIRED)
    write(root, "joined", PRODUCT, None, JOINED)
    write(root, "joined_worker", PRODUCT, None, JOINED + IN_WORKER)
    write(root, "sums", SUMS, None, JOINED)
    write(root, "sums_worker", SUMS, None, JOINED + IN_WORKER)
    for name, dims in (("ensemble", "-1, 7"), ("binding_ensemble", "-1, 5")):
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(ENSEMBLE.format(dims))
    return root


@pytest.fixture(scope="module")
def running(start_for_module, models):
    return start_for_module("--cache-config=local,size=1048576", models=models)


@pytest.fixture(params=TRITON)
def client(request, running):
    module = TRITON[request.param]
    address = getattr(running, request.param)
    with closing(module.InferenceServerClient(address)) as made:
        made.module = module
        yield made


def infer(client, model, array, output=None):
    given = client.module.InferInput("x", list(array.shape), "FP32")
    given.set_data_from_numpy(array)
    return client.infer(model, [given], outputs=output and [output])


@pytest.mark.parametrize("where", ["", "_worker"])
@pytest.mark.parametrize("declared", DECLARED)
def test_the_real_shape_is_answered_and_told_once(client, running, declared, where):
    model = declared + where
    for _ in range(6):  # the last ones run through bound memory
        got = infer(client, model, X).as_numpy("y")
        assert got.shape == (3, 7)
        assert got.tolist() == (X @ WEIGHTS).tolist()
    told = f"model '{model}' produced output 'y' as FP32 .3, 7., its file declares"
    running.wait_for(told)
    assert len(re.findall(told, running.said)) == 1


@pytest.mark.parametrize("model", ["cached", "repaired", "repaired_batch", "ensemble"])
def test_so_it_is_from_the_cache_repaired_and_behind_an_ensemble(client, model):
    for _ in range(2):
        assert infer(client, model, X).as_numpy("y").tolist() == (X @ WEIGHTS).tolist()


@pytest.mark.parametrize(("model", "says"), [("binding", 5), ("binding_ensemble", 5)])
def test_dims_that_somebody_wrote_are_binding(client, model, says):
    text = (
        rf"model '{model}' produced output 'y' as FP32 \[3, 7\], "
        rf"its configuration says FP32 \[-1, {says}\]"
    )
    with pytest.raises(InferenceServerException, match=text):
        infer(client, model, X)


def test_classes_are_those_of_the_real_rows(client):
    wanted = client.module.InferRequestedOutput("y", class_count=2)
    got = infer(client, "other_size", X, wanted).as_numpy("y")
    assert got.shape == (3, 2)
    assert [one.decode().split(":")[1] for one in got[:, 0]] == ["6", "6", "6"]


def test_shared_memory_takes_the_real_bytes(client):
    size = X.shape[0] * 7 * 4
    region = shm.create_shared_memory_region("real", f"/declared_shapes_{os.getpid()}", size)
    try:
        client.register_system_shared_memory("real", f"/declared_shapes_{os.getpid()}", size)
        wanted = client.module.InferRequestedOutput("y")
        wanted.set_shared_memory("real", size)
        infer(client, "other_size", X, wanted)
        got = shm.get_contents_as_numpy(region, np.float32, [3, 7])
        assert got.tolist() == (X @ WEIGHTS).tolist()
    finally:
        client.unregister_system_shared_memory("real")
        shm.destroy_shared_memory_region(region)


def test_the_older_api_says_the_real_dims(running):
    head = 'batch_size: 3 input { name: "x" } output { name: "y" }'
    request = urllib.request.Request(
        f"http://{running.http}/api/infer/other_size",
        X.tobytes(),
        {"NV-InferRequest": head, "Content-Type": "application/octet-stream"},
    )
    with urllib.request.urlopen(request, None, 30) as answer:
        assert np.frombuffer(answer.read(84), np.float32).tolist() == (X @ WEIGHTS).ravel().tolist()
        assert "dims: 7" in answer.headers["NV-InferResponse"]


@pytest.mark.parametrize("where", ["", "_worker"])
@pytest.mark.parametrize("model", ["joined", "sums"])
def test_clients_side_by_side_get_their_own(running, model, where):
    """`sums` answers eight rows, whatever the batch, which may be 8 rows, too."""

    def ask(number):
        random, found = np.random.default_rng(number), Counter()
        with closing(tritonclient.http.InferenceServerClient(running.http)) as client:
            client.module = tritonclient.http
            for _ in range(20):
                rows = int(random.integers(1, 5))
                x = random.integers(0, 9, (rows, 4)).astype(np.float32)
                want = x @ WEIGHTS if model == "joined" else np.full(8, x.sum())
                got = infer(client, model + where, x).as_numpy("y")
                found[np.array_equal(got.ravel(), want.ravel())] += 1
        return found

    infer_alone = np.zeros((1, 4), np.float32)
    with closing(tritonclient.http.InferenceServerClient(running.http)) as client:
        client.module = tritonclient.http
        infer(client, model + where, infer_alone)
    with ThreadPoolExecutor(6) as clients:
        found = sum(clients.map(ask, range(6)), Counter())
    assert found == {True: 120}


def test_the_rank_that_nobody_declares_is_not_shown_as_a_scalar(running):
    with urllib.request.urlopen(f"http://{running.http}/v2/models/no_rank", None, 30) as answer:
        [output] = json.loads(answer.read())["outputs"]
    assert output["shape"] == [-1]
