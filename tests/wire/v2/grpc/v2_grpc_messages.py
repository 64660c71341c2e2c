"""ModelInferRequests made with another implementation's classes, for several tests."""

import struct

import pytest
from tritonclient.grpc import service_pb2 as pb

from inferd.errors import InvalidRequest
from inferd.wire.v2.grpc.codec import decode_infer_request

FOUR = struct.pack("<4f", 1, 2, 3, 4)


def message(*inputs, raw=(), **fields):
    return pb.ModelInferRequest(
        model_name="m", inputs=list(inputs), raw_input_contents=list(raw), **fields
    )


def item(name="INPUT0", datatype="FP32", shape=(1, 4), **contents):
    made = pb.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=list(shape))
    if contents:
        made.contents.CopyFrom(pb.InferTensorContents(**contents))
    return made


def decoded(*inputs, raw=(), **fields):
    return decode_infer_request(message(*inputs, raw=raw, **fields).SerializeToString())


def refusal(*inputs, raw=(), **fields):
    with pytest.raises(InvalidRequest) as caught:
        decoded(*inputs, raw=raw, **fields)
    return caught.value.message
