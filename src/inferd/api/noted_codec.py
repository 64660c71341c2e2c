"""NotedCodec: a codec that tells the log of requests which inference a request is."""

from typing import Any

from inferd.compiled import mypyc_attr
from inferd.core.request import InferRequest, InferResponse
from inferd.http.message import HttpRequest
from inferd.http.request_log import Notes
from inferd.memory.buffer import Buffer
from inferd.wire.infer_codec import InferCodec


@mypyc_attr(allow_interpreted_subclasses=True)
class NotedCodec(InferCodec):
    """Does what `codec` does, and puts the inference into the notes of its call."""

    def __init__(self, codec: InferCodec) -> None:
        self._codec = codec

    def decode(self, message: Any, call: Any) -> InferRequest:
        """See InferCodec."""
        request = self._codec.decode(message, call)
        note(call, request)
        return request

    def decode_large(self, message: Any, call: Any, *, slowly: bool = False) -> InferRequest:
        """See InferCodec."""
        request = self._codec.decode_large(message, call, slowly=slowly)
        note(call, request)
        return request

    def body_of(self, message: Any, call: Any) -> Any:
        """See InferCodec."""
        return self._codec.body_of(message, call)

    def model_of(self, message: object, call: object) -> tuple[str, str]:
        """See InferCodec; what cannot be decoded is noted by its model."""
        model, version = self._codec.model_of(message, call)
        if model:
            # Nothing more is known of a request that could not be read.
            note(call, InferRequest(model, version))
        return model, version

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
        notes = notes_of(call)
        if notes is not None:
            notes.version = response.version
        return self._codec.encode(request, response, message, call, in_thread=in_thread)

    def encode_stream(self, request: InferRequest, response: InferResponse) -> list[Buffer]:
        """See InferCodec."""
        return self._codec.encode_stream(request, response)


def notes_of(call: Any) -> Notes | None:
    """Return the notes of an HTTP request or a call of gRPC, None if it is not logged."""
    if isinstance(call, HttpRequest):
        found: Notes | None = call.notes
        return found
    if call is None:  # an event of a stream, which has no call of its own
        return None
    noted: Notes | None = call.notes
    return noted


def note(call: Any, request: InferRequest) -> None:
    """Note that `call` is about `request`."""
    notes = notes_of(call)
    if notes is not None:
        notes.about = request
