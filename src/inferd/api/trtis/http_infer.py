"""Inference over HTTP by the TensorRT Inference Server API."""

from collections.abc import Awaitable
from typing import Any
from urllib.parse import parse_qs

from inferd.api.inference import HttpInference
from inferd.api.trtis.trtis import Trtis, TrtisCodec, TrtisMessage
from inferd.core.request import InferRequest
from inferd.engine.engine import Engine
from inferd.engine.traced import TracedEngine
from inferd.errors import Code, InferdError, InvalidRequest
from inferd.http.failure import FailureLog
from inferd.http.message import HttpAnswer, HttpRequest
from inferd.http.overload import RETRY_AFTER
from inferd.wire.trtis.answer import Answer
from inferd.wire.trtis.http import REQUEST, Body, decode_request_header
from inferd.wire.trtis.infer import status_of

_OCTETS = b"application/octet-stream"
_TEXT = b"text/plain; charset=utf-8"
_HEADER = REQUEST.lower().encode()
_REFUSED = {
    Code.UNAUTHENTICATED: 401,
    Code.FORBIDDEN: 403,
    Code.RESTRICTED: 403,
    Code.TOO_LARGE: 413,
}


class TrtisInference(HttpInference):
    """Answers inferences of the old API."""

    def __init__(self, trtis: Trtis, failures: FailureLog, *, forwards: bool) -> None:
        super().__init__(trtis.engine, TrtisHttpCodec(trtis), forwards=forwards)
        self._trtis = trtis
        self._failures = failures

    async def infer(self, request: HttpRequest, *names: str) -> HttpAnswer:
        """Handle an inference."""
        answer = self.begin(names, request)
        return answer if isinstance(answer, HttpAnswer) else await answer

    def begin(self, message: Any, call: Any, engine: Engine | TracedEngine | None = None) -> Any:
        """See Inference; `message` is the names in the URL, model and perhaps version."""
        names: tuple[str, ...] = message
        version = names[1] if len(names) > 1 else ""
        trtis_message = TrtisMessage(next(self._trtis.numbers), names[0], version)
        try:
            answer = super().begin(trtis_message, call, engine)
        except InferdError as error:
            return self._failed(trtis_message, call, error)
        if isinstance(answer, HttpAnswer):
            return answer
        return self._answer_later(answer, trtis_message, call)

    async def _answer_later(
        self, running: Awaitable[HttpAnswer], message: TrtisMessage, request: HttpRequest
    ) -> HttpAnswer:
        try:
            return await running
        except InferdError as error:
            return self._failed(message, request, error)

    def _failed(
        self, message: TrtisMessage, request: HttpRequest, error: InferdError
    ) -> HttpAnswer:
        """Return the answer to a failed inference; it echoes the id in its header, if any."""
        self._failures.note(request.target.decode("latin-1"), error)
        answer = refused(self._trtis, error, message.number)
        answer.content_type = _OCTETS
        header = message.header
        if header is None and _HEADER not in request.headers:  # such a client reads no NV-Status
            answer.buffers = [error.message.encode(errors="replace")]
            answer.content_type = _TEXT
        # Clients before the header had ids read an empty one.
        if header is not None and not header.is_old:
            echo = b" id: %d" % header.id if header.id else b""
            # As the old server has it: only the id, and nothing for an id of 0.
            answer.headers += b"NV-InferResponse:%b\r\n" % echo
        return answer


class TrtisHttpCodec(TrtisCodec):
    """The codec of the old API over HTTP: the header of a request is one of HTTP's."""

    def decode(self, message: Any, call: Any) -> InferRequest:
        """See InferCodec."""
        trtis_message: TrtisMessage = message
        http_request: HttpRequest = call
        version = trtis_message.version
        value = http_request.headers.get(_HEADER)
        if value is None:
            raise InvalidRequest(f"The request header should contain '{REQUEST}': it is missing")
        trtis_message.header = header = decode_request_header(value)
        if version and not (version.isascii() and version.isdigit()):
            raise InvalidRequest(f"the version is '{version[:40]}', expected a number")
        # The API has none; its size of inputs is computed from the body as it came.
        if http_request.headers.get(b"content-encoding", b"identity") != b"identity":
            raise InvalidRequest("this call takes no compressed body")
        trtis_message.form = form = self._trtis.form(trtis_message.model, version)
        trtis_message.source = source = Body(http_request.body)
        return form.decode_request(version, header, source, self._resolve)

    def answered(self, answer: Answer, message: TrtisMessage, call: Any) -> HttpAnswer:
        """See TrtisCodec."""
        http_request: HttpRequest = call
        headers = self._trtis.status_line.success(message.number)
        if message.header is not None and not message.header.is_old:
            headers += b"NV-InferResponse: %b\r\n" % answer.line()
        target = http_request.target
        # The common spelling first, since parsing the query takes longer than all else here.
        is_binary = target.partition(b"?")[2] == b"format=binary" or format_of(target) == "binary"
        # Outputs in shared memory have no place in the body.
        buffers = [data for data in answer.buffers if data is not None]
        buffers.append(answer.message() if is_binary else answer.lines())
        return HttpAnswer(200, buffers, _OCTETS, headers)


def refused(trtis: Trtis, error: Exception, number: int) -> HttpAnswer:
    """Return the answer to request `number`, which failed with `error`."""
    headers = trtis.status_line.failure(*status_of(error), number)
    status = 400
    if isinstance(error, InferdError):
        status = _REFUSED.get(error.code, status)
        if status == 401:
            headers += b"WWW-Authenticate: Bearer\r\n"  # RFC 9110, section 15.5.2
        if error.retry_s:
            headers += RETRY_AFTER
    return HttpAnswer(status, [], _TEXT, headers)


def format_of(target: bytes) -> str:
    """Return the answer format that a request target asks for, "" if none."""
    return first_value(target, "format") if b"?" in target else ""


def first_value(target: bytes, name: str) -> str:
    """Return the first value of the query parameter `name`, "" if there is none."""
    values = parse_qs(target.partition(b"?")[2].decode("latin-1")).get(name)
    return values[0] if values else ""
