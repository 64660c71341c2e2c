"""Requests as they are sent: the server's own codecs read them."""

import numpy as np
import pytest

from inferd.bench.plan import PLACEHOLDER, varint
from inferd.bench.requests import WantedRequest, plan_of
from inferd.client.settings import read_settings
from inferd.errors import InvalidRequest
from inferd.http.h2.hpack import HeaderDecoder
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.wire.v2.grpc.codec import decode_infer_request


def tensor(*values):
    return [Tensor.from_numpy("x", np.array([values], np.float32), DataType.FP32)]


def plan(url, *inputs, **wanted):
    settings = read_settings(url, {"api_key": "k", "headers": {"a": "b"}})
    return plan_of(settings, inputs or [tensor(1, 2)], WantedRequest("m", **wanted))


@pytest.mark.parametrize("binary", [True, False])
def test_rest_is_a_whole_request(binary):
    made = plan("http://h:1/prefix", tensor(1, 2), tensor(3, 4), version="2", binary=binary)
    head, _, body = made.messages[1].before.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /prefix/v2/models/m/versions/2/infer HTTP/1.1"
    assert {"Host: h:1", "a: b", "Authorization: Bearer k", f"Content-Length: {len(body)}"} <= set(
        lines
    )
    assert any(one.startswith("Inference-Header-Content-Length") for one in lines) == binary
    assert body.endswith(np.array([3, 4], np.float32).tobytes()) == binary
    assert len(made.messages) == 2 and made.head == b""


def test_grpc_is_a_header_block_and_a_message():
    made = plan("grpc://h:1", outputs=("y",), parameters={"p": 1})
    fields, _ = HeaderDecoder(4096).decode(made.head)
    assert (b":path", b"/inference.GRPCInferenceService/ModelInfer") in fields
    assert (b"a", b"b") in fields and (b"authorization", b"Bearer k") in fields
    content = made.messages[0].before
    assert content[:1] == b"\0" and int.from_bytes(content[1:5], "big") == len(content) - 5
    request = decode_infer_request(memoryview(content[5:]))
    assert request.model == "m" and request.inputs[0].numpy().tolist() == [[1, 2]]
    assert [one.name for one in request.outputs] == ["y"] and request.parameters == {"p": 1}


@pytest.mark.parametrize("has_one_answer", [True, False])
def test_a_stream_asks_for_a_last_answer_where_there_may_be_many(has_one_answer):
    made = plan("grpc://h:1", stream=True, has_one_answer=has_one_answer)
    assert b"ModelStreamInfer" in made.head
    request = decode_infer_request(memoryview(made.messages[0].before[5:]))
    assert request.empty_final is not has_one_answer


@pytest.mark.parametrize("url", ["http://h:1", "grpc://h:1"])
def test_the_requests_of_a_sequence_leave_room_for_its_number(url):
    made = plan(url, sequence_length=3)
    assert len(made.messages) == 4 and made.sequence_length == 3
    if "grpc" not in url:
        texts = [one.numbered(PLACEHOLDER, is_varint=False) for one in made.messages]
        assert all(str(PLACEHOLDER).encode() in one for one in texts)
        return
    flags = []
    for one in made.messages:
        content = one.numbered(PLACEHOLDER + 1, is_varint=True)
        sequence = decode_infer_request(memoryview(content[5:])).sequence
        flags.append((sequence.start, sequence.end))
        assert sequence.id == PLACEHOLDER + 1
    assert flags == [(True, False), (False, False), (False, True), (True, True)]


def test_inputs_that_look_like_the_number_are_refused():
    odd = varint(PLACEHOLDER) + bytes(3)
    twin = [Tensor("x", DataType.UINT8, (1, 8), odd)]
    with pytest.raises(InvalidRequest, match="the digits that stand for"):
        plan("grpc://h:1", twin, sequence_length=2)
    with pytest.raises(InvalidRequest, match="have the same inputs"):
        plan("grpc://h:1", tensor(1, 2), tensor(3, 4), sequence_length=2)
