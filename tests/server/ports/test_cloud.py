"""The ports of SageMaker, Vertex AI and health checks, asked over sockets as others do."""

import asyncio
import http.client
import json
import re
import socket
import struct

import pytest
from server_thread import server_in_thread

from inferd.config.options.access import hash_key
from inferd.config.server import ServerConfig
from inferd.errors import InvalidConfig
from inferd.server.server import Server

SAGEMAKER = {"allow_sagemaker": True, "sagemaker_port": 0}
VERTEX_AI = {"allow_vertex_ai": True, "vertex_ai_port": 0}
SAGEMAKER_TYPE = "application/vnd.sagemaker-triton.binary+json;json-header-size="
VERTEX_AI_TYPE = "application/vnd.vertex-ai-triton.binary+json;json-header-size="
REDIRECT = "X-Vertex-Ai-Triton-Redirect"

REPEAT = """
backend: "repeat"
max_batch_size: 0
model_transaction_policy { decoupled: true }
input [ { name: "IN" data_type: TYPE_INT32 dims: -1 },
        { name: "DELAY" data_type: TYPE_UINT32 dims: -1 },
        { name: "WAIT" data_type: TYPE_UINT32 dims: 1 } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: 1 },
         { name: "IDX" data_type: TYPE_UINT32 dims: 1 } ]
"""


@pytest.fixture
def config(repository, echo):
    """config(option=value) is a server with one model "m", on ports the system chooses."""
    models = str(repository(m=echo()))

    def build(**more):
        given = {"allow_grpc": False, "allow_metrics": False, "http_port": 0}
        return ServerConfig(**(given | {"model_repository": (models,)} | more))

    return build


def send(port, method, path, body=None, headers=None):
    """Return status, headers and body of one answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def binary_request(value):
    """Return JSON and tensor of a request to the echo model, and how long the JSON is."""
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1]}
    inputs = [tensor | {"parameters": {"binary_data_size": 4}}]
    outputs = [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": inputs, "outputs": outputs}).encode()
    return head + struct.pack("<f", value), len(head)


def check_binary_answer(headers, body, start, value):
    declared = headers["Content-Type"]
    assert declared.startswith(start)
    size = int(declared.removeprefix(start))
    assert json.loads(body[:size])["model_name"] == "m"
    assert struct.unpack("<f", body[size:]) == (value,)


# --- health ---


def test_health_checks_have_a_port_of_their_own_beside_that_of_http(config, body):
    with server_in_thread(config(http_health_port=0)) as server:
        port = server.cloud_ports["Health"]
        assert ("Health", f"http://127.0.0.1:{port}") in server.places()
        for path in (
            "/v2/health/live",
            "/v2/health/ready",
            "/v2/models/m/ready",
            "/v2/models/m/versions/1/ready",
            "/api/health/live",
            "/api/health/ready",
        ):
            assert send(port, "GET", path)[0] == 200
            assert send(server.http_port, "GET", path)[0] == 200
        assert send(port, "GET", "/api/health/ready")[1]["NV-Status"].startswith("code: SUCCESS")
        assert send(port, "POST", "/v2/models/m/infer", body)[0] == 404
        assert send(port, "GET", "/api/status")[0] == 404
    assert server.cloud_ports == {}


def test_without_the_old_api_its_health_is_not_at_the_port_of_health_checks(config):
    with server_in_thread(config(http_health_port=0, allow_trtis=False)) as server:
        port = server.cloud_ports["Health"]
        assert send(port, "GET", "/v2/health/live")[0] == 200
        assert send(port, "GET", "/api/health/live")[0] == 404


def test_health_checks_at_the_port_of_http_need_no_other(config):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with server_in_thread(config(http_port=port, http_health_port=port)) as server:
        assert send(port, "GET", "/v2/health/ready")[0] == 200
        assert server.cloud_ports == {}


# --- SageMaker ---


def test_sagemaker_has_a_port_of_its_own_with_ping_and_invocations(config, body):
    with server_in_thread(config(**SAGEMAKER)) as server:
        port = server.cloud_ports["SageMaker"]
        assert ("SageMaker", f"http://127.0.0.1:{port}") in server.places()
        assert send(port, "GET", "/ping")[::2] == (200, b"")
        status, headers, answer = send(port, "POST", "/invocations", body)
        assert (status, headers["Content-Type"]) == (200, "application/json")
        assert json.loads(answer)["outputs"][0]["data"] == [7.0]
        assert send(server.http_port, "GET", "/ping")[0] == 404
        assert send(port, "GET", "/v2")[0] == 404
    assert server.cloud_ports == {}


def test_sagemakers_binary_type_says_where_the_json_ends_both_ways(config):
    body, size = binary_request(2.5)
    with server_in_thread(config(**SAGEMAKER)) as server:
        port = server.cloud_ports["SageMaker"]
        declared = {"Content-Type": f"{SAGEMAKER_TYPE}{size}"}
        status, headers, answer = send(port, "POST", "/invocations", body, declared)
    assert status == 200
    check_binary_answer(headers, answer, SAGEMAKER_TYPE, 2.5)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (SAGEMAKER_TYPE, "Content-Type is .* expected .*json-header-size=BYTES"),
        (f"{SAGEMAKER_TYPE}99999", "size should be in range"),
    ],
)
def test_a_wrong_size_in_the_content_type_is_bad_request_and_the_server_goes_on(
    config, body, declared, words
):
    with server_in_thread(config(**SAGEMAKER)) as server:
        port = server.cloud_ports["SageMaker"]
        headers = {"Content-Type": declared}
        status, _, answer = send(port, "POST", "/invocations", body, headers)
        assert status == 400
        assert re.search(words, json.loads(answer)["error"])
        assert send(port, "POST", "/invocations", body)[0] == 200


def test_wrong_methods_paths_and_bodies_have_errors_as_json(config):
    with server_in_thread(config(**SAGEMAKER)) as server:
        port = server.cloud_ports["SageMaker"]
        status, headers, answer = send(port, "GET", "/invocations")
        assert (status, headers["Allow"]) == (405, "POST")
        assert "Method Not Allowed" in json.loads(answer)["error"]
        assert "nothing at" in json.loads(send(port, "GET", "/nowhere")[2])["error"]
        status, _, answer = send(port, "POST", "/invocations", b"{")
        assert status == 400 and json.loads(answer)["error"]


def test_a_port_that_is_taken_is_named_with_its_option(config):
    async def serve():
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            server = Server(config(allow_sagemaker=True, sagemaker_port=port))
            with pytest.raises(InvalidConfig, match=r"for SageMaker: address .*--sagemaker-port"):
                await server.start()
            return server

    assert asyncio.run(serve()).places() == []


def test_ping_says_no_before_models_have_loaded_and_while_the_server_drains(config):
    async def status(server):
        port = server.cloud_ports["SageMaker"]
        return (await asyncio.to_thread(send, port, "GET", "/ping"))[0]

    async def serve():
        server = Server(config(**SAGEMAKER))
        await server.open()
        opened = await status(server)
        await server.load()
        loaded = await status(server)
        drain = asyncio.create_task(server.drain(timeout_s=60, delay_s=60))
        await asyncio.sleep(0)
        draining = await status(server)
        drain.cancel()
        await server.stop()
        return opened, loaded, draining

    assert asyncio.run(serve()) == (503, 200, 503)


def test_limits_of_http_hold_at_a_platforms_port(config):
    with server_in_thread(config(http_max_body_bytes=10, **SAGEMAKER)) as server:
        port = server.cloud_ports["SageMaker"]
        status, _, answer = send(port, "POST", "/invocations", b"x" * 11)
    assert status == 413 and "10 bytes" in json.loads(answer)["error"]


def test_api_keys_are_required_at_a_platforms_port_but_for_health(config, tmp_path, body):
    keys = tmp_path / "keys"
    infer, tell = (hash_key(key).hex() for key in (b"secret", b"other"))
    keys.write_text(f"me:{infer}:inference\nyou:{tell}:model-config\n")
    with server_in_thread(config(api_key_file=str(keys), **SAGEMAKER, **VERTEX_AI)) as server:
        for port, path in (
            (server.cloud_ports["SageMaker"], "/invocations"),
            (server.cloud_ports["Vertex AI"], "/predict"),
        ):
            assert send(port, "POST", path, body)[0] == 401
            assert send(port, "POST", path, body, {"X-Api-Key": "secret"})[0] == 200
        led = {REDIRECT: "v2/models/m/config"}
        port = server.cloud_ports["Vertex AI"]
        for key, expected in (
            ({}, 401),
            ({"X-Api-Key": "secret"}, 403),
            ({"X-Api-Key": "other"}, 200),
        ):
            assert send(port, "POST", "/predict", b"", led | key)[0] == expected
        assert send(server.cloud_ports["SageMaker"], "GET", "/ping")[0] == 200


@pytest.fixture
def several(repository, echo):
    """several(option=value) is a server with the models "a", "b" and a decoupled "r"."""
    models = str(repository(a=echo(), b=echo(), r=REPEAT))

    def build(**more):
        given = {"allow_grpc": False, "allow_metrics": False, "http_port": 0}
        return ServerConfig(**(given | {"model_repository": (models,)} | more))

    return build


def test_of_several_models_one_must_be_the_default(several, body):
    with server_in_thread(several(**SAGEMAKER)) as server:
        port = server.cloud_ports["SageMaker"]
        status, _, answer = send(port, "POST", "/invocations", body)
        assert status == 400
        assert "there are 3: --sagemaker-default-model" in json.loads(answer)["error"]
    with server_in_thread(several(sagemaker_default_model="b", **SAGEMAKER)) as server:
        port = server.cloud_ports["SageMaker"]
        status, _, answer = send(port, "POST", "/invocations", body)
        assert (status, json.loads(answer)["model_name"]) == (200, "b")


def test_a_default_model_that_is_not_there_is_not_found(several, body):
    with server_in_thread(several(sagemaker_default_model="no/where", **SAGEMAKER)) as server:
        port = server.cloud_ports["SageMaker"]
        status, _, answer = send(port, "POST", "/invocations", body)
    assert status == 404 and "no/where" in json.loads(answer)["error"]


def test_invocations_may_stream_what_a_decoupled_model_generates(several):
    stream = {"sagemaker_default_model": "r", "sagemaker_inference_type": "generate_stream"}
    with server_in_thread(several(**stream, **SAGEMAKER)) as server:
        port = server.cloud_ports["SageMaker"]
        requested = json.dumps({"IN": [4, 5], "DELAY": [0, 0], "WAIT": 0}).encode()
        status, headers, answer = send(port, "POST", "/invocations", requested)
    assert (status, headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
    events = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith(b"data: ")]
    assert [event["OUT"] for event in events] == [4, 5]


# --- Vertex AI ---


def test_vertex_ai_has_a_health_check_and_predictions_where_it_wants_them(config, body):
    routes = {
        "vertex_ai_health_route": "/v1/endpoints/1/deployedModels/2",
        "vertex_ai_predict_route": "/v1/endpoints/1/deployedModels/2:predict",
    }
    with server_in_thread(config(allow_http=False, **routes, **VERTEX_AI)) as server:
        port = server.cloud_ports["Vertex AI"]
        assert server.places() == [("Vertex AI", f"http://127.0.0.1:{port}")]
        assert send(port, "GET", routes["vertex_ai_health_route"])[::2] == (200, b"")
        status, _, answer = send(port, "POST", routes["vertex_ai_predict_route"], body)
        assert status == 200
        assert json.loads(answer)["outputs"][0]["data"] == [7.0]
        assert send(port, "POST", "/predict", body)[0] == 404


def test_vertex_ais_binary_type_says_where_the_json_ends_both_ways(config):
    body, size = binary_request(-1.0)
    declared = {"Content-Type": f"{VERTEX_AI_TYPE}{size}"}
    with server_in_thread(config(**VERTEX_AI)) as server:
        port = server.cloud_ports["Vertex AI"]
        status, headers, answer = send(port, "POST", "/predict", body, declared)
        assert status == 200
        check_binary_answer(headers, answer, VERTEX_AI_TYPE, -1.0)
        redirected = declared | {REDIRECT: "v2/models/m/versions/1/infer"}
        status, headers, answer = send(port, "POST", "/predict", body, redirected)
        assert status == 200
        check_binary_answer(headers, answer, VERTEX_AI_TYPE, -1.0)


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ["v2/models/m/config", "/v2/models/m/config"])
def test_a_prediction_may_be_led_to_any_url_of_v2(config, method, path):
    with server_in_thread(config(**VERTEX_AI)) as server:
        port = server.cloud_ports["Vertex AI"]
        status, _, answer = send(port, method, "/predict", None, {REDIRECT: path})
    assert (status, json.loads(answer)["name"]) == (200, "m")


@pytest.mark.parametrize("path", ["v2/nowhere", "", "predict", "api/status", "metrics"])
def test_a_prediction_that_is_led_nowhere_is_not_found(config, path):
    with server_in_thread(config(**VERTEX_AI)) as server:
        port = server.cloud_ports["Vertex AI"]
        status, _, answer = send(port, "POST", "/predict", b"", {REDIRECT: path})
    assert status == 404 and "nothing at" in json.loads(answer)["error"]


def test_only_predictions_are_led_elsewhere(config):
    with server_in_thread(config(**VERTEX_AI)) as server:
        port = server.cloud_ports["Vertex AI"]
        assert send(port, "GET", "/health", None, {REDIRECT: "v2"})[::2] == (200, b"")


def test_restrictions_of_http_hold_where_a_prediction_is_led(config):
    restricted = {"http_restricted_api": ("model-config:secret=value",)}
    with server_in_thread(config(**restricted, **VERTEX_AI)) as server:
        port = server.cloud_ports["Vertex AI"]
        led = {REDIRECT: "v2/models/m/config"}
        assert send(port, "POST", "/predict", b"", led)[0] == 403
        assert send(port, "POST", "/predict", b"", led | {"secret": "value"})[0] == 200


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (VERTEX_AI, True),
        (VERTEX_AI | {"vertex_ai_address": "0.0.0.0"}, False),
        (SAGEMAKER | {"sagemaker_address": "0.0.0.0"}, False),
        ({"sagemaker_address": "0.0.0.0"}, True),
    ],
)
def test_clients_have_no_shared_memory_where_a_platform_comes_from_outside(
    config, options, expected
):
    assert Server(config(**options)).engine.regions.allowed is expected
