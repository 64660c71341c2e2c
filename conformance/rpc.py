"""The gRPC side of the suite: one channel, and ModelInfer requests in their two forms."""

import struct
from typing import Any

import grpc
import pytest
from conformance.bodies import stem
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

TIMEOUT_S = 10.0
SERVICE = "inference.GRPCInferenceService"
FIELDS = {
    "BOOL": "bool_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
    "STRING": "bytes_contents",
}
"""Datatype -> the field of InferTensorContents that carries it."""


class Rpc:
    """Calls to one server over one channel."""

    def __init__(self, address: str) -> None:
        limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self.channel = grpc.insecure_channel(address, options=limits)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)

    def call(self, name: str, request: Any, **options: Any) -> Any:
        """Call one rpc by its name."""
        return getattr(self._stub, name)(request, timeout=TIMEOUT_S, **options)

    def infer(self, request: pb.ModelInferRequest, **options: Any) -> pb.ModelInferResponse:
        """Call ModelInfer."""
        return self.call("ModelInfer", request, **options)

    def stream(self, *requests: pb.ModelInferRequest, **options: Any) -> list[Any]:
        """Call ModelStreamInfer with `requests`, and return all its answers."""
        call = self._stub.ModelStreamInfer(iter(requests), timeout=TIMEOUT_S, **options)
        return list(call)

    def refusal(self, name: str, request: Any) -> grpc.RpcError:
        """Call an rpc that must fail, and return its error."""
        with pytest.raises(grpc.RpcError) as caught:
            self.call(name, request)
        return caught.value

    def check_refused(
        self, request: pb.ModelInferRequest, *codes: grpc.StatusCode, naming: str = ""
    ) -> None:
        """Assert that ModelInfer fails with one of `codes` (INVALID_ARGUMENT unless given)."""
        error = self.refusal("ModelInfer", request)
        assert error.code() in (codes or (grpc.StatusCode.INVALID_ARGUMENT,)), error
        assert error.details(), "the status has no text"
        assert naming in error.details(), f"the error does not name {naming!r}: {error.details()}"

    def close(self) -> None:
        """Close the channel."""
        self.channel.close()


def tensor(
    request: pb.ModelInferRequest, name: str, datatype: str, shape: list[int]
) -> pb.ModelInferRequest.InferInputTensor:
    """Add an input without data to `request` and return it."""
    added = request.inputs.add(name=name, datatype=datatype)
    added.shape.extend(shape)
    return added


def raw_ok(**fields: Any) -> pb.ModelInferRequest:
    """Return the plain request to model m, inputs raw."""
    request = pb.ModelInferRequest(model_name="m", **fields)
    tensor(request, "INPUT0", "FP32", [1, 4])
    tensor(request, "INPUT1", "FP32", [1, 4])
    request.raw_input_contents.append(struct.pack("<4f", 1, 2, 3, 4))
    request.raw_input_contents.append(struct.pack("<4f", 1, 1, 1, 1))
    return request


def typed_ok(**fields: Any) -> pb.ModelInferRequest:
    """Return the plain request to model m, inputs in typed contents."""
    request = pb.ModelInferRequest(model_name="m", **fields)
    tensor(request, "INPUT0", "FP32", [1, 4]).contents.fp32_contents.extend([1, 2, 3, 4])
    tensor(request, "INPUT1", "FP32", [1, 4]).contents.fp32_contents.extend([1, 1, 1, 1])
    return request


def repeated(*numbers: int, **fields: Any) -> pb.ModelInferRequest:
    """Return a request to model repeat, which answers once for each number."""
    request = pb.ModelInferRequest(model_name="repeat", **fields)
    count = len(numbers)
    tensor(request, "IN", "INT32", [count])
    tensor(request, "DELAY", "UINT32", [count])
    tensor(request, "WAIT", "UINT32", [1])
    request.raw_input_contents.append(struct.pack(f"<{count}i", *numbers))
    request.raw_input_contents.append(bytes(4 * count))
    request.raw_input_contents.append(bytes(4))
    return request


def one_raw(datatype: str, shape: list[int], raw: bytes) -> pb.ModelInferRequest:
    """Return a request to model all with one raw input."""
    request = pb.ModelInferRequest(model_name="all")
    request.outputs.add(name=f"OUT_{stem(datatype)}")
    tensor(request, f"IN_{stem(datatype)}", datatype, shape)
    request.raw_input_contents.append(raw)
    return request


def one_typed(
    datatype: str, data: list[Any], shape: list[int] | None = None, field: str = ""
) -> pb.ModelInferRequest:
    """Return a request to model all with one typed input, in its datatype's field unless given."""
    request = pb.ModelInferRequest(model_name="all")
    request.outputs.add(name=f"OUT_{stem(datatype)}")
    shape = [len(data)] if shape is None else shape
    added = tensor(request, f"IN_{stem(datatype)}", datatype, shape)
    getattr(added.contents, field or FIELDS[datatype]).extend(data)
    return request


def set_parameters(target: Any, **parameters: tuple[str, Any]) -> None:
    """Set parameters on a request or tensor: name=(field of InferParameter, value)."""
    for name, (field, value) in parameters.items():
        setattr(target.parameters[name], field, value)
