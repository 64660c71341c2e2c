"""The TensorRT Inference Server API of the suite: messages, requests over HTTP, calls over gRPC.

The message classes are made of our .proto file when the suite runs, in a pool of their own.
"""

import struct
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import grpc
from conformance.rest import Header, Response, Rest
from conformance.rpc import TIMEOUT_S
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

PROTO = Path(__file__).parents[1] / "src" / "inferd" / "wire" / "trtis" / "proto" / "trtis.proto"
PACKAGE = "nvidia.inferenceserver"
SERVICE = f"{PACKAGE}.GRPCService"

VALUES = (1.0, 2.0, 3.0, 4.0)
HALVES = (0.5, 4.0, -1.0, 0.25)
SUMS = tuple(a + b for a, b in zip(VALUES, HALVES, strict=True))
DIFFERENCES = tuple(a - b for a, b in zip(VALUES, HALVES, strict=True))
"""What model m makes of VALUES and HALVES."""

INPUTS = 'input { name: "INPUT0" dims: 4 batch_byte_size: 16 } input { name: "INPUT1" dims: 4 }'
OUTPUTS = 'output { name: "OUTPUT0" } output { name: "OUTPUT1" }'
GOOD = f"batch_size: 1 {INPUTS} {OUTPUTS}"
"""A good header for model m."""


def floats(*values: float) -> bytes:
    """Return FP32 as they travel."""
    return struct.pack(f"<{len(values)}f", *values)


def string(*elements: bytes) -> bytes:
    """Return TYPE_STRING as it travels."""
    return b"".join(struct.pack("<I", len(one)) + one for one in elements)


BODY = floats(*VALUES, *HALVES)


@cache
def pool() -> DescriptorPool:
    """Compile the .proto file."""
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "set"
        command = ["protoc", f"--proto_path={PROTO.parent}", f"--descriptor_set_out={target}"]
        assert protoc.main([*command, str(PROTO)]) == 0
        files = FileDescriptorSet.FromString(target.read_bytes()).file
    made = DescriptorPool()
    for file in files:
        made.Add(file)
    return made


@cache
def kind(name: str) -> Any:
    """Return the class of a message."""
    return GetMessageClass(pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


def code(name: str) -> int:
    """Return the number of a RequestStatusCode."""
    found = pool().FindEnumTypeByName(f"{PACKAGE}.RequestStatusCode")
    return int(found.values_by_name[name].number)


def from_text(name: str, text: str) -> Any:
    """Read a message in protobuf text."""
    return text_format.Parse(text, kind(name)())


def status_of(response: Response) -> Any:
    """Return NV-Status, which must be one line of ASCII."""
    value = response.header("nv-status")
    assert value is not None, "NV-Status is missing"
    assert value.isascii()
    return from_text("RequestStatus", value)


def check_ok(response: Response) -> None:
    """Check that HTTP and NV-Status say success."""
    assert response.status == 200, (response.status, response.headers)
    assert status_of(response).code == code("SUCCESS")


def check_refused(response: Response, name: str) -> None:
    """Check a refusal: 400 and this code."""
    assert response.status == 400
    assert status_of(response).code == code(name), status_of(response)


def header_of(response: Response) -> Any:
    """Return NV-InferResponse."""
    value = response.header("nv-inferresponse")
    assert value is not None, "NV-InferResponse is missing"
    return from_text("InferResponseHeader", value)


def split(response: Response) -> tuple[list[bytes], bytes]:
    """Return the raw outputs, cut as NV-InferResponse says, and what follows them."""
    raw, rest = [], response.body
    for output in header_of(response).output:
        if output.HasField("raw"):
            size = output.raw.batch_byte_size
            raw.append(rest[:size])
            rest = rest[size:]
    return raw, rest


class OldRest:
    """Requests over HTTP."""

    def __init__(self, rest: Rest) -> None:
        self.rest = rest

    def infer(
        self, model: str, header: str, body: bytes = b"", more: Iterable[Header] = ()
    ) -> Response:
        """POST an inference; `model` may go on with version and query."""
        path = f"/api/infer/{model}"
        return self.rest.request("POST", path, body, [("NV-InferRequest", header), *more])

    def status(self, name: str = "") -> Any:
        """Return the ServerStatus in binary."""
        path = f"/api/status/{name}" if name else "/api/status"
        response = self.rest.get(f"{path}?format=binary")
        check_ok(response)
        return kind("ServerStatus").FromString(response.body)


class OldRpc:
    """Calls over one channel, of bytes and of messages."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def bytes(self, rpc: str, data: bytes) -> bytes:
        """Call with bytes."""
        method = self._channel.unary_unary(f"/{SERVICE}/{rpc}")
        answer: bytes = method(data, timeout=TIMEOUT_S)
        return answer

    def later(self, rpc: str, data: bytes) -> Any:
        """Call with bytes, and return the future of the answer."""
        return self._channel.unary_unary(f"/{SERVICE}/{rpc}").future(data, timeout=TIMEOUT_S)

    def stream(self, *messages: bytes) -> list[bytes]:
        """Call StreamInfer with bytes."""
        method = self._channel.stream_stream(f"/{SERVICE}/StreamInfer")
        return list(method(iter(messages), timeout=TIMEOUT_S))

    def call(self, rpc: str, **fields: Any) -> Any:
        """Call with a message, and return one."""
        data = kind(f"{rpc}Request")(**fields).SerializeToString()
        return kind(f"{rpc}Response").FromString(self.bytes(rpc, data))

    def infer(self, model: str, header: str, *raw: bytes, version: int = -1) -> Any:
        """Call Infer; `header` is text."""
        return self.call(
            "Infer",
            model_name=model,
            model_version=version,
            meta_data=from_text("InferRequestHeader", header),
            raw_input=raw,
        )
