"""The small calls over REST: health and metadata."""

import json

import pytest

from inferd.core.metadata import ModelMetadata, ReadyReport, ServerMetadata, TensorMetadata
from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DATATYPES
from inferd.wire.v2.rest.metadata import (
    decode_model_metadata,
    encode_live,
    encode_model_metadata,
    encode_model_names,
    encode_ready,
    encode_server_metadata,
)


def test_health_is_said_in_every_spelling():
    assert json.loads(encode_live(live=True)) == {"live": True}
    assert json.loads(encode_ready(ReadyReport(is_ready=True))) == {"live": True, "ready": True}
    assert json.loads(encode_ready(ReadyReport(is_ready=False, reason="why"))) == {
        "live": False,
        "ready": False,
        "error": "why",
    }
    assert json.loads(encode_ready(ReadyReport(is_ready=True, model="m"))) == {
        "name": "m",
        "ready": True,
    }
    assert json.loads(encode_ready(ReadyReport(is_ready=False, model="m", reason="why"))) == {
        "name": "m",
        "ready": False,
        "error": "why",
    }


def test_metadata_are_written_in_the_order_of_the_protocol():
    text = encode_server_metadata(ServerMetadata("inferd", "1.0", ["a", "b"]))
    assert text == b'{"name":"inferd","version":"1.0","extensions":["a","b"]}'
    assert encode_model_names(["a", "b"]) == b'{"models":["a","b"]}'


def test_model_metadata_come_back_as_they_went():
    inputs = [TensorMetadata(name, d, (-1, 2)) for name, d in DATATYPES.items() if name != "STRING"]
    metadata = ModelMetadata("m", ["1", "3"], "onnx_onnxv1", inputs, [])
    text = encode_model_metadata(metadata)
    document = json.loads(text)
    assert list(document) == ["name", "versions", "platform", "inputs", "outputs"]
    assert document["inputs"][0] == {"name": "BOOL", "datatype": "BOOL", "shape": [-1, 2]}
    assert decode_model_metadata(text) == metadata


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"name":1}', b"\xff"])
def test_other_metadata_are_refused(text):
    with pytest.raises(InvalidRequest, match="not model metadata"):
        decode_model_metadata(text)
