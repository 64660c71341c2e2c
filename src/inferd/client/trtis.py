"""Clients of the TensorRT Inference Server API, for tests and for moving to V2: HTTP and gRPC.

    with TrtisHttp("127.0.0.1:8000") as client:
        answer = client.infer("resnet50", {"input": images}, {"output": 3})
        answer.classes["output"][0][0].label

Network errors are raised unchanged: OSError and http.client.HTTPException, or grpc.RpcError.
"""

import http.client
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Self
from urllib.parse import quote

from inferd.errors import Refused
from inferd.tensor.array import Array
from inferd.wire.json.document import JsonObject
from inferd.wire.trtis import client as wire
from inferd.wire.trtis.client import LATEST, ClientRequest, Inferred, Known
from inferd.wire.trtis.grpc import SERVICE

DEFAULT_TIMEOUT_S = 60.0


class _Client(ABC):
    """What both transports share; each implements how a call is sent."""

    def __init__(self) -> None:
        # The API's binary bodies do not say what is in them: configuration must be known.
        self._known: dict[str, Known] = {}

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close."""
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    def is_live(self) -> bool:
        """Return whether the server can process requests."""
        return self._is_healthy("live")

    def is_ready(self) -> bool:
        """Return whether the server is ready for inference."""
        return self._is_healthy("ready")

    def status(self, model: str = "") -> JsonObject:
        """Return the ServerStatus of all models, or of one, as dicts. Raises Refused."""
        return wire.status_fields(self._status(model))

    def infer(
        self,
        model: str,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, int],
        *,
        version: int = LATEST,
        request_id: int = 0,
    ) -> Inferred:
        """Run `model`; `outputs` maps names to how many classes to return, 0 for the raw tensor.

        If the model batches, the first dim of inputs is the batch. Raises Refused, and
        InvalidRequest for an input that the model does not have.
        """
        if model not in self._known:
            self._known[model] = wire.known_model(self._status(model), model)
        known = self._known[model]
        request = wire.ask(known, inputs, outputs, request_id)
        return self._infer(known, model, version, request)

    @abstractmethod
    def _infer(
        self, known: Known, model: str, version: int, request: ClientRequest
    ) -> Inferred: ...

    @abstractmethod
    def _is_healthy(self, mode: str) -> bool: ...

    @abstractmethod
    def _status(self, model: str) -> bytes: ...


class TrtisHttp(_Client):
    """A connection to "host:port"; a call fails after `timeout_s` without receiving a byte."""

    def __init__(self, address: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        super().__init__()
        self._connection = http.client.HTTPConnection(address, timeout=timeout_s)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _infer(self, known: Known, model: str, version: int, request: ClientRequest) -> Inferred:
        which = "" if version == LATEST else f"/{version}"
        body = b"".join(request.buffers)
        path = f"/api/infer/{quote(model, safe='')}{which}?format=binary"
        headers = {"NV-InferRequest": request.line, "Content-Type": "application/octet-stream"}
        answer, data = self._ask("POST", path, body, headers)
        wire.check_status_line(answer.headers["NV-Status"])
        return wire.read_body(known, answer.headers["NV-InferResponse"] or "", data)

    def _is_healthy(self, mode: str) -> bool:
        answer, _ = self._ask("GET", f"/api/health/{mode}")
        return answer.status == 200

    def _status(self, model: str) -> bytes:
        path = f"/api/status/{quote(model, safe='')}" if model else "/api/status"
        answer, data = self._ask("GET", f"{path}?format=binary")
        wire.check_status_line(answer.headers["NV-Status"])
        return data

    def _ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[http.client.HTTPResponse, bytes]:
        try:
            self._connection.request(method, path, body, headers or {})
            answer = self._connection.getresponse()
            return answer, answer.read()
        except BaseException:
            self._connection.close()  # a half-sent request leaves it unusable
            raise


class TrtisGrpc(_Client):
    """A channel to "host:port"; a call takes at most `timeout_s`."""

    def __init__(self, address: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        import grpc

        super().__init__()
        # grpcio's own limit of 4 MiB is less than one image batch; -1 is none.
        limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._channel = grpc.insecure_channel(address, options=limits)
        self._timeout_s = timeout_s

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def _infer(self, known: Known, model: str, version: int, request: ClientRequest) -> Inferred:
        data = self._call("Infer", wire.encode_infer_request(model, version, request))
        return wire.read_infer_response(known, data)

    def _is_healthy(self, mode: str) -> bool:
        data = self._call("Health", wire.encode_call("Health", mode=mode))
        try:
            return bool(wire.read_call("Health", data).health)
        except Refused:  # the server is exiting
            return False

    def _status(self, model: str) -> bytes:
        data = self._call("Status", wire.encode_call("Status", model_name=model))
        status: bytes = wire.read_call("Status", data).server_status.SerializeToString()
        return status

    def _call(self, rpc: str, data: bytes) -> bytes:
        method = self._channel.unary_unary(f"/{SERVICE}/{rpc}", None, None)
        answer: bytes = method(data, timeout=self._timeout_s)
        return answer
