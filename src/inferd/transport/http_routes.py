"""The URLs of V2: one line each, which call and which codec."""

import functools
import logging
from collections.abc import Awaitable, Callable
from urllib.parse import unquote_to_bytes

from inferd.core.request import InferRequest
from inferd.engine.engine import Engine
from inferd.errors import InferdError, ModelNotFound
from inferd.transport.failure import FailureLog
from inferd.transport.http_coding import MIN_BYTES, choose_coding, deflate, inflate
from inferd.transport.http_message import HttpAnswer, HttpRequest
from inferd.transport.lane import Lane
from inferd.wire import v2_binary, v2_rest
from inferd.wire.inline import NotFast
from inferd.wire.v2_rest import HTTP_STATUS, JsonRules, V2Rest

log = logging.getLogger("inferd.http")

_INFER_HEADER = v2_binary.HEADER.lower().encode()
_OCTETS = b"application/octet-stream"


class HttpRoutes:
    """Answers requests by asking the engine. The wall: nothing raised inside gets past `answer`."""

    def __init__(self, engine: Engine, rules: JsonRules, *, not_ready_status: int) -> None:
        self._engine = engine
        self._codec = V2Rest(rules)
        self._max_inflated_bytes = rules.max_json_bytes
        self._not_ready_status = not_ready_status
        self._failures = FailureLog(log)
        self._decoding = Lane("inferd-decode")
        self._slow_decoding = Lane("inferd-decode-slowly")
        self._encoding = Lane("inferd-encode")

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Return the answer of `request`, whatever happens."""
        try:
            route = find_route(request.target)
            if route is None:
                return _not_found(request)
            call = route.calls.get(request.method)
            if call is None:
                return _wrong_method(request, route.calls)
            return await call(self, request, route.model, route.version)
        except InferdError as error:
            self._failures.note(request.target.decode("latin-1"), error)
            return error_answer(HTTP_STATUS[error.code], error.message)
        except Exception as error:  # noqa: BLE001  the wall
            self._failures.note(request.target.decode("latin-1"), error)
            return error_answer(
                500, "the server failed in a way it does not understand; see its log"
            )

    async def infer(self, request: HttpRequest, model: str, version: str) -> HttpAnswer:
        """V2 Inference, with the Binary Tensor Data extension."""
        headers = request.headers
        body = request.body
        if coding := headers.get(b"content-encoding"):
            if coding not in (b"gzip", b"deflate", b"identity"):
                return _unknown_coding(coding)
            body = await inflate(body, coding, self._max_inflated_bytes)
        json_size = len(body)
        if (declared := headers.get(_INFER_HEADER)) is not None:
            json_size = v2_binary.json_length(declared, json_size)
        try:
            try:
                infer_request = self._codec.decode_infer_request(model, version, body, json_size)
            except NotFast:
                infer_request = await self._decode_in_thread(model, version, body, json_size)
        except InferdError:
            self._engine.check_model(model, version)  # an unknown model is the greater mistake
            raise
        response = await self._engine.infer(infer_request)
        try:
            encoded = self._codec.encode_infer_response(infer_request, response)
        except NotFast:
            encode = functools.partial(self._codec.encode_infer_response, in_thread=True)
            encoded = await self._encoding.run(encode, infer_request, response)
        buffers, json_size_out = encoded
        answer = HttpAnswer(200, buffers)
        if json_size_out is not None:
            answer.content_type = _OCTETS
            answer.headers = b"%b: %d\r\n" % (v2_binary.HEADER.encode(), json_size_out)
        if accept := headers.get(b"accept-encoding"):
            await _compress(answer, accept)
        return answer

    async def _decode_in_thread(
        self, model: str, version: str, body: memoryview, json_size: int
    ) -> InferRequest:
        """Decode what is too long for the event loop."""
        decode = self._codec.decode_large
        try:
            return await self._decoding.run(decode, model, version, body, json_size)
        except NotFast:
            decode = self._codec.decode_slowly
            return await self._slow_decoding.run(decode, model, version, body, json_size)

    async def live(self, _request: HttpRequest, _model: str, _version: str) -> HttpAnswer:
        """V2 Server Live."""
        live = self._engine.is_live()
        return _json(v2_rest.encode_live(live=live), 200 if live else self._not_ready_status)

    async def ready(self, _request: HttpRequest, _model: str, _version: str) -> HttpAnswer:
        """V2 Server Ready; the body has both spellings the specs print."""
        if self._engine.is_ready():
            return _json(v2_rest.encode_ready(ready=True))
        body = v2_rest.encode_ready(ready=False, error="the server is not ready for inference")
        return _json(body, self._not_ready_status)

    async def model_ready(self, _request: HttpRequest, model: str, version: str) -> HttpAnswer:
        """V2 Model Ready."""
        try:
            ready = self._engine.is_model_ready(model, version)
        except ModelNotFound as error:
            return _json(v2_rest.encode_model_ready(model, ready=False, error=error.message), 404)
        if ready:
            return _json(v2_rest.encode_model_ready(model, ready=True))
        text = f"model '{model}' is not ready"
        body = v2_rest.encode_model_ready(model, ready=False, error=text)
        return _json(body, self._not_ready_status)

    async def server_metadata(
        self, _request: HttpRequest, _model: str, _version: str
    ) -> HttpAnswer:
        """V2 Server Metadata."""
        return _json(v2_rest.encode_server_metadata(self._engine.server_metadata()))

    async def model_metadata(self, _request: HttpRequest, model: str, version: str) -> HttpAnswer:
        """V2 Model Metadata."""
        return _json(v2_rest.encode_model_metadata(self._engine.model_metadata(model, version)))

    async def model_names(self, _request: HttpRequest, _model: str, _version: str) -> HttpAnswer:
        """The models that are ready, as KServe lists them."""
        return _json(v2_rest.encode_model_names(self._engine.model_names()))


Call = Callable[[HttpRoutes, HttpRequest, str, str], Awaitable[HttpAnswer]]

ROUTES: list[tuple[str, str, Call]] = [
    ("GET", "/v2", HttpRoutes.server_metadata),
    ("GET", "/v2/health/live", HttpRoutes.live),
    ("GET", "/v2/health/ready", HttpRoutes.ready),
    ("GET", "/v2/models", HttpRoutes.model_names),
    ("GET", "/v2/models/{model}", HttpRoutes.model_metadata),
    ("GET", "/v2/models/{model}/versions/{version}", HttpRoutes.model_metadata),
    ("GET", "/v2/models/{model}/ready", HttpRoutes.model_ready),
    ("GET", "/v2/models/{model}/versions/{version}/ready", HttpRoutes.model_ready),
    ("POST", "/v2/models/{model}/infer", HttpRoutes.infer),
    ("POST", "/v2/models/{model}/versions/{version}/infer", HttpRoutes.infer),
]


class Route:
    """What one URL means: the calls by verb, and the names in the path."""

    __slots__ = ("calls", "model", "version")

    def __init__(self, calls: dict[bytes, Call], model: str = "", version: str = "") -> None:
        self.calls = calls
        self.model = model
        self.version = version


def _by_pattern() -> dict[tuple[str, ...], dict[bytes, Call]]:
    table: dict[tuple[str, ...], dict[bytes, Call]] = {}
    for verb, path, call in ROUTES:
        calls = table.setdefault(tuple(path[1:].split("/")), {})
        calls[verb.encode()] = call
        if verb == "GET":
            calls[b"HEAD"] = call
    return table


_PATTERNS = _by_pattern()


@functools.lru_cache(1024)  # of targets up to the limit of heads, so 16 MiB at most
def find_route(target: bytes) -> Route | None:
    """Return what a request target means, None for nothing.

    One trailing slash is tolerated, a query ignored.

    Percent escapes are decoded after the path is split, so an escaped slash stays in its name.
    """
    path = target.partition(b"?")[0].partition(b"#")[0]
    if path.startswith((b"http://", b"https://")):  # absolute form (RFC 9112, section 3.2.2)
        path = b"/" + b"/".join(path.split(b"/")[3:])
    if not path.startswith(b"/"):
        return None
    segments = path.removesuffix(b"/").split(b"/")[1:]
    names = [unquote_to_bytes(segment).decode(errors="replace") for segment in segments]
    for pattern, calls in _PATTERNS.items():
        if len(pattern) == len(names) and all(
            name and want in (name, "{model}", "{version}")
            for want, name in zip(pattern, names, strict=True)
        ):
            found = dict(zip(pattern, names, strict=True))
            return Route(calls, found.get("{model}", ""), found.get("{version}", ""))
    return None


def error_answer(status: int, message: str, headers: bytes = b"") -> HttpAnswer:
    """Return the V2 error object with `status`; exactly application/json, as clients want it."""
    return HttpAnswer(status, [v2_rest.encode_error(message)], headers=headers)


def _json(body: bytes, status: int = 200) -> HttpAnswer:
    return HttpAnswer(status, [body])


def _not_found(request: HttpRequest) -> HttpAnswer:
    path = request.target.partition(b"?")[0][:200].decode("latin-1")
    return error_answer(404, f"there is nothing at '{path}'")


def _wrong_method(request: HttpRequest, calls: dict[bytes, Call]) -> HttpAnswer:
    allowed = b", ".join(sorted(calls))
    method = request.method[:40].decode("latin-1")
    text = f"method {method} is not allowed here, expected {allowed.decode()}"
    return error_answer(405, text, b"Allow: %b\r\n" % allowed)


def _unknown_coding(coding: bytes) -> HttpAnswer:
    # Triton answers 501 here, not 415: clients match on it.
    text = f"Content-Encoding '{coding[:40].decode('latin-1')}' is not one of gzip, deflate"
    return error_answer(501, text, b"Accept-Encoding: gzip, deflate\r\n")


async def _compress(answer: HttpAnswer, accept: bytes) -> None:
    coding = choose_coding(accept)
    if coding != b"identity" and sum(map(len, answer.buffers)) >= MIN_BYTES:
        answer.buffers = [await deflate(answer.buffers, coding)]
        answer.headers += b"Content-Encoding: %b\r\n" % coding
