"""The URLs of V2: what each one calls, and inference itself."""

import functools
import logging
from contextlib import suppress
from time import perf_counter_ns
from typing import Any

from inferd.core.request import InferRequest, InferResponse
from inferd.engine.engine import Engine
from inferd.engine.traced import TracedEngine
from inferd.errors import InferdError
from inferd.observe import trace as moments
from inferd.observe.trace import Trace
from inferd.transport.access import OPEN, Access, Headers
from inferd.transport.coder import Coder
from inferd.transport.failure import FailureLog
from inferd.transport.header_forward import HeaderForward, add_forwarded
from inferd.transport.http_coded import CODING, CodedBodies
from inferd.transport.http_coding import MIN_BYTES, choose_coding
from inferd.transport.http_documents import DocumentRoutes
from inferd.transport.http_generate import GenerateRoutes
from inferd.transport.http_logging import LoggingRoutes
from inferd.transport.http_message import HttpAnswer, HttpError, HttpRequest
from inferd.transport.http_metadata import MetadataRoutes
from inferd.transport.http_repository import RepositoryRoutes
from inferd.transport.http_router import Route, Router, Target
from inferd.transport.http_shared_memory import SharedMemoryRoutes
from inferd.transport.http_statistics import StatisticsRoutes
from inferd.transport.http_trace import TraceRoutes
from inferd.transport.http_trtis import TrtisRoutes, is_old
from inferd.transport.lane import Lane
from inferd.transport.overload import RETRY_AFTER, copied_bytes
from inferd.transport.tracing import begin_http, finish_when_sent
from inferd.transport.trtis import Trtis
from inferd.wire import v2_binary, v2_rest
from inferd.wire.inline import NotFast
from inferd.wire.trtis_http import RESPONSE, STATUS
from inferd.wire.v2_rest import HTTP_STATUS, JsonRules, V2Rest

log = logging.getLogger("inferd.http")

_INFER_HEADER = v2_binary.HEADER.lower().encode()
_INFER_HEADER_LINE = v2_binary.HEADER.encode() + b": %d\r\n"
_OCTETS = b"application/octet-stream"
_VERSION = "/v2/models/{model}/versions/{version}"


class HttpRoutes:
    """Answers requests by asking the engine. The wall: nothing raised inside gets past `answer`.

    With `is_guarded` some calls are not open to everybody: ask `check_access` before a large body
    is taken. `forward` chooses the headers of an inference that become its parameters; whoever
    makes an HttpRequest asks it. `trtis` is the old API, where it is offered; `table` has the lines
    of V2 alone. `own_headers` are the names of those in answers that mean something to a page.
    """

    def __init__(
        self,
        engine: Engine,
        rules: JsonRules,
        *,
        not_ready_status: int,
        forward: HeaderForward | None = None,
        access: Access = OPEN,
        trtis: Trtis | None = None,
    ) -> None:
        self.forward = forward
        self._engine = engine
        self._rules = rules
        self.tracer = engine.tracer
        self._codec = V2Rest(rules, engine.regions.span)
        self._coder = Coder(rules.max_json_bytes)
        self._capacity = engine.capacity
        self._coded = CodedBodies(self._coder, self._capacity)
        self._failures = FailureLog(log)
        self._decoding = Lane("inferd-decode")
        self._slow_decoding = Lane("inferd-decode-slowly")
        self._encoding = Lane("inferd-encode")
        self.table = self._routes(rules.max_json_bytes, not_ready_status)
        self._trtis = TrtisRoutes(trtis, access, self._failures) if trtis else None
        self._router = Router([*self.table, *(self._trtis.routes() if self._trtis else ())], access)
        self.is_guarded = access is not OPEN
        self.own_headers = [v2_binary.HEADER, *((STATUS, RESPONSE) if trtis else ())]
        self._targets = self._router.known

    def _routes(self, max_json_bytes: int, not_ready_status: int) -> list[Route]:
        return [
            *StatisticsRoutes(self._engine).routes(),  # first: it has a path a model could have
            *MetadataRoutes(self._engine, not_ready_status).routes(),
            Route("POST", "/v2/models/{model}/infer", "inference", self.infer),
            Route("POST", f"{_VERSION}/infer", "inference", self.infer),
            *DocumentRoutes().routes(),
            *self._coded.routes(
                [
                    *GenerateRoutes(self._engine, self._rules, self._failures).routes(),
                    *RepositoryRoutes(self._engine, max_json_bytes).routes(),
                    *LoggingRoutes(self._engine.log).routes(),
                    *TraceRoutes(self._engine).routes(),
                    *SharedMemoryRoutes(self._engine.regions).routes(),
                ]
            ),
        ]

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Return the answer of `request`, whatever happens."""
        try:
            target = self._targets.get(request.target) or self._router.find(request.target)
            if target is None:
                old = self._old(request.target)
                return old.not_found(request) if old else not_found(request)
            call = target.calls.get(request.method)
            if call is None:
                old = self._old(request.target)
                return old.wrong_method(request, target) if old else wrong_method(request, target)
            return await call(request, *target.names)
        except Exception as error:  # noqa: BLE001  the wall
            self._failures.note(request.target.decode("latin-1"), error)
            old = self._old(request.target)
            return old.refusal(error) if old else refusal(error)

    def _old(self, target: bytes) -> TrtisRoutes | None:
        """Return what words the answer to a request that no call of its own answers."""
        return self._trtis if is_old(target) else None

    def refusal(self, request: HttpRequest, error: HttpError | InferdError) -> HttpAnswer:
        """See Routes.refusal."""
        old = self._old(request.target)
        return old.refusal(error) if old else refusal(error)

    def told(self, target: bytes) -> bytes:
        """Return the headers that a good answer has because of the API it is of."""
        old = self._old(target)
        return old.success() if old else b""

    def verbs(self, target: bytes) -> list[bytes]:
        """Return the verbs a request target may be asked with, none for what is not there."""
        found = self._router.find(target)
        return sorted(found.calls) if found else []

    def check_access(self, target: bytes, headers: Headers) -> None:
        """Raise what `answer` would answer with to a request because of who sends it."""
        found = self._router.find(target)
        if found is not None and found.guard is not None:
            found.guard.check(headers)

    def is_inference(self, target: bytes) -> bool:
        """Tell whether a request target means an inference, which an overloaded server refuses."""
        found = self._router.find(target)
        return found is not None and found.api == "inference"

    async def infer(
        self,
        request: HttpRequest,
        model: str,
        version: str = "",
        engine: Engine | TracedEngine | None = None,
    ) -> HttpAnswer:
        """V2 Inference, with the Binary Tensor Data extension; of a traced request, by `engine`."""
        headers = request.headers
        if (
            self.tracer.is_on
            and engine is None
            and (trace := begin_http(self.tracer, model, headers))
        ):
            return await self._infer_traced(trace, request, model, version)
        engine = engine or self._engine
        if headers.get(CODING):
            return await self._coded.infer(self.infer, request, model, version, engine)
        body = request.body
        json_size = len(body)
        if (declared := headers.get(_INFER_HEADER)) is not None:
            json_size = v2_binary.json_length(declared, json_size)
        try:
            infer_request = self._decode_now(model, version, body, json_size)
            if infer_request is None:
                infer_request = await self._decode_in_thread(model, version, body, json_size)
        except InferdError:
            engine.check_model(model, version)  # a model that cannot be asked is worse
            raise
        if request.forwarded is not None:
            add_forwarded(infer_request, request.forwarded)
        response = await engine.infer(infer_request)
        encoded = self._encode_now(infer_request, response)
        if encoded is None:
            encode = functools.partial(self._codec.encode_infer_response, in_thread=True)
            encoded = await self._encoding.run(encode, infer_request, response)
        buffers, json_size_out = encoded
        answer = HttpAnswer(200, buffers)
        if json_size_out is not None:
            answer.content_type = _OCTETS
            answer.headers = _INFER_HEADER_LINE % json_size_out
        if accept := headers.get(b"accept-encoding"):
            await self._compress(answer, accept)
        return answer

    async def _infer_traced(
        self, trace: Trace, request: HttpRequest, model: str, version: str
    ) -> HttpAnswer:
        now_ns = perf_counter_ns()
        trace.stamp(moments.HTTP_RECV_START, request.began_ns or now_ns)
        trace.stamp(moments.HTTP_RECV_END, now_ns)
        try:
            return await self.infer(request, model, version, TracedEngine(self._engine, trace))
        except BaseException as error:
            trace.fail(error)
            raise
        finally:
            trace.stamp(moments.HTTP_SEND_START)
            finish_when_sent(self.tracer, trace, moments.HTTP_SEND_END)

    async def _compress(self, answer: HttpAnswer, accept: bytes) -> None:
        coding = choose_coding(accept)
        if coding != b"identity" and sum(map(len, answer.buffers)) >= MIN_BYTES:
            answer.buffers = [await self._coder.deflate(answer.buffers, coding)]
            answer.headers += b"Content-Encoding: %b\r\n" % coding

    # Nothing is waited for while an error is handled: compiled, that would be everybody's error
    # (decision 0010). So these two say None in the place of NotFast.

    def _decode_now(
        self, model: str, version: str, body: memoryview, json_size: int
    ) -> InferRequest | None:
        try:
            return self._codec.decode_infer_request(model, version, body, json_size)
        except NotFast:
            return None

    def _encode_now(
        self, request: InferRequest, response: InferResponse
    ) -> tuple[list[Any], int | None] | None:
        try:
            return self._codec.encode_infer_response(request, response)
        except NotFast:
            return None

    async def _decode_in_thread(
        self, model: str, version: str, body: memoryview, json_size: int
    ) -> InferRequest:
        """Decode what is too long for the event loop."""
        if self._capacity.is_full:
            raise self._capacity.too_many_requests()
        decode = self._codec.decode_large
        request = None
        with suppress(NotFast):
            request = await self._decoding.run(decode, model, version, body, json_size)
        if request is None:
            decode = self._codec.decode_slowly
            request = await self._slow_decoding.run(decode, model, version, body, json_size)
        request.copied_bytes = copied_bytes(request, body)
        return request


def error_answer(status: int, message: str, headers: bytes = b"") -> HttpAnswer:
    """Return the V2 error object with `status`; exactly application/json, as clients want it."""
    if status == 401:
        headers += b"WWW-Authenticate: Bearer\r\n"  # RFC 9110, section 15.5.2
    return HttpAnswer(status, [v2_rest.encode_error(message)], headers=headers)


def refusal(error: Exception) -> HttpAnswer:
    """Return the answer to a request that failed with `error`."""
    if isinstance(error, HttpError):
        return error_answer(error.status, error.message)
    if isinstance(error, InferdError):
        headers = RETRY_AFTER if error.retry_s else b""
        return error_answer(HTTP_STATUS[error.code], error.message, headers)
    return error_answer(500, "the server failed in a way it does not understand; see its log")


def not_found(request: HttpRequest) -> HttpAnswer:
    """Return the answer to a target that means nothing."""
    path = request.target.partition(b"?")[0][:200].decode("latin-1")
    return error_answer(404, f"there is nothing at '{path}'")


def wrong_method(request: HttpRequest, target: Target) -> HttpAnswer:
    """Return the answer to a method that `target` does not know."""
    if target.guard is not None:  # who may not call it need not know how
        target.guard.check(request.headers)
    allowed = b", ".join(sorted(target.calls))
    method = request.method[:40].decode("latin-1")
    text = f"method {method} is not allowed here, expected {allowed.decode()}"
    return error_answer(405, text, b"Allow: %b\r\n" % allowed)
