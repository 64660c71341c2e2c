"""V2 Inference over HTTP: JSON, with the Binary Tensor Data extension."""

import functools
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from typing import Any

from inferd.aio.inline import NotFast
from inferd.aio.offload import Work
from inferd.api.coded_bodies import CODING, CodedBodies
from inferd.api.copies import copied_bytes
from inferd.api.header_forward import add_forwarded
from inferd.api.tracing import OVER_HTTP, begin_http, until_sent
from inferd.api.v2.rows import INFER_HEADER
from inferd.core.request import InferRequest, InferResponse
from inferd.engine.engine import Engine
from inferd.engine.traced import TracedEngine
from inferd.errors import InferdError
from inferd.http.access import Headers
from inferd.http.coder import Coder
from inferd.http.content_coding import MIN_BYTES, choose_coding
from inferd.http.message import HttpAnswer, HttpRequest
from inferd.memory.batch_memory import LEAST_BYTES
from inferd.observe.trace import Trace
from inferd.tensor.dtype import DataType
from inferd.wire.v2 import binary as v2_binary
from inferd.wire.v2.rest.codec import JsonRules, V2Rest

_INFER_HEADER_LINE = v2_binary.HEADER.encode() + b": %d\r\n"
_OCTETS = b"application/octet-stream"


class RestInference:
    """Answers inferences of V2; `call` is the entry in the table of URLs."""

    def __init__(self, engine: Engine, rules: JsonRules, coder: Coder, coded: CodedBodies) -> None:
        self._engine = engine
        self._tracer = engine.tracer
        self._capacity = engine.capacity
        self._codec = V2Rest(rules, engine.regions.span)
        self._coder = coder
        self._coded = coded
        self._offload = engine.offload
        self.call = self.infer  # bound once, so that `is` recognizes it

    async def infer(
        self,
        request: HttpRequest,
        model: str,
        version: str = "",
        engine: Engine | TracedEngine | None = None,
    ) -> HttpAnswer:
        """Run V2 Inference, with the Binary Tensor Data extension; `engine` is set if traced."""
        headers = request.headers
        if (
            self._tracer.is_on
            and engine is None
            and (trace := begin_http(self._tracer, model, request))
        ):
            return await self._infer_traced(trace, request, model, version)
        engine = engine or self._engine
        if headers.get(CODING):
            return await self._coded.infer(self.infer, request, model, version, engine)
        begun = self.begin(engine, request, model, version)
        return begun if isinstance(begun, HttpAnswer) else await begun

    def begin(
        self, engine: Engine | TracedEngine, request: HttpRequest, model: str, version: str
    ) -> HttpAnswer | Coroutine[Any, Any, HttpAnswer]:
        """Begin `infer`; the body is not compressed, tracing is `engine`'s."""
        headers = request.headers
        asked = self._decode_row(model, version, request) if request.slot is not None else None
        slot_bytes = 0
        if asked is None:
            body = request.body
            json_size = len(body)
            if (declared := headers.get(INFER_HEADER)) is not None:
                json_size = v2_binary.json_length(declared, json_size)
            try:
                asked = self._codec.decode_infer_request(model, version, body, json_size)
            except NotFast:
                return self._infer_long(engine, request, model, version, json_size)
            except InferdError:
                engine.check_model(model, version)  # an unavailable model is the first error
                raise
            slot_bytes = len(body) - json_size
        if request.forwarded is not None:
            add_forwarded(asked, request.forwarded)
        response = engine.begin(asked)
        if isinstance(response, InferResponse):
            return self._encoded(headers, asked, response)
        if slot_bytes >= LEAST_BYTES and _has_rows(asked):
            asked.slot = self._capacity.batch_memory.note(request.target, slot_bytes)
        return self._infer_later(headers, asked, response)

    def _decode_row(self, model: str, version: str, request: HttpRequest) -> InferRequest | None:
        """Return the inference whose binary part was received in a row.

        Return None if `request` is not like one that came before, or is wrong; its body is then in
        one piece.
        """
        slot = request.slot
        assert slot is not None
        text, data = bytes(request.body), slot.view()
        asked = self._codec.decode_known_request(model, version, text, data)
        if asked is not None:
            asked.slot = slot
            return asked
        request.body, request.slot = memoryview(text + data), None
        return None

    def _encoded(
        self, headers: Headers, asked: InferRequest, response: InferResponse
    ) -> HttpAnswer | Coroutine[Any, Any, HttpAnswer]:
        try:
            encoded = self._codec.encode_infer_response(asked, response)
        except NotFast:
            return self._encode_in_thread(headers, asked, response)
        return self._as_accepted(headers, _inferred(encoded))

    def _as_accepted(
        self, headers: Headers, answer: HttpAnswer
    ) -> HttpAnswer | Coroutine[Any, Any, HttpAnswer]:
        """Return `answer`, or a coroutine that compresses it if the client accepts that."""
        accept = headers.get(b"accept-encoding")
        if accept and sum(map(len, answer.buffers)) >= MIN_BYTES:
            coding = choose_coding(accept)
            if coding != b"identity":
                return self._compressed(answer, coding)
        return answer

    async def _compressed(self, answer: HttpAnswer, coding: bytes) -> HttpAnswer:
        answer.buffers = [await self._coder.deflate(answer.buffers, coding)]
        answer.headers += b"Content-Encoding: %b\r\n" % coding
        return answer

    async def _infer_long(
        self,
        engine: Engine | TracedEngine,
        request: HttpRequest,
        model: str,
        version: str,
        json_size: int,
    ) -> HttpAnswer:
        """Answer a request that is too large to be decoded on the event loop."""
        try:
            asked = await self._decode_in_thread(model, version, request.body, json_size)
        except InferdError:
            engine.check_model(model, version)
            raise
        if request.forwarded is not None:
            add_forwarded(asked, request.forwarded)
        return await self._infer_later(request.headers, asked, engine.infer(asked))

    async def _infer_later(
        self, headers: Headers, asked: InferRequest, answering: Awaitable[InferResponse]
    ) -> HttpAnswer:
        """Answer a request that has to wait for its model."""
        begun = self._encoded(headers, asked, await answering)
        return begun if isinstance(begun, HttpAnswer) else await begun

    async def _encode_in_thread(
        self, headers: Headers, asked: InferRequest, response: InferResponse
    ) -> HttpAnswer:
        encode = functools.partial(self._codec.encode_infer_response, in_thread=True)
        encoded = await self._offload.run(Work.ENCODE, encode, asked, response)
        begun = self._as_accepted(headers, _inferred(encoded))
        return begun if isinstance(begun, HttpAnswer) else await begun

    async def _infer_traced(
        self, trace: Trace, request: HttpRequest, model: str, version: str
    ) -> HttpAnswer:
        with until_sent(self._tracer, trace, OVER_HTTP):
            return await self.infer(request, model, version, TracedEngine(self._engine, trace))

    async def _decode_in_thread(
        self, model: str, version: str, body: memoryview, json_size: int
    ) -> InferRequest:
        """Decode a request that is too large for the event loop."""
        if self._capacity.is_full:
            raise self._capacity.too_many_requests()
        decode = self._codec.decode_large
        request = None
        with suppress(NotFast):
            request = await self._offload.run(Work.DECODE, decode, model, version, body, json_size)
        if request is None:
            decode = self._codec.decode_slowly
            request = await self._offload.run(
                Work.DECODE_SLOWLY, decode, model, version, body, json_size
            )
        request.copied_bytes = copied_bytes(request, body)
        return request


def _has_rows(asked: InferRequest) -> bool:
    """Return whether requests like `asked` may be received in rows: one input, its length known."""
    return len(asked.inputs) == 1 and asked.inputs[0].datatype is not DataType.BYTES


def _inferred(encoded: tuple[list[Any], int | None]) -> HttpAnswer:
    buffers, json_size = encoded
    if json_size is None:
        return HttpAnswer(200, buffers)
    return HttpAnswer(200, buffers, _OCTETS, _INFER_HEADER_LINE % json_size)
