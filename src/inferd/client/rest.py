"""RestCalls: the calls of V2 over REST, and what their answers mean; no input or output.

The codecs that gRPC has, too, are imported where they are used: protobuf takes a while to load.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Final, TypeVar
from urllib.parse import quote

import orjson

from inferd.client.call import ClientCall, ServerAnswer
from inferd.client.errors import BadAnswer, InvalidTarget, ServerError, server_error
from inferd.client.failures import sendable
from inferd.client.regions import Registration
from inferd.core.load import LoadRequest, UnloadRequest
from inferd.core.metadata import IndexEntry, ModelMetadata, ServerMetadata
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import Code, InvalidRequest
from inferd.observe.statistics import ModelStatistics
from inferd.wire.json.document import JsonObject
from inferd.wire.shared_memory import places_of
from inferd.wire.v2.binary import HEADER, json_length
from inferd.wire.v2.rest.client import decode_infer_response, encode_infer_request
from inferd.wire.v2.rest.metadata import decode_model_metadata, decode_server_metadata

T = TypeVar("T")

_JSON: Final = (("Content-Type", "application/json"),)
_HEADER_KEY: Final = HEADER.lower()

_CODES = {
    400: Code.INVALID_ARG,
    401: Code.UNAUTHENTICATED,
    403: Code.FORBIDDEN,
    404: Code.NOT_FOUND,
    405: Code.UNSUPPORTED,
    409: Code.ALREADY_EXISTS,
    413: Code.TOO_LARGE,
    # FastAPI's status, so MLServer's and KServe's, for a body that does not fit its model.
    422: Code.INVALID_ARG,
    429: Code.UNAVAILABLE,
    # nginx's status for a client that has left.
    499: Code.CANCELLED,
    501: Code.UNSUPPORTED,
    502: Code.UNAVAILABLE,
    503: Code.UNAVAILABLE,
    504: Code.UNAVAILABLE,
}
"""What the statuses of HTTP mean; others are INVALID_ARG from 400 on and INTERNAL from 500 on."""

BINARY_EXTENSION = "binary_tensor_data"
"""Its name in the metadata of a server that has it."""


# A client asks the same few models again and again, and quoting costs more than the lookup.
@lru_cache(maxsize=1024)
def _url(model: str, version: str = "", verb: str = "") -> str:
    which = f"/versions/{_quoted(version)}" if version else ""
    return f"/v2/models/{_quoted(model)}{which}{verb and '/' + verb}"


@sendable()
def _quoted(text: str) -> str:
    return quote(text, safe="")


# No state: what differs between clients is in the head and the connection.
class RestCalls:
    """Makes calls. `refusal` says which answers are errors."""

    def live(self) -> ClientCall[bool]:
        """Whether the server is live."""
        return _health("/v2/health/live")

    def ready(self) -> ClientCall[bool]:
        """Whether the server is ready."""
        return _health("/v2/health/ready")

    def model_ready(self, model: str, version: str) -> ClientCall[bool]:
        """Whether a model is ready."""
        return _health(_url(model, version, "ready"))

    def server_metadata(self) -> ClientCall[ServerMetadata]:
        """Name, version and extensions of the server."""
        return _get("/v2", decode_server_metadata)

    def metadata(self, model: str, version: str) -> ClientCall[ModelMetadata]:
        """Inputs and outputs of a model."""
        return _get(_url(model, version), decode_model_metadata)

    def config(self, model: str, version: str) -> ClientCall[JsonObject]:
        """The configuration of a model."""
        return _get(_url(model, version, "config"), _read_object)

    def statistics(self, model: str, version: str) -> ClientCall[list[ModelStatistics]]:
        """The statistics of a model, or of all."""
        from inferd.wire.v2.statistics import decode_statistics

        path = _url(model, version, "stats") if model else "/v2/models/stats"
        return _get(path, decode_statistics)

    def index(self, *, ready: bool) -> ClientCall[list[IndexEntry]]:
        """The models of the repository."""
        from inferd.wire.v2.repository import decode_index

        body = orjson.dumps({"ready": ready})
        return _post("/v2/repository/index", decode_index, body, is_safe=True)

    def load(self, load: LoadRequest) -> ClientCall[None]:
        """Load a model."""
        from inferd.wire.v2.repository import encode_load_request

        path = f"/v2/repository/models/{_quoted(load.model)}/load"
        body = encode_load_request(load) if load.files or load.config is not None else b"{}"
        return _post(path, _read_nothing, body)

    def unload(self, unload: UnloadRequest) -> ClientCall[None]:
        """Unload a model."""
        from inferd.wire.v2.repository import encode_unload_request

        path = f"/v2/repository/models/{_quoted(unload.model)}/unload"
        body = encode_unload_request(unload) if unload.unload_dependents else b"{}"
        return _post(path, _read_nothing, body)

    def trace_settings(
        self, model: str, changes: Mapping[str, object] | None
    ) -> ClientCall[dict[str, object]]:
        """Trace settings, of all models or of one, after `changes`."""
        path = _url(model, "", "trace/setting") if model else "/v2/trace/setting"
        return _settings(path, changes)

    def log_settings(self, changes: Mapping[str, object] | None) -> ClientCall[dict[str, object]]:
        """Log settings, after `changes`."""
        return _settings("/v2/logging", changes)

    def register(self, region: Registration) -> ClientCall[None]:
        """Make a region of system shared memory known."""
        path = f"/v2/systemsharedmemory/region/{quote(region.name, safe='')}/register"
        body = {"key": region.key, "offset": 0, "byte_size": region.size_bytes}
        return _post(path, _read_nothing, orjson.dumps(body))

    def unregister(self, name: str) -> ClientCall[None]:
        """Forget a region."""
        path = f"/v2/systemsharedmemory/region/{quote(name, safe='')}/unregister"
        return _post(path, _read_nothing, b"")

    def infer(self, request: InferRequest, *, binary: bool) -> ClientCall[InferResponse]:
        """One inference. Raises InvalidRequest for what JSON cannot say."""
        return self._infer(request, "infer", binary=binary)

    def stream(self, request: InferRequest, *, binary: bool) -> ClientCall[InferResponse]:
        """An inference with any number of answers, each of which is an event."""
        return self._infer(request, "infer_stream", binary=binary)

    def _infer(
        self, request: InferRequest, verb: str, *, binary: bool
    ) -> ClientCall[InferResponse]:
        buffers, size = encode_infer_request(request, binary=binary)
        if size is None:
            headers: Sequence[tuple[str, str]] = _JSON
        else:
            headers = ((HEADER, str(size)),)
        path = _url(request.model, request.version, verb)
        read: Callable[[ServerAnswer], InferResponse] = _read_response
        if places := places_of(request):
            read = partial(_read_response, places=places)
        return ClientCall(path, read, buffers, headers=headers, is_safe=False)

    def open_stream(self) -> ClientCall[InferResponse]:
        """Raise InvalidTarget: a stream of many requests is gRPC's."""
        raise InvalidTarget("REST has no stream of many requests; open a client of grpc://")

    def read_message(self, message: memoryview) -> InferResponse:
        """Return one of the answers of a stream. Raises ServerError, BadAnswer."""
        # An event with an error has nothing else; reading each as JSON twice would cost too much.
        if bytes(message[:200]).lstrip().startswith(b'{"error"'):
            text = _error_text(message)
            # The status was said before the error was known.
            raise server_error("200", text, Code.UNKNOWN, {})
        return decode_infer_response(message, len(message))

    def refusal(self, answer: ServerAnswer) -> ServerError | BadAnswer | None:
        """Return the error that `answer` is, None for a good one."""
        status = answer.status
        if status == 200:
            return None
        if status < 400:
            where = answer.headers.get("location", "")
            msg = f"the server answers with status {status} {where}, expected 200"
            return BadAnswer(msg)
        code = _CODES.get(status, Code.INVALID_ARG if status < 500 else Code.INTERNAL)
        retry_s = _seconds(answer.headers.get("retry-after", ""))
        error = server_error(str(status), _error_text(answer.body), code, answer.headers, retry_s)
        # Said instead of doing it (RFC 6585, section 4); 503 may come from a gateway after it has
        # passed the call on.
        error.is_untaken = status == 429
        return error


def _health(path: str) -> ClientCall[bool]:
    return ClientCall(path, lambda _answer: True, verb="GET", is_health=True)


def _get(path: str, decode: Callable[[bytes], T]) -> ClientCall[T]:
    return ClientCall(path, lambda answer: decode(bytes(answer.body)), verb="GET")


def _post(
    path: str, decode: Callable[[bytes], T], body: bytes, *, is_safe: bool = False
) -> ClientCall[T]:
    return ClientCall(
        path,
        lambda answer: decode(bytes(answer.body)),
        [body] if body else [],
        headers=_JSON,
        is_safe=is_safe,
    )


def _settings(path: str, changes: Mapping[str, object] | None) -> ClientCall[JsonObject]:
    if changes is None:
        return _get(path, _read_object)
    try:
        # orjson takes dicts, not each Mapping.
        return _post(path, _read_object, orjson.dumps(dict(changes)), is_safe=True)
    except TypeError as error:
        raise InvalidRequest(f"the settings cannot be said in JSON: {error}") from None


def _seconds(text: str) -> float | None:
    # Retry-After may be a date as well (RFC 9110, section 10.2.3), which no inference server sends.
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _error_text(body: memoryview) -> str:
    """Return what the body of an error says: the text in `error`, or in FastAPI's `detail`."""
    # A proxy may send a page: what is shown is cut to MAX_SHOWN anyway.
    text = bytes(body[:65536]).decode(errors="replace").strip()
    try:
        document = json.loads(text)
    # Deeply nested JSON must be no crash of the client.
    except (ValueError, RecursionError):
        return text
    if isinstance(document, dict):
        # `error` is the protocol's; the others are those of frameworks and gateways.
        for key in ("error", "detail", "message"):
            if found := document.get(key):
                return found if isinstance(found, str) else json.dumps(found)
    return text


def _read_nothing(body: bytes) -> None:
    # Servers have nothing to say, or say it in JSON; a page means that something else listens.
    if body.lstrip()[:1] == b"<":
        raise BadAnswer(f"the answer is a page, {bytes(body.lstrip()[:60])!r}")


def _read_object(body: bytes) -> JsonObject:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadAnswer(f"the answer is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadAnswer("the answer is JSON, but no object")
    return document


def _read_response(
    answer: ServerAnswer, places: Mapping[str, memoryview] | None = None
) -> InferResponse:
    body = answer.body
    # Without Inference-Header-Content-Length all of the body is JSON (binary data extension).
    header = answer.headers.get(_HEADER_KEY)
    size = len(body) if header is None else json_length(header.encode(), len(body))
    return decode_infer_response(body, size, places)
