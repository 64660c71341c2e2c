"""Who may call what, over every road into the server: HTTP/1.1, HTTP/2, gRPC on both transports."""

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from inferd.config.server import ServerConfig
from inferd.server.access import grpc_access, http_access
from inferd.server.thread import server_in_thread
from inferd.transport.access import OPEN

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
