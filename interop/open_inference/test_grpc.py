"""The stubs that are generated from the protocol's own .proto file."""

import struct

import grpc
import pytest
from open_inference.grpc import protocol as pb
from open_inference.grpc.service import GRPCInferenceServiceStub

ROW = struct.pack("<2f", 1.5, 2.5)


@pytest.fixture
def stub(anywhere):
    """A stub for each server."""
    if anywhere.ca:
        with open(anywhere.ca, "rb") as file:
            credentials = grpc.ssl_channel_credentials(file.read())
        channel = grpc.secure_channel(anywhere.grpc, credentials)
    else:
        channel = grpc.insecure_channel(anywhere.grpc)
    with channel:
        yield GRPCInferenceServiceStub(channel)


def echo(**more):
    tensor = pb.ModelInferRequest.InferInputTensor(name="INPUT0", datatype="FP32", shape=[1, 2])
    return pb.ModelInferRequest(model_name="echo_FP32", inputs=[tensor], **more)


def test_health_and_metadata(stub):
    assert stub.ServerLive(pb.ServerLiveRequest()).live
    assert stub.ServerReady(pb.ServerReadyRequest()).ready
    assert stub.ModelReady(pb.ModelReadyRequest(name="echo_FP32", version="1")).ready
    assert stub.ServerMetadata(pb.ServerMetadataRequest()).extensions
    metadata = stub.ModelMetadata(pb.ModelMetadataRequest(name="echo_FP32"))
    assert list(metadata.inputs[0].shape) == [-1, -1]
    assert not metadata.properties


def test_raw_and_typed_contents_are_answered_raw(stub):
    typed = echo(id="42")
    typed.inputs[0].contents.fp32_contents.extend([1.5, 2.5])
    for request in (echo(id="42", raw_input_contents=[ROW]), typed):
        answer = stub.ModelInfer(request)
        assert (answer.id, answer.model_version) == ("42", "1")
        assert list(answer.raw_output_contents) == [ROW]


def test_all_kinds_of_parameters_are_taken(stub):
    request = echo(raw_input_contents=[ROW])
    for number, (kind, value) in enumerate(
        {"bool_param": True, "int64_param": -1, "string_param": "x"}.items()
    ):
        setattr(request.parameters[f"p{number}"], kind, value)
    assert stub.ModelInfer(request).raw_output_contents[0] == ROW


def test_what_is_not_there_is_told(stub):
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelMetadata(pb.ModelMetadataRequest(name="nobody"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
