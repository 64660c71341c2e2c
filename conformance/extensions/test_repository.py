"""The model repository and model configuration extensions."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from conformance.bodies import ok_body
from conformance.checks import check_error, check_ok, values
from conformance.points import point
from conformance.rest import Rest
from conformance.rpc import Rpc
from tritonclient.grpc import service_pb2 as pb

REPOS = Path(__file__).parents[1] / "repos"
INDEX = "/v2/repository/index"
DEADLINE_S = 10.0
SENT = {
    "backend": "onnxruntime",
    "max_batch_size": 8,
    "input": [{"name": f"INPUT{i}", "data_type": "TYPE_FP32", "dims": [4]} for i in (0, 1)],
    "output": [{"name": f"OUTPUT{i}", "data_type": "TYPE_FP32", "dims": [4]} for i in (0, 1)],
}


def rows(rest: Rest, body: bytes = b"") -> dict[tuple[str, str | None], dict[str, Any]]:
    """Return the index by name and version."""
    response = rest.request("POST", INDEX, body)
    assert response.status == 200, response.body
    found = response.json()
    assert isinstance(found, list), f"the index is {found!r}"
    return {(row["name"], row.get("version")): row for row in found}


def control(rest: Rest, verb: str, model: str, **parameters: Any) -> Any:
    """Load or unload a model."""
    body = json.dumps({"parameters": parameters}).encode() if parameters else b""
    return rest.request("POST", f"/v2/repository/models/{model}/{verb}", body)


@point(102, "SHOULD", "POST /v2/repository/index, empty body: 200 array")
def test_the_index_is_an_array_of_all_versions(rest: Rest):
    found = rows(rest)
    assert {("m", "1"), ("m", "3"), ("all", "1")} <= found.keys()
    assert all(row["state"] == "READY" for row in found.values())


@point(102, "SHOULD", "POST /v2/repository/index, empty body: 200 array")
def test_the_index_is_the_same_over_grpc(rest: Rest, rpc: Rpc):
    models = rpc.call("RepositoryIndex", pb.RepositoryIndexRequest()).models
    found = {(model.name, model.version): model.state for model in models}
    assert found == {key: row["state"] for key, row in rows(rest).items()}


@point(103, "SHOULD", "index {ready: true}: only READY rows")
def test_the_index_of_ready_models_has_no_others(unready: Rest):
    assert rows(unready)["broken", "1"]["state"] == "UNAVAILABLE"
    assert rows(unready)["broken", "1"]["reason"]
    found = rows(unready, b'{"ready": true}')
    assert found.keys() == {("single", "1")}


@point(104, "SHOULD", "load of a known model: 200; of an unknown one: an error")
def test_a_known_model_is_loaded_and_an_unknown_one_is_not(explicit: Rest):
    assert control(explicit, "load", "m").status == 200
    assert values(explicit.infer("m", ok_body()), "OUTPUT0") == [2, 3, 4, 5]
    refused = control(explicit, "load", "nope")
    assert refused.status >= 400
    assert "nope" in check_error(refused)


@point(105, "SHOULD", "load with config and file:1/...: 200, the model answers")
def test_a_model_may_be_sent(explicit: Rest):
    content = (REPOS / "v2" / "m" / "1" / "model.onnx").read_bytes()
    files = {"file:1/model.onnx": base64.b64encode(content).decode()}
    assert control(explicit, "load", "sent", config=json.dumps(SENT), **files).status == 200
    assert values(explicit.infer("sent", ok_body()), "OUTPUT0") == [2, 3, 4, 5]
    assert control(explicit, "unload", "sent").status == 200


@point(106, "SHOULD", "unload with unload_dependents: 200, later UNAVAILABLE, unloaded")
@pytest.mark.parametrize("dependents", [True, False])
def test_an_unloaded_model_is_unavailable(explicit: Rest, dependents: bool):  # noqa: FBT001
    assert control(explicit, "load", "single").status == 200
    assert control(explicit, "unload", "single", unload_dependents=dependents).status == 200
    deadline = time.monotonic() + DEADLINE_S
    while (row := rows(explicit)["single", "1"])["state"] == "UNLOADING":
        assert time.monotonic() < deadline
    assert (row["state"], row["reason"]) == ("UNAVAILABLE", "unloaded")
    assert explicit.get("/v2/models/single/ready").status >= 400


@point(107, "SHOULD", "GET .../config: max_batch_size 8, TYPE_FP32")
@pytest.mark.parametrize("path", ["/v2/models/m/config", "/v2/models/m/versions/1/config"])
def test_a_model_tells_its_configuration(rest: Rest, path: str):
    config = check_ok(rest.get(path))
    assert (config["name"], config["max_batch_size"]) == ("m", 8)
    for key, names in (("input", {"INPUT0", "INPUT1"}), ("output", {"OUTPUT0", "OUTPUT1"})):
        assert {tensor["name"] for tensor in config[key]} == names
        assert all(tensor["data_type"] == "TYPE_FP32" for tensor in config[key])
        assert all(tensor["dims"] == [4] for tensor in config[key])


@point(107, "SHOULD", "GET .../config: max_batch_size 8, TYPE_FP32")
def test_the_configuration_is_the_same_over_grpc(rpc: Rpc):
    config = rpc.call("ModelConfig", pb.ModelConfigRequest(name="m")).config
    assert (config.name, config.max_batch_size) == ("m", 8)
    assert {(tensor.name, tensor.data_type) for tensor in config.input} == {
        ("INPUT0", pb.model__config__pb2.TYPE_FP32),
        ("INPUT1", pb.model__config__pb2.TYPE_FP32),
    }
