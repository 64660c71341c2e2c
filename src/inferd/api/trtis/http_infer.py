"""Inference over HTTP by the TensorRT Inference Server API."""

from collections.abc import Awaitable, Coroutine
from typing import Any
from urllib.parse import parse_qs

from inferd.aio.inline import NotFast
from inferd.api.header_forward import add_forwarded
from inferd.api.tracing import OVER_HTTP, begin_http, until_sent
from inferd.api.trtis.trtis import Trtis
from inferd.core.request import InferRequest, InferResponse
from inferd.engine.traced import TracedEngine
from inferd.errors import Code, InferdError, InvalidRequest
from inferd.http.failure import FailureLog
from inferd.http.message import HttpAnswer, HttpRequest
from inferd.http.overload import RETRY_AFTER
from inferd.wire.trtis.answer import Answer
from inferd.wire.trtis.header import InferHeader
from inferd.wire.trtis.http import REQUEST, Body, decode_request_header
from inferd.wire.trtis.infer import Form, status_of

_OCTETS = b"application/octet-stream"
_TEXT = b"text/plain; charset=utf-8"
_HEADER = REQUEST.lower().encode()
_REFUSED = {
    Code.UNAUTHENTICATED: 401,
    Code.FORBIDDEN: 403,
    Code.RESTRICTED: 403,
    Code.TOO_LARGE: 413,
}


class TrtisInference:
    """Answers inferences of the old API; `call` is the entry in the table of URLs."""

    def __init__(self, trtis: Trtis, failures: FailureLog) -> None:
        self._trtis = trtis
        self._engine = trtis.engine
        self._tracer = trtis.engine.tracer
        self._resolve = trtis.engine.regions.span
        self._failures = failures
        self.call = self.infer  # bound once, so that `is` recognizes it

    async def infer(self, request: HttpRequest, model: str, version: str = "") -> HttpAnswer:
        """Handle an inference."""
        begun = self.begin(request, model, version)
        return begun if isinstance(begun, HttpAnswer) else await begun

    def begin(
        self, request: HttpRequest, model: str, version: str
    ) -> HttpAnswer | Coroutine[Any, Any, HttpAnswer]:
        """Return the answer if it need not wait for anything, else a coroutine that returns it."""
        trtis = self._trtis
        number = trtis.next_number()
        header: InferHeader | None = None
        try:
            header = _asked(request, version)
            form = trtis.form(model, version)
            body = Body(request.body)
            answering: Awaitable[Answer]
            try:
                asked = form.decode_request(version, header, body, self._resolve)
            except NotFast:
                answering = self._infer_long(request, model, version, form, header, body)
                return self._answer_later(request, number, header, answering)
            if request.forwarded is not None:
                add_forwarded(asked, request.forwarded)
            if self._tracer.is_on:
                answering = self._infer_traced(request, model, form, header, asked)
                return self._answer_later(request, number, header, answering)
            response = self._engine.begin(asked)
            if not isinstance(response, InferResponse):
                answering = self._infer_later(form, header, asked, response)
                return self._answer_later(request, number, header, answering)
            try:
                answer = form.encode_response(header, asked, response)
            except NotFast:
                answering = trtis.encode_long(form, header, asked, response)
                return self._answer_later(request, number, header, answering)
        except InferdError as error:
            return self._failed(request, error, number, header)
        return self._inferred(request, header, answer, number)

    async def _answer_later(
        self,
        request: HttpRequest,
        number: int,
        header: InferHeader,
        answering: Awaitable[Answer],
    ) -> HttpAnswer:
        try:
            answer = await answering
        except InferdError as error:
            return self._failed(request, error, number, header)
        return self._inferred(request, header, answer, number)

    async def _infer_long(
        self,
        request: HttpRequest,
        model: str,
        version: str,
        form: Form,
        header: InferHeader,
        body: Body,
    ) -> Answer:
        """Answer a request that is too large to be decoded on the event loop."""
        asked = await self._trtis.decode_long(form, version, header, body)
        if request.forwarded is not None:
            add_forwarded(asked, request.forwarded)
        return await self._infer_traced(request, model, form, header, asked)

    async def _infer_traced(
        self, request: HttpRequest, model: str, form: Form, header: InferHeader, asked: InferRequest
    ) -> Answer:
        """Answer a request; trace it if it is one to be traced."""
        tracer = self._tracer
        trace = begin_http(tracer, model, request) if tracer.is_on else None
        if trace is None:
            return await self._infer_later(form, header, asked, self._engine.infer(asked))
        with until_sent(tracer, trace, OVER_HTTP):
            answering = TracedEngine(self._engine, trace).infer(asked)
            return await self._infer_later(form, header, asked, answering)

    async def _infer_later(
        self,
        form: Form,
        header: InferHeader,
        asked: InferRequest,
        answering: Awaitable[InferResponse],
    ) -> Answer:
        """Answer a request that has to wait for its model."""
        response = await answering
        try:
            return form.encode_response(header, asked, response)
        except NotFast:
            pass  # nothing may be awaited while an exception is handled
        return await self._trtis.encode_long(form, header, asked, response)

    def _inferred(
        self, request: HttpRequest, header: InferHeader, answer: Answer, number: int
    ) -> HttpAnswer:
        headers = self._trtis.status_line.success(number)
        if not header.is_old:
            headers += b"NV-InferResponse: %b\r\n" % answer.line()
        is_binary = format_of(request.target) == "binary"
        buffers = answer.buffers
        if None in buffers:
            buffers = [data for data in buffers if data is not None]
        buffers.append(answer.message() if is_binary else answer.lines())
        return HttpAnswer(200, buffers, _OCTETS, headers)

    def _failed(
        self, request: HttpRequest, error: InferdError, number: int, header: InferHeader | None
    ) -> HttpAnswer:
        """Return the answer to a failed inference; it echoes the id in `header`, if any."""
        self._failures.note(request.target.decode("latin-1"), error)
        answer = refused(self._trtis, error, number)
        answer.content_type = _OCTETS
        if header is not None and not header.is_old:
            said = b" id: %d" % header.id if header.id else b""
            answer.headers += b"NV-InferResponse:%b\r\n" % said
        return answer


def refused(trtis: Trtis, error: Exception, number: int) -> HttpAnswer:
    """Return the answer to request `number`, which failed with `error`."""
    if not isinstance(error, InferdError):
        error = InferdError("the server failed unexpectedly; its log says why")
    headers = trtis.status_line.failure(status_of(error), error.message, number)
    if error.code is Code.UNAUTHENTICATED:
        headers += b"WWW-Authenticate: Bearer\r\n"  # RFC 9110, section 15.5.2
    if error.retry_s:
        headers += RETRY_AFTER
    return HttpAnswer(_REFUSED.get(error.code, 400), [], _TEXT, headers)


def _asked(request: HttpRequest, version: str) -> InferHeader:
    """Return the decoded header of an inference. Raises InvalidRequest."""
    value = request.headers.get(_HEADER)
    if value is None:
        msg = f"the header {REQUEST} is missing"
        raise InvalidRequest(msg)
    header = decode_request_header(value)
    if version and not (version.isascii() and version.isdigit()):
        msg = f"the version is '{version[:40]}', expected a number"
        raise InvalidRequest(msg)
    if request.headers.get(b"content-encoding", b"identity") != b"identity":
        msg = "this call takes no compressed body"
        raise InvalidRequest(msg)
    return header


def format_of(target: bytes) -> str:
    """Return the answer format that a request target asks for, "" if none."""
    query = target.partition(b"?")[2]
    if query == b"format=binary":  # what clients send
        return "binary"
    return first_value(target, "format") if query else ""


def first_value(target: bytes, name: str) -> str:
    """Return the first value of the query parameter `name`, "" if there is none."""
    values = parse_qs(target.partition(b"?")[2].decode("latin-1")).get(name)
    return values[0] if values else ""
