"""Over gRPC against grpcio's own server: small windows and frames, metadata, deadlines, streams."""

from concurrent import futures

import grpc
import numpy as np
import pytest

from inferd.client import Busy, DeadlineExceeded, ServerError
from inferd.core.request import InferResponse
from inferd.wire.v2.grpc.codec import V2Grpc, decode_infer_request

SERVICE = "inference.GRPCInferenceService"


class Echo(grpc.GenericRpcHandler):
    """Answers with the inputs; what the metadata say decides how a call ends."""

    def __init__(self):
        self.seen = []

    def service(self, details):
        if details.method.endswith("ModelInfer"):
            return grpc.unary_unary_rpc_method_handler(self.infer)
        if details.method.endswith("ModelStreamInfer"):
            return grpc.stream_stream_rpc_method_handler(self.stream)
        return None

    def infer(self, data, context):
        metadata = dict(context.invocation_metadata())
        self.seen.append((metadata, context.time_remaining()))
        if metadata.get("x-way") == "wait":
            while context.is_active():
                futures.wait([], timeout=0.001)
            return b""
        if metadata.get("x-way") == "busy":
            context.abort(grpc.StatusCode.UNAVAILABLE, "zu viel: grüße %")
        request = decode_infer_request(data)
        return b"".join(V2Grpc().encode(request, InferResponse("m", "1", outputs=request.inputs)))

    def stream(self, messages, context):
        for data in messages:
            request = decode_infer_request(data)
            for final in (False, False, True):
                answer = InferResponse("m", "1", outputs=request.inputs, final=final)
                yield b"".join(V2Grpc().encode_stream(request, answer))
            if request.id == "fail":
                context.abort(grpc.StatusCode.INTERNAL, "broken")


@pytest.fixture(scope="module")
def echo():
    limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    handler = Echo()
    pool = futures.ThreadPoolExecutor(4)
    server = grpc.server(pool, handlers=[handler], options=[*limits, ("grpc.so_reuseport", 0)])
    handler.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield handler
    server.stop(0).wait()


@pytest.fixture
def client(kind, echo):
    with kind(f"grpc://127.0.0.1:{echo.port}", timeout_s=20, retries=0) as made:
        yield made


@pytest.mark.parametrize("count", [0, 10, 16_000, 200_000, 2_000_000])
def test_messages_larger_than_windows(client, count):
    array = np.arange(count, dtype=np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(client.infer("m", {"x": array})["x"], array)


def test_metadata_and_deadlines_reach_the_server(client, echo):
    client.infer("m", {"x": np.zeros(1)}, headers={"X-Mine": "y"}, timeout_s=5)
    metadata, left_s = echo.seen[-1]
    assert metadata["x-mine"] == "y"
    assert 0 < left_s < 5.1
    with pytest.raises(DeadlineExceeded):
        client.infer("m", {"x": np.zeros(1)}, headers={"x-way": "wait"}, timeout_s=0.05)


def test_statuses_and_their_text(client):
    with pytest.raises(Busy, match="zu viel: grüße %") as found:
        client.infer("m", {"x": np.zeros(1)}, headers={"x-way": "busy"})
    assert found.value.reason == "UNAVAILABLE"
    with pytest.raises(ServerError) as found:
        client.metadata("m")
    assert found.value.reason == "UNIMPLEMENTED"


def test_streams(client):
    array = np.arange(300_000, dtype=np.float32)
    found = list(client.stream("m", {"x": array}))
    assert len(found) == 3
    for one in found:
        np.testing.assert_array_equal(one["x"], array)
    stream = client.stream("m", {"x": array}, id="fail")
    assert [len(next(stream)["x"]) for _ in range(3)] == [300_000] * 3
    with pytest.raises(ServerError, match="broken"):
        next(stream)
