"""The generate extension: one answer as an object, or any number as a stream of events.

MLServer's infer_stream is generate_stream for inference requests only.

Events are server-sent events (HTML Standard), each with one object.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from inferd.api.inference import HttpInference, copied_bytes
from inferd.core.request import InferResponse
from inferd.engine.engine import Engine
from inferd.engine.traced import TracedEngine
from inferd.errors import InferdError, Overloaded
from inferd.http.failure import FailureLog
from inferd.http.message import NO_BODY, HttpAnswer, HttpRequest
from inferd.http.overload import RETRY_AFTER
from inferd.observe.tracing import trace as times
from inferd.observe.tracing.trace import Trace
from inferd.wire.v2 import binary as v2_binary
from inferd.wire.v2.generate import (
    EVENT_STREAM,
    NO_EVENT,
    GenerateMessage,
    V2Generate,
    encode_event,
)
from inferd.wire.v2.rest.codec import HTTP_STATUS, JsonRules, encode_error

# For proxies: they must pass events on as they come and never store them.
_NOT_STORED = b"Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n"
_UNEXPECTED = "the server failed in a way it does not understand; see its log"

Responses = AsyncGenerator[InferResponse, None]


class GenerateRoutes:
    """Answers generate and generate_stream, for models that give one or any number of answers."""

    def __init__(self, engine: Engine, rules: JsonRules, failures: FailureLog) -> None:
        self._engine = engine
        codec = V2Generate(rules, engine.regions.span)
        self._inference = HttpInference(engine, codec, forwards=False, refuses_when_full=True)
        self.failures = failures

    async def generate(self, request: HttpRequest, model: str, version: str = "") -> HttpAnswer:
        """Answer with the model's one response; any other number of responses is an error."""
        message = await self._decoded(request, model, version)
        async with aclosing(self._responses(message, request)) as responses:
            # A second answer is waited for only if the first did not say that it is the last.
            first = await anext(responses, None)
            if first is None or (not first.final and await anext(responses, None) is not None):
                count = "none" if first is None else "more"
                raise InferdError(
                    f"generate expects model to produce exactly 1 response, use generate stream "
                    f"for model that generates various number of responses: "
                    f"model '{model}' gave {count}"
                )
            return HttpAnswer(200, [await self.encoded(message, first, request)])

    async def stream(self, request: HttpRequest, model: str, version: str = "") -> HttpAnswer:
        """Answer with an event for each response; later failures are events as well.

        The first event is awaited, because the status depends on it.
        """
        return await self._stream(await self._decoded(request, model, version), request)

    async def infer_stream(self, request: HttpRequest, model: str, version: str = "") -> HttpAnswer:
        """Answer as `stream` does, but accept only inference requests as bodies."""
        return await self._stream(await self._decoded(request, model, version, is_v2=True), request)

    async def _stream(self, message: GenerateMessage, request: HttpRequest) -> HttpAnswer:
        # An error of one answer does not end the stream: others may follow.
        message.request.takes_errors = True
        responses = self._responses(message, request)
        events = Events(self, message, responses, request)
        try:
            # A model may give no answer at all: 200 and an empty body.
            first = await anext(events, b"")
        # Nobody iterates any more, so the model would go on answering.
        except BaseException:
            await events.aclose()
            raise
        return HttpAnswer(
            events.status, [first], EVENT_STREAM, _NOT_STORED + events.headers, events
        )

    async def _decoded(
        self, request: HttpRequest, model: str, version: str, *, is_v2: bool = False
    ) -> GenerateMessage:
        # Before the body is looked at, so that an unknown model is told first.
        inputs = self._engine.catalog.metadata(model, version).inputs
        body = request.body
        declared = request.headers.get(v2_binary.HEADER_KEY)
        if declared is None and len(body) == 0:
            raise v2_binary.no_body()
        json_size = v2_binary.json_length(declared, len(body))
        # Binary data have no meaning for generate, so such a body is an inference request.
        is_v2 = is_v2 or json_size == 0 or json_size != len(body)
        message = GenerateMessage(model, version, body, inputs, json_size, is_v2=is_v2)
        message.request = decoded = await self._inference.decode(message, request)
        decoded.copied_bytes = copied_bytes(decoded, body)
        message.body = NO_BODY  # a stream, which may last, keeps nothing of it
        return message

    def _responses(self, message: GenerateMessage, http: HttpRequest) -> Responses:
        """Return the engine's responses. Errors in the request are raised at once."""
        tracer, decoded = self._engine.tracer, message.request
        trace = self._inference.begin_trace(decoded.model, http) if tracer.is_on else None
        if trace is None:
            return self._engine.stream(decoded)
        try:
            responses = TracedEngine(self._engine, trace).stream(decoded)
        except BaseException as error:
            trace.fail(error)
            tracer.finish(trace)
            raise
        return self._traced(responses, trace)

    async def _traced(self, answers: Responses, trace: Trace) -> Responses:
        is_final = False
        try:
            async with aclosing(answers) as responses:
                async for response in responses:
                    trace.stamp(times.HTTP_SEND_START)
                    is_final = response.final
                    yield response
                    trace.stamp(times.HTTP_SEND_END)
        except BaseException as error:
            if is_final and isinstance(error, GeneratorExit):  # closed after the last response
                trace.stamp(times.HTTP_SEND_END)
            else:
                trace.fail(error)
            raise
        finally:
            self._engine.tracer.finish(trace)

    async def encoded(
        self, message: GenerateMessage, response: InferResponse, call: HttpRequest | None
    ) -> bytes:
        """Return `response` to `call` as JSON text."""
        text: bytes = await self._inference.encode(message.request, response, message, call)
        return text


class Events:
    """The events of one call, which the connection reads as fast as its client does.

    `status` and `headers` depend on the first event. The wall: an exception becomes the last event.
    An error that a model gives as one of its answers becomes an event too, but others may follow.
    """

    filler = NO_EVENT

    def __init__(
        self,
        routes: GenerateRoutes,
        message: GenerateMessage,
        responses: Responses,
        call: HttpRequest,
    ) -> None:
        self.status = 200
        self.headers = b""
        self._routes = routes
        self._message = message
        self._responses = responses
        self._where = call.target.decode("latin-1")
        # Until the first event: a connection uses its request again.
        self._call: HttpRequest | None = call

    def __aiter__(self) -> "Events":
        """Return self."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next event. Raises nothing but StopAsyncIteration and a cancellation."""
        try:
            response = await anext(self._responses)
            if response.error is not None:
                event = self._failure(response.error)
            else:
                text = await self._routes.encoded(self._message, response, self._call)
                event = encode_event(text)
        except StopAsyncIteration:
            raise
        except Exception as error:  # noqa: BLE001  the wall
            # The model stops now and not when garbage is collected.
            await self._responses.aclose()
            event = self._failure(error)
        self._call = None
        return event

    def _failure(self, error: Exception) -> bytes:
        """Return the event that reports `error`; if it is the first one, set the status."""
        self._routes.failures.note(self._where, error)
        status, text = 500, _UNEXPECTED
        if isinstance(error, InferdError):
            status, text = HTTP_STATUS[error.code], error.message
        # After the first event the status has been sent.
        if self._call is not None:
            self.status = status
            self.headers = RETRY_AFTER if isinstance(error, Overloaded) else b""
        return encode_event(encode_error(text))

    async def aclose(self) -> None:
        """Give up the remaining events: the model stops at its next answer."""
        await self._responses.aclose()
