"""Metadata over REST (V2 REST: Server Metadata, Model Metadata), and errors of any call."""

import pytest
from conformance.checks import check_error, check_ok, check_refused
from conformance.points import point
from conformance.rest import Rest

EXTENSIONS = ("binary_tensor_data", "parameters")
"""The extensions the rest of this suite proves; more may be listed."""


@point(9, "MUST", "GET /v2: 200; name, version strings, extensions array")
def test_server_metadata_has_its_three_fields(rest: Rest):
    body = check_ok(rest.get("/v2"))
    assert isinstance(body["name"], str) and body["name"]
    assert isinstance(body["version"], str) and body["version"]
    assert all(isinstance(extension, str) for extension in body["extensions"])


@point(10, "SHOULD", "GET /v2: extensions contain binary_tensor_data and others implemented")
@pytest.mark.parametrize("extension", EXTENSIONS)
def test_server_metadata_names_the_extensions(rest: Rest, extension: str):
    assert extension in check_ok(rest.get("/v2"))["extensions"]


@point(11, "MUST", "GET /v2/models/m: name, platform, inputs, outputs with their three fields")
def test_model_metadata_has_its_fields(rest: Rest):
    body = check_ok(rest.get("/v2/models/m"))
    assert body["name"] == "m"
    assert isinstance(body["platform"], str) and body["platform"]
    for key, names in (("inputs", {"INPUT0", "INPUT1"}), ("outputs", {"OUTPUT0", "OUTPUT1"})):
        assert {tensor["name"] for tensor in body[key]} == names
        assert all(tensor["datatype"] == "FP32" for tensor in body[key])
        assert all(isinstance(tensor["shape"], list) for tensor in body[key])


@point(12, "MUST", 'GET /v2/models/m: versions ["1","3"], shape [-1,4]')
def test_model_metadata_lists_versions_and_the_batch_dim(rest: Rest):
    body = check_ok(rest.get("/v2/models/m"))
    assert body["versions"] == ["1", "3"]
    assert all(tensor["shape"] == [-1, 4] for tensor in body["inputs"] + body["outputs"])


@point(13, "MUST", "GET /v2/models/m/versions/3: 200")
def test_metadata_of_one_version(rest: Rest):
    assert check_ok(rest.get("/v2/models/m/versions/3"))["name"] == "m"


@point(14, "MUST", "GET /v2/models/nope: 404 + error")
def test_metadata_of_an_unknown_model(rest: Rest):
    check_refused(rest.get("/v2/models/nope"), 404, naming="nope")


@point(15, "MUST", "GET /v2/models/m/versions/9: 404 + error")
def test_metadata_of_an_unknown_version(rest: Rest):
    check_refused(rest.get("/v2/models/m/versions/9"), 404, naming="9")


@point(16, "MUST", "GET /v2/models/all: BYTES shown as BYTES, never STRING")
def test_metadata_calls_strings_bytes(rest: Rest):
    body = check_ok(rest.get("/v2/models/all"))
    found = {tensor["name"]: tensor["datatype"] for tensor in body["inputs"] + body["outputs"]}
    assert found["IN_BYTES"] == found["OUT_BYTES"] == "BYTES"


@point(17, "SHOULD", "POST /v2/health/live: 405 + error JSON")
def test_health_takes_no_post(rest: Rest):
    check_refused(rest.request("POST", "/v2/health/live"), 405)


@point(18, "SHOULD", "GET /v2/nothing: 404 + error JSON")
def test_an_unknown_path_is_not_found(rest: Rest):
    check_refused(rest.get("/v2/nothing"), 404)


@point(19, "SHOULD", "GET /v2/models/%6D: same as m")
def test_the_path_is_percent_decoded(rest: Rest):
    assert check_ok(rest.get("/v2/models/%6D")) == check_ok(rest.get("/v2/models/m"))


@point(20, "MUST", "any error: Content-Type exactly application/json, object with string error")
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v2/models/nope", b""),
        ("GET", "/v2/models/nope/ready", b""),
        ("GET", "/v2/models/m/versions/9", b""),
        ("GET", "/v2/nothing", b""),
        ("GET", "/nothing", b""),
        ("POST", "/v2", b""),
        ("DELETE", "/v2/models/m/infer", b""),
        ("POST", "/v2/models/nope/infer", b'{"inputs":[]}'),
        ("POST", "/v2/models/m/infer", b"{"),
        ("POST", "/v2/models/m/infer", b""),
    ],
)
def test_every_error_has_the_error_object(rest: Rest, method: str, path: str, body: bytes):
    response = rest.request(method, path, body)
    assert response.status >= 400
    check_error(response)
