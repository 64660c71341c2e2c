"""SampledCodec: a codec that copies the payloads of some requests for the payload log.

Whether a request is among them is decided before anything is copied. What is kept is copied at
that moment: a view would hold on to the memory of a batch, and clients may write to shared memory
again. A payload that cannot be logged never makes its request fail.
"""

import uuid
from copy import copy
from time import time
from typing import Any

import orjson

from inferd.compiled import mypyc_attr
from inferd.config.options.log import PayloadPolicy
from inferd.core.request import InferRequest, InferResponse, WantedOutput
from inferd.errors import InferdError
from inferd.http.message import HttpRequest
from inferd.memory.buffer import Buffer
from inferd.observe.payloads.event import REQUEST, RESPONSE, PayloadEvent
from inferd.observe.payloads.log import PayloadLog
from inferd.wire.infer_codec import InferCodec
from inferd.wire.shared_memory import placed_bytes
from inferd.wire.v2.rest.client import encode_infer_request

_EVENT_ID = "ce-id"
_LONGEST_ID = 200


class PayloadSample:
    """What is known of a request whose payloads are logged: the `id` of its events."""

    def __init__(self, id: str, policy: PayloadPolicy) -> None:
        self.id = id
        self.policy = policy


@mypyc_attr(allow_interpreted_subclasses=True)
class SampledCodec(InferCodec):
    """Does what `codec` does, and gives `log` copies of what some requests and answers contain.

    `protocol` is the name of the one that clients speak.
    """

    def __init__(self, codec: InferCodec, log: PayloadLog, protocol: str) -> None:
        self._codec = codec
        self._log = log
        self._protocol = protocol

    def decode(self, message: Any, call: Any) -> InferRequest:
        """See InferCodec."""
        request = self._codec.decode(message, call)
        # The draw is made here, once per request, before anything costs.
        if self._log.takes(request.model):
            self._keep_request(request, message, call)
        return request

    def decode_large(self, message: Any, call: Any, *, slowly: bool = False) -> InferRequest:
        """See InferCodec."""
        request = self._codec.decode_large(message, call, slowly=slowly)
        if self._log.takes(request.model):
            self._keep_request(request, message, call)
        return request

    def body_of(self, message: Any, call: Any) -> Any:
        """See InferCodec."""
        return self._codec.body_of(message, call)

    def model_of(self, message: object, call: object) -> tuple[str, str]:
        """See InferCodec."""
        return self._codec.model_of(message, call)

    def encode(
        self,
        request: InferRequest,
        response: InferResponse,
        message: Any,
        call: Any,
        *,
        in_thread: bool = False,
    ) -> Any:
        """See InferCodec."""
        answer = self._codec.encode(request, response, message, call, in_thread=in_thread)
        if request.sample is not None:
            self._keep_response(request, response, answer)
        return answer

    def encode_stream(self, request: InferRequest, response: InferResponse) -> list[Buffer]:
        """See InferCodec."""
        answer = self._codec.encode_stream(request, response)
        # The empty last answer of a stream is no payload.
        if request.sample is not None and response.outputs:
            self._keep_response(request, response, answer)
        return answer

    def rest_body(self, call: object) -> tuple[list[Buffer], int | None] | None:
        """See InferCodec."""
        return self._codec.rest_body(call)

    def rest_answer(self, answer: object) -> tuple[list[Buffer], int | None] | None:
        """See InferCodec."""
        return self._codec.rest_answer(answer)

    # --- what is kept ---

    def _keep_request(self, request: InferRequest, message: object, call: object) -> None:
        try:
            policy = self._log.policy(request.model)
            sample = PayloadSample(_id_of(call), policy)
            request.sample = sample
            if policy.mode == "response":
                return
            # What was in shared memory is not in the body, and is read before the client writes to
            # it again.
            as_sent = self._codec.rest_body(call) if request.spans is None else None
            parts, json_size = as_sent or request_parts(request)
            self._keep(REQUEST, sample, request.model, request.version, parts, json_size)
        except Exception as error:  # noqa: BLE001  it must not make the request fail
            self._fail(error)

    def _keep_response(
        self, request: InferRequest, response: InferResponse, answer: object
    ) -> None:
        sample: PayloadSample = request.sample
        if sample.policy.mode == "request":
            return
        try:
            as_sent = self._codec.rest_answer(answer) if request.spans is None else None
            parts, json_size = as_sent or response_parts(request, response)
            self._keep(RESPONSE, sample, request.model, response.version, parts, json_size)
        except Exception as error:  # noqa: BLE001  it must not make the request fail
            self._fail(error)

    def _keep(
        self,
        kind: str,
        sample: PayloadSample,
        model: str,
        version: str,
        parts: list[Buffer],
        json_size: int | None,
    ) -> None:
        # The whole size is told even if less is kept.
        size = sum([len(part) for part in parts])
        copy_size = min(size, sample.policy.max_bytes)
        # What does not fit is counted by the log as dropped.
        if not self._log.has_room(copy_size):
            return
        data = copied(parts, copy_size)
        self._log.add(
            PayloadEvent(
                sample.id, kind, time(), self._protocol, model, version, data, json_size, size
            )
        )

    def _fail(self, error: Exception) -> None:
        self._log.fail(error.message if isinstance(error, InferdError) else repr(error)[:200])


def copied(parts: list[Buffer], size: int) -> bytes:
    """Return a copy of the first `size` bytes of `parts`."""
    taken = []
    for part in parts:
        view = memoryview(part)
        taken.append(view[:size])
        size -= len(taken[-1])
        if size <= 0:
            break
    return b"".join(taken)


def request_parts(request: InferRequest) -> tuple[list[Buffer], int | None]:
    """Return `request` as a body of V2 over REST, with all tensors as binary data.

    Those in shared memory are read there.
    """
    if request.spans is not None:
        request = copy(request)
        request.spans = None
        request.outputs = [WantedOutput(one.name, True, one.top_k) for one in request.outputs]
    return encode_infer_request(request, binary=True)


def response_parts(
    request: InferRequest, response: InferResponse
) -> tuple[list[Buffer], int | None]:
    """Return `response` as a body of V2 over REST, with all outputs as binary data.

    Those that were put into shared memory are read there.
    """
    places = {wanted.name: wanted.place for wanted in request.outputs}
    blobs: list[Buffer] = []
    outputs = []
    for tensor in response.outputs:
        place = places.get(tensor.name)
        if place is None:
            view = tensor.view()
        else:
            view = place.view[: placed_bytes(tensor.datatype, tensor.shape, place.view)]
        blobs.append(view)
        outputs.append(
            {
                "name": tensor.name,
                "datatype": tensor.datatype.value,
                "shape": tensor.shape,
                "parameters": (tensor.parameters or {}) | {"binary_data_size": len(view)},
            }
        )
    document: dict[str, object] = {"model_name": response.model, "outputs": outputs}
    if response.version:
        document["model_version"] = response.version
    if response.id:
        document["id"] = response.id
    if response.parameters:
        document["parameters"] = response.parameters
    head = orjson.dumps(document)
    return [head, *blobs], len(head)


def _id_of(call: Any) -> str:
    """Return the id of the events of a request: the one that the client gives, or a new one."""
    given = b""
    if isinstance(call, HttpRequest):
        given = call.headers.get(_EVENT_ID.encode(), b"")
    elif call is not None:
        for key, value in call.metadata:
            if key == _EVENT_ID:
                given = str(value).encode()
    # CloudEvents needs an id, unique for its source.
    return given[:_LONGEST_ID].decode("latin-1") or str(uuid.uuid4())
