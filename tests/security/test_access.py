"""Without a key nothing is answered but health checks, by whatever port, path or protocol."""

import itertools
import json
import socket
import struct

import grpc
import pytest
from target import OLD_SERVICE, SERVICE, field_of, grpc_request

from inferd.api.v2.calls import CALLS
from inferd.config.options.access import make_key
from inferd.ui.topics import GROUPS as TOPICS

BODY = json.dumps(
    {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}
).encode()
NAMES = {"model": "echo", "version": "1", "region": "r", "name": "r", "file": "grpc_service.proto"}
OLD_CALLS = [
    *(("POST", f"/api/infer/echo{version}") for version in ("", "/1")),
    *(("GET", f"/api/status{model}") for model in ("", "/echo")),
    *(("POST", f"/api/modelcontrol/{verb}/echo") for verb in ("load", "unload")),
    ("POST", "/api/sharedmemorycontrol/register/r/key/0/8"),
    ("POST", "/api/sharedmemorycontrol/register/r//key/0/8"),
    ("POST", "/api/sharedmemorycontrol/cudaregister/r/8/0"),
    *(("POST", f"/api/sharedmemorycontrol/{verb}") for verb in ("unregister/r", "unregisterall")),
    *(("GET", f"/api/{path}") for path in ("sharedmemorycontrol/status", "repository/index")),
    ("GET", "/api/profile?cmd=start"),
]
OLD_RPCS = ["Status", "Infer", "ModelControl", "SharedMemoryControl", "Repository", "Profile"]
SPELLINGS = [
    *("/v2/models/echo/infer/", "//v2/models/echo/infer", "/v2//models/echo/infer"),
    *("/v2/./models/echo/infer", "/x/../v2/models/echo/infer", "/v2/health/../models/echo/infer"),
    *("/v2/health/live/../../models/echo/infer", "/v2/models/echo/infer?x=/v2/health/live"),
    *("/v2/health/live;/../../models/echo/infer", "/v2/%6dodels/echo/infer"),
    "/V2/models/echo/infer",
    *("/v2%2fmodels/echo/infer", "/v2/models/%65cho/infer", "/v2/models/echo%2f..%2fecho/infer"),
    *("/v2/models/echo/infer%00", "/v2/models/echo/infer#/v2/health/live"),
    *("http://h/v2/models/echo/infer", "http://h/v2/health/live/../../models/echo/infer"),
    *("/v2/models/echo/versions/1/infer", "/v2/health/live%2f..%2f..%2fmodels%2fecho%2finfer"),
]  # fmt: skip
HEADERS = [
    *("", "Authorization: Bearer", "Authorization: Bearer  ", "Authorization: Basic eDp5"),
    *("x-api-key: ", "x-api-key: x\r\nAuthorization: Bearer x", "x_api_key: {key}"),
    *("X-Original-URL: /v2/health/live", "X-Forwarded-For: 127.0.0.1", "X-HTTP-Method: GET"),
    *("Authorization: Bearer {hash}", "x-api-key: {hash}", "Cookie: x-api-key={key}"),
    *("X-Vertex-Ai-Triton-Redirect: v2/health/live", "Upgrade: h2c\r\nConnection: Upgrade"),
    "Origin: http://h\r\nAccess-Control-Request-Method: POST",
]  # fmt: skip


@pytest.fixture
def made():
    return make_key("ours")


@pytest.fixture
def guarded(another_target, tmp_path, made):
    """A server that wants a key."""
    (tmp_path / "keys").write_text(f"{made.line}\n")
    return another_target(f"--api-key-file={tmp_path / 'keys'}")


def status_of(answer):
    return int(answer.split(b" ", 2)[1]) if answer else None


def request(method, path, *headers, body=BODY):
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: localhost",
        "Connection: close",
        *filter(None, headers),
    ]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def is_health(group):
    return group == "health"


def calls_of_rest():
    """Each verb and path of V2 that is no health check, with names filled in."""
    for call in CALLS:
        for side, _ in itertools.product(call.rest, range(not is_health(call.group))):
            for path, _ in side.operations():
                yield side.verb, path.format_map(_Filled(NAMES))


class _Filled(dict):
    def __missing__(self, name):
        return "x"


def test_no_call_of_any_api_is_answered_without_a_key(guarded):
    calls = [*calls_of_rest(), *OLD_CALLS]
    assert len(calls) > 50
    for method, path in calls:
        answer = guarded.send(request(method, path))
        assert status_of(answer) in ((400, 401) if path.startswith("/api") else (401,)), (
            path,
            answer[:200],
        )
        assert b"key" in answer
    for port, path in (("SageMaker", "/invocations"), ("Vertex AI", "/predict")):
        assert status_of(guarded.send(request("POST", path), port)) == 401
    for target in ("v2", "v2/repository/index", "v2/models/echo/infer", "v2/systemsharedmemory"):
        redirect = f"X-Vertex-Ai-Triton-Redirect: {target}"
        answer = guarded.send(request("POST", "/predict", redirect), "Vertex AI")
        assert status_of(answer) in (401, 404), answer


def test_the_dashboard_tells_and_does_nothing_without_a_key(guarded):
    for topic in TOPICS:
        for once in ("", "&once=1"):
            path = f"/ui/events?topics={topic}&model=echo{once}"
            assert status_of(guarded.send(request("GET", path))) == 401, path
    for act in ("load", "unload", "reload"):
        body = json.dumps({"act": act, "model": "echo"}).encode()
        assert status_of(guarded.send(request("POST", "/ui/act", body=body))) == 401
        session = "x-inferd-ui-session: " + "0" * 43
        assert status_of(guarded.send(request("POST", "/ui/act", session, body=body))) == 401
    body = json.dumps({"token": "0" * 43}).encode()
    assert status_of(guarded.send(request("POST", "/ui/unlock", body=body))) == 401
    assert guarded.ask("GET", "/v2/health/ready")[0] == 200
    assert "is unloaded" not in guarded.log()


def test_no_method_of_grpc_is_answered_without_a_key(guarded):
    paths = [
        path
        for call in CALLS
        for side in call.rpcs
        for path in side.paths()
        if not is_health(call.group)
    ]
    paths += [f"{SERVICE}ModelInfer", f"{SERVICE}ModelStreamInfer"]
    assert len(set(paths)) > 20
    denied = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED)
    for path in paths:
        assert guarded.stream(path, [grpc_request(b"\1\1", bytes(4))])[0] is denied[0], path
    for path in (
        *(OLD_SERVICE + name for name in (*OLD_RPCS, "StreamInfer")),
        "/inference.ModelRepositoryService/RepositoryModelLoad",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        "//inference.GRPCInferenceService/ModelInfer",
        "/inference.grpcinferenceservice/modelinfer",
        "/inference.GRPCInferenceService/ModelInfer/",
        "/x/ModelInfer",
    ):
        code, _ = guarded.stream(path, [field_of(1, b"echo")])
        assert code in denied, path


@pytest.mark.parametrize("path", SPELLINGS)
def test_no_spelling_of_a_path_goes_past_the_key(guarded, path):
    for port in ("HTTP", "SageMaker", "Vertex AI", "Metrics"):
        answer = guarded.hang_up(request("POST", path), port)
        assert status_of(answer) in (400, 401, 404, 405), (port, answer)
        assert b"outputs" not in answer


def test_no_header_stands_for_a_key(guarded, made):
    hashed = made.line.rpartition(":")[2].strip()
    for header in HEADERS:
        given = header.format(key=made.key, hash=hashed)
        for port, path in (
            ("HTTP", "/v2/models/echo/infer"),
            ("SageMaker", "/invocations"),
            ("Vertex AI", "/predict"),
        ):
            answer = guarded.send(request("POST", path, given), port)
            is_led_to_health = "Redirect" in header and port == "Vertex AI"
            assert status_of(answer) == (200 if is_led_to_health else 401), (header, answer)
            assert b"outputs" not in answer
    right = f"Authorization: Bearer {made.key}"
    assert status_of(guarded.send(request("POST", "/v2/models/echo/infer", right))) == 200


def test_a_key_is_asked_for_anew_by_each_request_of_a_connection(guarded, made):
    key = f"x-api-key: {made.key}".encode()
    head = b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: h\r\n%bContent-Length: %d\r\n\r\n"
    with_key, without = (head % (line, len(BODY)) + BODY for line in (key + b"\r\n", b""))
    pipelined = (
        with_key + without + with_key + without.replace(b"Host", b"Connection: close\r\nHost", 1)
    )
    with socket.create_connection(("127.0.0.1", guarded.ports["HTTP"]), 60) as client:
        client.sendall(pipelined)
        received = b""
        while piece := client.recv(65536):
            received += piece
    found = [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]]
    assert found == [200, 401, 200, 401]
    assert struct.pack("<f", 1) not in received
