"""The small V2 calls, built and read with another implementation's classes."""

import pytest
from tritonclient.grpc import service_pb2 as pb

from inferd.core.metadata import ModelMetadata, ReadyReport, ServerMetadata, TensorMetadata
from inferd.errors import InferdError, InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.wire.v2.grpc import metadata as v2

SERVER = ServerMetadata("inferd", "1.0", ["parameters", "binary_tensor_data"])
MODEL = ModelMetadata(
    "m",
    ["1", "3"],
    "onnx_onnxv1",
    [TensorMetadata("IN", DataType.FP32, (-1, 4))],
    [TensorMetadata("OUT", DataType.BYTES, ())],
)


@pytest.mark.parametrize("call", ["ServerLive", "ServerReady", "ServerMetadata"])
def test_unknown_fields_of_a_server_request_are_ignored(call):
    v2.decode_server_request(call, b"\x0a\x01x")


@pytest.mark.parametrize("call", ["ServerLive", "ServerReady", "ServerMetadata"])
def test_garbage_is_no_server_request(call):
    with pytest.raises(InvalidRequest, match=f"inference.{call}Request"):
        v2.decode_server_request(call, b"\xff")


@pytest.mark.parametrize("call", ["ModelReady", "ModelMetadata"])
def test_a_model_request_names_model_and_version(call):
    sent = getattr(pb, f"{call}Request")(name="m", version="3").SerializeToString()
    assert v2.decode_model_request(call, sent) == ("m", "3")
    assert v2.encode_model_request(call, "m", "3") == sent
    with pytest.raises(InvalidRequest):
        v2.decode_model_request(call, b"\xff")


@pytest.mark.parametrize("value", [True, False])
def test_live_and_ready_are_reported(value):
    assert pb.ServerLiveResponse.FromString(v2.encode_live(live=value)).live is value
    assert v2.decode_live(v2.encode_live(live=value)) is value
    found = ReadyReport(is_ready=value)
    answer = pb.ServerReadyResponse.FromString(v2.encode_ready("ServerReady", found))
    assert answer.ready is value
    assert v2.decode_ready("ModelReady", v2.encode_ready("ModelReady", found)) is value


def test_server_metadata_are_reported():
    data = v2.encode_server_metadata(SERVER)
    message = pb.ServerMetadataResponse.FromString(data)
    assert (message.name, message.version) == ("inferd", "1.0")
    assert list(message.extensions) == SERVER.extensions
    assert v2.decode_server_metadata(data) == SERVER


def test_model_metadata_are_reported():
    data = v2.encode_model_metadata(MODEL)
    message = pb.ModelMetadataResponse.FromString(data)
    assert (message.name, list(message.versions), message.platform) == (
        "m",
        ["1", "3"],
        "onnx_onnxv1",
    )
    assert (message.inputs[0].datatype, list(message.inputs[0].shape)) == ("FP32", [-1, 4])
    assert v2.decode_model_metadata(data) == MODEL


def test_a_malformed_answer_is_the_servers_fault():
    wrong = pb.ModelMetadataResponse(inputs=[{"name": "X", "datatype": "Y"}]).SerializeToString()
    for decode, data in (
        (v2.decode_live, b"\xff"),
        (v2.decode_server_metadata, b"\xff"),
        (v2.decode_model_metadata, wrong),
    ):
        with pytest.raises(InferdError, match="answer is malformed"):
            decode(data)
