"""Statistics as tritonclient reads them, before and after requests of a known number."""

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

COUNTS = {"inference_count": 6, "execution_count": 2}
PHASES = ["success", "queue", "compute_input", "compute_infer", "compute_output"]


@pytest.fixture
def over_http(server):
    with tritonclient.http.InferenceServerClient(server.http) as client:
        yield client


@pytest.fixture
def over_grpc(server):
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        yield client


def infer(module, client, batch_size):
    data = np.ones((batch_size, 16), np.int32)
    inputs = [module.InferInput(name, data.shape, "INT32") for name in ("INPUT0", "INPUT1")]
    for tensor in inputs:
        tensor.set_data_from_numpy(data)
    client.infer("add_sub", inputs)


def ask_twice(module, client):
    for _ in range(2):
        infer(module, client, 3)


def batches_of(row):
    return {batch["batch_size"]: batch["compute_infer"]["count"] for batch in row["batch_stats"]}


def test_http_tells_what_http_asked_for(over_http):
    [before] = over_http.get_inference_statistics("add_sub", "1")["model_stats"]
    ask_twice(tritonclient.http, over_http)
    [after] = over_http.get_inference_statistics("add_sub", "1")["model_stats"]
    assert {name: after[name] - before[name] for name in COUNTS} == COUNTS
    assert after["last_inference"] > 0
    for phase in PHASES:
        found = after["inference_stats"][phase]
        assert found["count"] - before["inference_stats"][phase]["count"] == 2
    ns = {phase: after["inference_stats"][phase]["ns"] for phase in PHASES}
    assert ns["success"] >= sum(ns[phase] for phase in PHASES[1:])
    assert ns["compute_infer"] > 0
    assert batches_of(after)[3] - batches_of(before).get(3, 0) == 2


def test_grpc_tells_what_grpc_asked_for(over_grpc):
    [before] = over_grpc.get_inference_statistics("add_sub").model_stats
    ask_twice(tritonclient.grpc, over_grpc)
    [after] = over_grpc.get_inference_statistics("add_sub").model_stats
    assert {name: getattr(after, name) - getattr(before, name) for name in COUNTS} == COUNTS
    assert after.inference_stats.success.count - before.inference_stats.success.count == 2
    assert {row.batch_size for row in after.batch_stats} >= {3}


def test_both_tell_of_all_models(over_http, over_grpc):
    names = {row["name"] for row in over_http.get_inference_statistics()["model_stats"]}
    assert {"add_sub", "slow", "three"} <= names
    assert {row.name for row in over_grpc.get_inference_statistics().model_stats} == names


@pytest.mark.parametrize("client", ["over_http", "over_grpc"])
def test_a_model_that_is_not_there_is_an_error(request, client):
    with pytest.raises(InferenceServerException, match="nope"):
        request.getfixturevalue(client).get_inference_statistics("nope")
