"""Answers with bytes changed, cut or repeated: a result or an error of ours, nothing else."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import answer

from inferd.client import ClientError, InferResult
from inferd.client.connection.http1 import RestConnection
from inferd.client.connection.http2 import GrpcConnection
from inferd.client.grpc import GrpcCalls
from inferd.client.incoming import PREFIX
from inferd.client.requests import make_request
from inferd.client.rest import RestCalls
from inferd.client.settings import read_settings
from inferd.client.sync.io import run
from inferd.core.request import InferResponse
from inferd.errors import InferdError
from inferd.http.h2 import frames
from inferd.http.h2.frames import encode_frame
from inferd.http.h2.hpack import encode_fields
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.wire.v2.grpc.codec import V2Grpc

REQUEST = make_request("m", {"x": np.zeros(2, np.float32)}, None, {}, [])
TENSORS = [
    Tensor("y", DataType.FP32, (2,), b"12345678"),
    Tensor("s", DataType.BYTES, (2,), b"\x01\0\0\0a\x02\0\0\0bc"),
]
HEAD = (
    b'{"model_name":"m","model_version":"1","outputs":[{"name":"y","shape":[2],"datatype":"FP32",'
    b'"parameters":{"binary_data_size":8}},{"name":"s","shape":[2],"datatype":"BYTES",'
    b'"parameters":{"binary_data_size":11}},{"name":"z","shape":[3],"datatype":"INT8",'
    b'"data":[1,2,3]}]}'
)
BINARY = answer(
    200,
    HEAD + TENSORS[0].data + TENSORS[1].data,
    f"Inference-Header-Content-Length: {len(HEAD)}",
    "Content-Type: application/octet-stream",
)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
MESSAGE = b"".join(V2Grpc().encode(REQUEST, InferResponse("m", "1", "i", TENSORS, {"p": 1})))
OK = encode_fields([(b":status", b"200"), (b"content-type", b"application/grpc")])
GRPC = (
    encode_frame(frames.SETTINGS, 0, 0, b"\0\4\0\1\0\0\0\5\0\1\0\0")
    + encode_frame(frames.SETTINGS, 1, 0)
    + encode_frame(frames.WINDOW_UPDATE, 0, 0, b"\0\1\0\0")
    + encode_frame(frames.PING, 0, 0, b"12345678")
    + encode_frame(frames.HEADERS, 4, 1, OK)
    + encode_frame(frames.DATA, 8, 1, b"\1" + PREFIX.pack(0, len(MESSAGE)) + MESSAGE[:20] + b"\0")
    + encode_frame(frames.DATA, 0, 1, MESSAGE[20:])
    + encode_frame(frames.HEADERS, 5, 1, encode_fields([(b"grpc-status", b"0")]))
    + encode_frame(frames.GOAWAY, 0, 0, b"\0\0\0\1\0\0\0\0bye")
)


class Bytes:
    """A stream that gives `data` in pieces of `step`, then ends."""

    deadline = 0.0
    protocol = "h2"

    def __init__(self, data, step):
        self.data, self.step, self.at = data, step, 0

    async def send(self, buffers):
        assert sum(map(len, buffers)) > 0

    async def recv_into(self, view, *, whole=False):
        assert len(view)
        piece = self.data[self.at : self.at + min(self.step, len(view))]
        self.at += len(piece)
        view[: len(piece)] = piece
        return len(piece)

    def is_quiet(self):
        return self.at >= len(self.data)


def ask(kind, data, step):
    """Return the result that `data` is, or the error."""
    calls, connected, url = {
        "rest": (RestCalls(), RestConnection, "http://h"),
        "grpc": (GrpcCalls(), GrpcConnection, "grpc://h"),
    }[kind]
    connection = connected(Bytes(data, step), read_settings(url, {"max_answer_bytes": 1 << 20}))
    call = calls.infer(REQUEST, binary=True)
    try:
        run(connection.start())
        found = run(connection.ask(call, ""))
        run(connection.is_usable())
        error = calls.refusal(found)
        if error is not None:
            return error
        result = InferResult(call.read(found))
        return {name: result[name].tolist() for name in result}
    except (ClientError, InferdError) as error:
        return error


EXPECTED = {"y": np.frombuffer(b"12345678", np.float32).tolist(), "s": [b"a", b"bc"]}


@pytest.mark.parametrize("step", [1, 7, 64, 65536])
def test_what_is_not_changed_is_read(step):
    assert ask("rest", BINARY, step) == EXPECTED | {"z": [1, 2, 3]}
    assert ask("grpc", GRPC, step) == EXPECTED


@pytest.mark.parametrize(("kind", "whole"), [("rest", BINARY), ("grpc", GRPC)])
def test_an_answer_may_end_anywhere(kind, whole):
    results = [ask(kind, whole[:size], 65536) for size in range(len(whole))]
    wrong = [size for size, one in enumerate(results) if not isinstance(one, ClientError | dict)]
    assert wrong == []
    assert isinstance(results[0], ClientError)


WAYS = ("set", "cut", "insert", "repeat")
changes = st.lists(
    st.tuples(st.sampled_from(WAYS), st.integers(0, 2000), st.binary()),
    min_size=1,
    max_size=4,
)


def changed(data, steps):
    for what, place, extra in steps:
        at = place % (len(data) + 1)
        if what == "set":
            data = data[:at] + extra + data[at + len(extra) :]
        elif what == "cut":
            data = data[:at] + data[at + len(extra) + 1 :]
        elif what == "insert":
            data = data[:at] + extra + data[at:]
        else:
            data = data[:at] + data[max(at - 30, 0) :]
    return data


@pytest.mark.slow
@settings(max_examples=1500)
@given(st.sampled_from((BINARY, CHUNKED)), changes, st.sampled_from((3, 65536)))
def test_changed_bytes_over_rest(whole, steps, step):
    assert isinstance(ask("rest", changed(whole, steps), step), dict | InferdError)


@pytest.mark.slow
@settings(max_examples=1500)
@given(changes, st.sampled_from((3, 65536)))
def test_changed_bytes_over_grpc(steps, step):
    assert isinstance(ask("grpc", changed(GRPC, steps), step), dict | InferdError)


@pytest.mark.slow
@settings(max_examples=1500)
@given(changes)
def test_changed_messages_of_grpc(steps):
    message = changed(MESSAGE, steps)
    data = encode_frame(frames.SETTINGS, 0, 0) + encode_frame(frames.HEADERS, 4, 1, OK)
    data += encode_frame(frames.DATA, 0, 1, PREFIX.pack(0, len(message)) + message)
    data += encode_frame(frames.HEADERS, 5, 1, encode_fields([(b"grpc-status", b"0")]))
    assert isinstance(ask("grpc", data, 65536), dict | InferdError)
    stream = GrpcCalls()
    with contextlib.suppress(InferdError):
        InferResult(stream.read_message(memoryview(message)))
