"""Who may call what, over every road into the server: HTTP/1.1, HTTP/2, gRPC on both transports."""

import functools
import http.client
import os
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from server_thread import server_in_thread
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from inferd.api.access import KeyRing
from inferd.config.options.access import ApiKey, make_key
from inferd.config.server import ServerConfig
from inferd.errors import InvalidConfig
from inferd.http.access import OPEN
from inferd.server.access import MAX_BYTES, fill_ring, grpc_access, http_access
from inferd.server.watch import FileWatcher

KEY = (("triton-grpc-protocol-admin-key", "open sesame"),)
WRONG = [
    (),
    (("admin-key", "open sesame"),),
    (("triton-grpc-protocol-admin-key", "open"),),
    (*KEY, *KEY),
]


@pytest.fixture(params=["own", "grpcio"])
def guarded(request, repository, echo):
    """guarded(option, ...) is a server whose gRPC calls are restricted so, on either transport."""

    def build(*restricted):
        return server_in_thread(
            ServerConfig(
                http_port=0,
                grpc_port=0,
                grpc_transport=request.param,
                model_repository=(str(repository(m=echo())),),
                grpc_restricted_protocol=restricted,
            )
        )

    return build


def status(call, message, metadata):
    """Return the status a unary call ends with; its text never tells the secret."""
    ended = call.future(message, metadata=metadata, timeout=10)
    assert "sesame" not in (ended.details() or "")
    return ended.code()


def infer_request():
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1]}
    return pb.ModelInferRequest(model_name="m", inputs=[tensor], raw_input_contents=[b"1234"])


def test_restricted_grpc_calls_are_unavailable_without_the_metadata(guarded):
    with (
        guarded("inference,metadata:Admin-Key=open sesame") as server,
        grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel,
    ):
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for call, message in (
            (stub.ModelInfer, infer_request()),
            (stub.ServerMetadata, pb.ServerMetadataRequest()),
            (stub.ModelMetadata, pb.ModelMetadataRequest(name="m")),
        ):
            for metadata in WRONG:
                assert status(call, message, metadata) is grpc.StatusCode.UNAVAILABLE
            assert status(call, message, KEY) is grpc.StatusCode.OK
        assert status(stub.ServerLive, pb.ServerLiveRequest(), ()) is grpc.StatusCode.OK


def test_restricted_grpc_streams_end_unavailable_without_the_metadata(guarded):
    with (
        guarded("inference:admin-key=open sesame") as server,
        grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel,
    ):
        stream = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer
        for metadata in WRONG:
            with pytest.raises(grpc.RpcError) as caught:
                list(stream(iter([infer_request()]), metadata=metadata, timeout=10))
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        [answer] = stream(iter([infer_request()]), metadata=KEY, timeout=10)
        assert answer.infer_response.raw_output_contents == [b"1234"]


def test_the_health_service_belongs_to_health(guarded):
    with (
        guarded("health:admin-key=open sesame") as server,
        grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel,
    ):
        health, request = health_pb2_grpc.HealthStub(channel), health_pb2.HealthCheckRequest()
        assert status(health.Check, request, ()) is grpc.StatusCode.UNAVAILABLE
        assert status(health.Check, request, KEY) is grpc.StatusCode.OK
        with pytest.raises(grpc.RpcError) as caught:
            next(health.Watch(request, timeout=10))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_client_that_sends_the_metadata_later_on_its_connection_is_let_in(guarded):
    with (
        guarded("metadata:admin-key=open sesame") as server,
        grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel,
    ):
        stub, request = (
            service_pb2_grpc.GRPCInferenceServiceStub(channel),
            pb.ServerMetadataRequest(),
        )
        found = [status(stub.ServerMetadata, request, metadata) for metadata in ((), KEY, (), KEY)]
        assert [code is grpc.StatusCode.OK for code in found] == [False, True, False, True]


def test_without_options_everything_is_open():
    assert http_access(ServerConfig()) is OPEN
    assert grpc_access(ServerConfig()) is OPEN


def test_each_protocol_has_its_own_restrictions():
    config = ServerConfig(
        http_restricted_api=("trace:a=b",), grpc_restricted_protocol=("logging:a=b",)
    )
    assert http_access(config).guard("trace") and not http_access(config).guard("logging")
    assert grpc_access(config).guard("logging") and not grpc_access(config).guard("trace")


# --- API keys ---


@pytest.fixture
def keys(tmp_path):
    """A file of API keys, and the keys in it by name; bob's opens inference alone."""
    alice, bob = make_key("alice"), make_key("bob", "inference")
    path = tmp_path / "keys"
    path.write_text(f"{alice.line}\n{bob.line}\n")
    return path, {"alice": alice.key, "bob": bob.key}


@pytest.fixture(params=["own", "grpcio"])
def keyed(request, repository, echo, keys):
    """A running server that wants one of `keys`."""
    path, _ = keys
    config = ServerConfig(
        http_port=0,
        grpc_port=0,
        grpc_transport=request.param,
        model_repository=(str(repository(m=echo())),),
        api_key_file=str(path),
    )
    with server_in_thread(config) as server:
        yield server


def http_status(port, path, key=""):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path, headers={"X-API-Key": key} if key else {})
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_key_opens_http_and_grpc_and_health_needs_none(keyed, keys):
    alice = keys[1]["alice"]
    with grpc.insecure_channel(f"127.0.0.1:{keyed.grpc_port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        request = pb.ServerMetadataRequest()
        unauthenticated = grpc.StatusCode.UNAUTHENTICATED
        assert status(stub.ServerMetadata, request, ()) is unauthenticated
        assert status(stub.ServerMetadata, request, (("x-api-key", "x"),)) is unauthenticated
        for metadata in (("x-api-key", alice), ("authorization", f"Bearer {alice}")):
            assert status(stub.ServerMetadata, request, (metadata,)) is grpc.StatusCode.OK
        bob = (("x-api-key", keys[1]["bob"]),)
        assert status(stub.ServerMetadata, request, bob) is grpc.StatusCode.PERMISSION_DENIED
        assert status(stub.ModelInfer, infer_request(), bob) is grpc.StatusCode.OK
        assert status(stub.ServerReady, pb.ServerReadyRequest(), ()) is grpc.StatusCode.OK
    assert http_status(keyed.http_port, "/v2") == 401
    assert http_status(keyed.http_port, "/v2", keys[1]["bob"]) == 403
    assert http_status(keyed.http_port, "/v2", alice) == 200
    assert http_status(keyed.http_port, "/v2/health/ready") == 200


@pytest.mark.slow
def test_a_key_whose_line_goes_is_refused_on_connections_that_are_open(keyed, keys):
    path, known = keys
    carol = make_key("carol")
    with grpc.insecure_channel(f"127.0.0.1:{keyed.grpc_port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

        def statuses():
            return [
                status(stub.ServerMetadata, pb.ServerMetadataRequest(), (("x-api-key", key),))
                for key in (known["alice"], carol.key)
            ]

        ok, unauthenticated = grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED
        assert statuses() == [ok, unauthenticated]
        path.write_text(f"{carol.line}\n")
        deadline = time.monotonic() + 30
        while statuses() != [unauthenticated, ok]:
            assert time.monotonic() < deadline
    assert http_status(keyed.http_port, "/v2", known["alice"]) == 401
    assert http_status(keyed.http_port, "/v2", carol.key) == 200


def test_health_may_need_a_key_too():
    ring = KeyRing({})
    config = ServerConfig(api_key_for_health=True)
    for access in (http_access, grpc_access):
        assert access(config, ring).guard("health")
        assert access(ServerConfig(), ring).guard("health") is None


def test_a_file_that_breaks_keeps_the_keys_and_says_so(keys, caplog):
    path, known = keys
    ring, watcher = KeyRing({}), FileWatcher()
    watcher.read("the API keys", functools.partial(fill_ring, ring, str(path)), str(path))
    before = ring.keys
    assert len(before) == 2
    broken = [f"alice:{known['alice']}\n".encode(), b"\xff" * 10, b"#" * (MAX_BYTES + 1)]
    for content in broken:
        path.write_bytes(content)
        watcher.look()
        watcher.look()
        assert ring.keys is before
    path.unlink()
    watcher.look()
    watcher.look()
    assert ring.keys is before
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 4
    assert all("the API keys stay as they were" in record.message for record in caplog.records)
    assert known["alice"] not in caplog.text


def test_a_file_without_keys_lets_nobody_in_and_says_so(keys, caplog):
    path, _ = keys
    ring = KeyRing({b"": ApiKey("old")})
    path.write_text("# all gone\n")
    fill_ring(ring, str(path))
    assert ring.keys == {}
    assert "nobody is let in" in caplog.text


def test_a_file_that_cannot_be_used_fails_the_start(tmp_path, keys):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (tmp_path / "nowhere", tmp_path, fifo):
        config = ServerConfig(http_port=0, grpc_port=0, api_key_file=str(path))
        with pytest.raises(InvalidConfig, match=r"^--api-key-file: "), server_in_thread(config):
            pass
