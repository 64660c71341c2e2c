"""V2 Inference over HTTP: JSON, with the Binary Tensor Data extension."""

from collections.abc import Awaitable
from typing import Any

from inferd.api.coded_bodies import CODING, CodedBodies
from inferd.api.inference import HttpInference
from inferd.api.tracing import until_sent
from inferd.core.request import InferRequest, InferResponse
from inferd.engine.engine import Engine
from inferd.engine.traced import TracedEngine
from inferd.errors import InvalidRequest
from inferd.http.coding import MIN_BYTES, Coder, choose_coding
from inferd.http.message import HttpAnswer, HttpRequest
from inferd.memory.buffer import Buffer
from inferd.wire.infer_codec import InferCodec
from inferd.wire.v2 import binary as v2_binary
from inferd.wire.v2.binary import HEADER_KEY
from inferd.wire.v2.rest.codec import JsonRules, V2Rest

_INFER_HEADER_LINE = v2_binary.HEADER.encode() + b": %d\r\n"
_OCTETS = b"application/octet-stream"


class RestInference(HttpInference):
    """Answers inferences of V2.

    Bodies are inflated by `coded`, answers deflated by `coder`, as the client wishes.
    """

    def __init__(
        self,
        engine: Engine,
        rules: JsonRules,
        coder: Coder,
        coded: CodedBodies,
        *,
        forwards: bool,
    ) -> None:
        codec = RestCodec(V2Rest(rules, engine.regions.span))
        super().__init__(engine, codec, forwards=forwards, refuses_when_full=True)
        self._coder = coder
        self._coded = coded

    async def infer(
        self,
        request: HttpRequest,
        model: str,
        version: str = "",
        engine: Engine | TracedEngine | None = None,
    ) -> HttpAnswer:
        """Answer a request that may be traced, or have a compressed body."""
        if (
            engine is None
            and self._tracer.is_on
            and (trace := self.begin_trace(model, request)) is not None
        ):
            with until_sent(self._tracer, trace, self._sending):
                return await self.infer(request, model, version, TracedEngine(self.engine, trace))
        engine = engine or self.engine
        if request.headers.get(CODING):
            # It calls back with the body inflated, and the trace begun here.
            return await self._coded.infer(self.infer, request, model, version, engine)
        answer = self.begin((model, version), request, engine)
        return answer if isinstance(answer, HttpAnswer) else await answer

    def begin(self, message: Any, call: Any, engine: Engine | TracedEngine | None = None) -> Any:
        """See Inference; `message` is the names in the URL, model and perhaps version."""
        request: HttpRequest = call
        if engine is None:
            # The two reasons for a coroutine; without them the answer may be there at once.
            if self._tracer.is_on or CODING in request.headers:
                return self.infer(request, *message)
            engine = self.engine
        answer = super().begin(message, request, engine)
        accept = request.headers.get(b"accept-encoding")
        return self._as_accepted(answer, accept) if accept else answer

    def _as_accepted(self, answer: Any, accept: bytes) -> Any:
        """Return `answer`, compressed in a way that the client accepts, or a coroutine for it."""
        if not isinstance(answer, HttpAnswer):
            return self._accepted_later(answer, accept)
        # Below that, compressing makes nothing smaller that matters, and costs a thread.
        if sum(map(len, answer.buffers)) >= MIN_BYTES:
            coding = choose_coding(accept)
            if coding != b"identity":
                return self._compressed(answer, coding)
        return answer

    async def _accepted_later(self, running: Awaitable[HttpAnswer], accept: bytes) -> HttpAnswer:
        answer = self._as_accepted(await running, accept)
        return answer if isinstance(answer, HttpAnswer) else await answer

    async def _compressed(self, answer: HttpAnswer, coding: bytes) -> HttpAnswer:
        # In a thread if large: see Coder.
        answer.buffers = [await self._coder.deflate(answer.buffers, coding)]
        answer.headers += b"Content-Encoding: %b\r\n" % coding
        return answer


class RestCodec(InferCodec):
    """The codec of V2 over HTTP: messages are the names in the URL, model and perhaps version."""

    def __init__(self, rest: V2Rest) -> None:
        self._rest = rest

    def decode(self, message: Any, call: Any) -> InferRequest:
        """See InferCodec."""
        names: tuple[str, ...] = message
        http_request: HttpRequest = call
        model = names[0]
        version = names[1] if len(names) > 1 else ""
        body = http_request.body
        json_size = len(body)
        if (declared := http_request.headers.get(HEADER_KEY)) is not None:
            json_size = v2_binary.json_length(declared, json_size)
        elif json_size == 0:
            raise v2_binary.no_body()
        return self._rest.decode_infer_request(model, version, body, json_size)

    def rest_body(self, call: Any) -> tuple[list[Buffer], int | None] | None:
        """See InferCodec."""
        http_request: HttpRequest = call
        declared = http_request.headers.get(HEADER_KEY)
        return [http_request.body], None if declared is None else int(declared)

    def rest_answer(self, answer: Any) -> tuple[list[Buffer], int | None] | None:
        """See InferCodec."""
        http_answer: HttpAnswer = answer
        if http_answer.content_type != _OCTETS:
            return http_answer.buffers, None
        # The header's own line, which encode has made: it is the first.
        declared = http_answer.headers.partition(b":")[2].partition(b"\r")[0]
        return http_answer.buffers, int(declared)

    def decode_large(self, message: Any, call: Any, *, slowly: bool = False) -> InferRequest:
        """See InferCodec."""
        model, version = _names(message)
        decode = self._rest.decode_slowly if slowly else self._rest.decode_large
        return decode(model, version, call.body, _json_size(call))

    def body_of(self, message: Any, call: Any) -> Any:
        """See InferCodec."""
        return call.body

    def model_of(self, message: Any, call: Any) -> tuple[str, str]:
        """See InferCodec; a wrong length of the JSON is the first error."""
        try:
            _json_size(call)
        except InvalidRequest:
            return "", ""
        return _names(message)

    def encode(
        self,
        request: InferRequest,
        response: InferResponse,
        message: Any,
        call: Any,
        *,
        in_thread: bool = False,
    ) -> HttpAnswer:
        """See InferCodec."""
        rest = self._rest
        buffers, json_size = rest.encode_infer_response(request, response, in_thread=in_thread)
        if json_size is None:
            return HttpAnswer(200, buffers)
        return HttpAnswer(200, buffers, _OCTETS, _INFER_HEADER_LINE % json_size)


def _names(names: tuple[str, ...]) -> tuple[str, str]:
    return names[0], names[1] if len(names) > 1 else ""


def _json_size(request: HttpRequest) -> int:
    """Return how many bytes of the body are JSON. Raises InvalidRequest."""
    return v2_binary.json_length(request.headers.get(HEADER_KEY), len(request.body))
