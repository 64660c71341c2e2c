"""Inference: the one path of an inference through the server, whatever its protocol."""

from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from time import monotonic_ns, perf_counter_ns
from typing import TYPE_CHECKING, Any, ClassVar

from inferd.aio.inline import NotFast
from inferd.aio.offload import Work
from inferd.api.header_forward import add_forwarded
from inferd.api.noted_codec import NotedCodec
from inferd.api.payload_codec import SampledCodec
from inferd.api.tracing import OVER_GRPC, OVER_HTTP, TRACEPARENT, until_sent
from inferd.core.request import InferRequest, InferResponse
from inferd.engine.engine import Engine
from inferd.engine.traced import TracedEngine
from inferd.errors import InferdError
from inferd.http.header_forward import HeaderForward
from inferd.observe.tracing import trace as times
from inferd.observe.tracing.trace import Parent, Trace, read_parent
from inferd.wire.infer_codec import InferCodec

if TYPE_CHECKING:
    from inferd.http.message import HttpRequest


class Inference:
    """Decodes a request, has the engine run it, and encodes the answer.

    `message` and `call` are what `codec` takes. With `forwards`, headers may become parameters.
    With `refuses_when_full`, a large request that would be refused is not decoded first.
    """

    protocol: ClassVar[str] = ""

    def __init__(
        self,
        engine: Engine,
        codec: InferCodec,
        *,
        forwards: bool,
        refuses_when_full: bool = False,
    ) -> None:
        self.engine = engine
        if engine.payloads is not None:
            codec = SampledCodec(codec, engine.payloads, self.protocol)
        # The payload log's codec is inside, so that the log of requests also sees what that one
        # rejects.
        self.codec = NotedCodec(codec) if engine.notes_requests else codec
        self._tracer = engine.tracer
        self._capacity = engine.capacity
        self._offload = engine.offload
        self._forwards = forwards
        self._sending = OVER_HTTP
        self._refuses_when_full = refuses_when_full

    def begin(self, message: Any, call: Any, engine: Engine | TracedEngine | None = None) -> Any:
        """Return the answer if it need not wait for anything, else a coroutine that returns it.

        `engine` is set if it has been decided already whether the request is traced.
        """
        codec = self.codec
        try:
            request = codec.decode(message, call)
        # Decoding begins here and stops when it turns out large: most requests never do, and pay
        # nothing for the question.
        except NotFast:
            return self._infer_large(message, call, engine)
        except InferdError:
            # Triton's order: an unknown model is told before what is wrong with the request for it.
            self._check_model(message, call, engine)
            raise
        # After decoding; timeouts in the queue count from here.
        request.arrived_ns = monotonic_ns()
        if self._forwards:
            self.add_forwarded(request, call)
        if engine is not None:
            response = engine.begin(request)
        # A look at a flag for each request, where nothing is traced.
        elif self._tracer.is_on and (trace := self.begin_trace(request.model, call)) is not None:
            return self._infer_traced(trace, request, message, call)
        else:
            response = self.engine.begin(request)
        if not isinstance(response, InferResponse):
            return self._infer_later(response, request, message, call)
        try:
            return codec.encode(request, response, message, call)
        except NotFast:
            return self._encode_large(request, response, message, call)

    async def decode(self, message: Any, call: Any) -> InferRequest:
        """Return the decoded request; a large one is decoded in a thread."""
        try:
            request = self.codec.decode(message, call)
        except NotFast:
            request = None  # nothing may be awaited while an exception is handled
        if request is None:
            return await self._decode_large(message, call)
        request.arrived_ns = monotonic_ns()
        return request

    async def encode(
        self, request: InferRequest, response: InferResponse, message: Any, call: Any
    ) -> Any:
        """Return the encoded answer; a large one is encoded in a thread."""
        try:
            return self.codec.encode(request, response, message, call)
        except NotFast:
            pass
        return await self._encode_large(request, response, message, call)

    def begin_trace(self, model: str, call: object) -> Trace | None:
        """Return the trace of a request that has arrived, None if it is not to be traced."""
        raise NotImplementedError

    def add_forwarded(self, request: InferRequest, call: Any) -> None:
        """Add the chosen headers of `call` to the parameters of `request`."""
        raise NotImplementedError

    def _check_model(
        self, message: object, call: object, engine: Engine | TracedEngine | None
    ) -> None:
        """Check the model of a request that cannot be decoded: its error comes first."""
        model, version = self.codec.model_of(message, call)
        if model:
            (engine or self.engine).check_model(model, version)

    async def _infer_large(
        self, message: object, call: object, engine: Engine | TracedEngine | None
    ) -> object:
        """Answer a request that is too large to be decoded on the event loop."""
        try:
            request = await self._decode_large(message, call)
        except InferdError:
            self._check_model(message, call, engine)
            raise
        if self._forwards:
            self.add_forwarded(request, call)
        if engine is None:
            if self._tracer.is_on and (trace := self.begin_trace(request.model, call)) is not None:
                return await self._infer_traced(trace, request, message, call)
            engine = self.engine
        return await self._infer_later(engine.infer(request), request, message, call)

    async def _infer_traced(
        self, trace: Trace, request: InferRequest, message: object, call: object
    ) -> object:
        with until_sent(self._tracer, trace, self._sending):
            running = TracedEngine(self.engine, trace).infer(request)
            return await self._infer_later(running, request, message, call)

    async def _infer_later(
        self,
        running: Awaitable[InferResponse],
        request: InferRequest,
        message: object,
        call: object,
    ) -> object:
        """Answer a request that has to wait for its model."""
        response = await running
        try:
            return self.codec.encode(request, response, message, call)
        except NotFast:
            pass
        return await self._encode_large(request, response, message, call)

    async def _decode_large(self, message: object, call: object) -> InferRequest:
        # Decoding is the expensive part; one that would be refused is refused first.
        if self._refuses_when_full and self._capacity.is_full:
            raise self._capacity.too_many_requests()
        codec, offload = self.codec, self._offload
        request = None
        # The fast parser declines what is rare, such as numbers beyond its range; the slow one
        # takes everything.
        with suppress(NotFast):
            request = await offload.run(Work.DECODE, codec.decode_large, message, call)
        if request is None:
            decode = partial(codec.decode_large, slowly=True)
            request = await offload.run(Work.DECODE_SLOWLY, decode, message, call)
        request.arrived_ns = monotonic_ns()
        # What decoding has made of the body, such as numbers out of JSON, is memory as well.
        body = codec.body_of(message, call)
        request.copied_bytes = copied_bytes(request, body)
        size_bytes = request.copied_bytes + memoryview(body).nbytes
        # Here, where both are known: to be told "later" would be of no use.
        if size_bytes > self._capacity.max_bytes:
            raise self._capacity.too_many_bytes(size_bytes)
        return request

    def _encode_large(
        self, request: InferRequest, response: InferResponse, message: object, call: object
    ) -> Awaitable[object]:
        encode = partial(self.codec.encode, in_thread=True)
        return self._offload.run(Work.ENCODE, encode, request, response, message, call)


class HttpInference(Inference):
    """Inference over HTTP: the calls are HttpRequests, the answers HttpAnswers."""

    protocol: ClassVar[str] = "http"

    def begin_trace(self, model: str, call: Any) -> Trace | None:
        """See Inference."""
        http_request: HttpRequest = call
        tracer = self._tracer
        parent: Parent | None = None
        if tracer.follows_clients:
            traceparent = http_request.headers.get(TRACEPARENT.encode(), b"")
            parent = read_parent(traceparent.decode("latin-1"))
        trace = tracer.begin(model, parent)
        if trace is not None:
            now_ns = perf_counter_ns()
            trace.stamp(times.HTTP_RECV_START, http_request.began_ns or now_ns)
            trace.stamp(times.HTTP_RECV_END, now_ns)
        return trace

    def add_forwarded(self, request: InferRequest, call: Any) -> None:
        """See Inference; the code that makes an HttpRequest chooses its headers."""
        http_request: HttpRequest = call
        if http_request.forwarded is not None:
            add_forwarded(request, http_request.forwarded)


class GrpcInference(Inference):
    """Inference over gRPC: the answers are buffers. `forward` chooses among the metadata."""

    protocol: ClassVar[str] = "grpc"

    def __init__(self, engine: Engine, codec: InferCodec, forward: HeaderForward | None) -> None:
        super().__init__(engine, codec, forwards=forward is not None)
        self._sending = OVER_GRPC
        self.forward = forward

    def begin_trace(self, model: str, call: Any) -> Trace | None:
        """See Inference."""
        tracer = self._tracer
        parent: Parent | None = None
        if tracer.follows_clients:
            found = (str(value) for key, value in call.metadata if key == TRACEPARENT)
            parent = read_parent(next(found, ""))
        trace = tracer.begin(model, parent)
        if trace is not None:
            trace.stamp(times.GRPC_WAITREAD_START)
            trace.stamp(times.GRPC_WAITREAD_END)
        return trace

    def add_forwarded(self, request: InferRequest, call: Any) -> None:
        """See Inference."""
        if self.forward is not None:
            add_forwarded(request, self.forward.chosen(call.metadata))


def copied_bytes(request: InferRequest, body: Any) -> int:
    """Return how many bytes the inputs of `request` take besides `body`, which they came in.

    Views of `body` and of the client's shared memory do not count.
    """
    # All views of the body share its owner.
    owner = memoryview(body).obj
    shared = {id(span.view) for span in request.spans or () if not span.is_copy}
    size_bytes = 0
    for tensor in request.inputs:
        view = memoryview(tensor.data)
        if view.obj is not owner and id(tensor.data) not in shared:
            size_bytes += view.nbytes
    return size_bytes
