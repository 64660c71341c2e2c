"""ModelStreamInfer: the requests of one stream overlap.

Each request is begun as soon as it arrives, so a model with a queue gets them in order of arrival.
Models that answer once have their answers sent in the order of the requests; the answers of
decoupled models are sent as they come, whatever else is under way (Triton, decoupled models). The
requests under way are limited by number and by size: at the limit, nothing more is read and the
client has to wait. If a client does not read, its models wait.

When the server stops, an open stream takes no new requests, except those that continue a sequence;
it ends when those under way are answered and none has come for a while.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import aclosing
from inspect import CORO_CREATED, getcoroutinestate
from time import time_ns
from typing import Any, cast

from inferd.aio.promise import is_cancelled, resume
from inferd.api.header_forward import add_forwarded
from inferd.api.inference import GrpcInference
from inferd.core.request import InferRequest, InferResponse
from inferd.engine.engine import Engine
from inferd.engine.traced import TracedEngine
from inferd.errors import Cancelled, Code, Unavailable
from inferd.http.failure import FailureLog
from inferd.http.grpc.handler import Call, StreamHandler
from inferd.http.grpc.status import GRPC_STATUS, status_of
from inferd.http.request_log import Notes
from inferd.memory.buffer import Buffer
from inferd.observe.tracing import trace as times
from inferd.observe.tracing.trace import Trace
from inferd.wire.v2.grpc import codec as v2_grpc

MAX_IN_FLIGHT = 1024
"""So many requests of one stream may be under way.

Beginnings of sequences that wait for a slot are among them, and what would free the slots may come
behind them in the same stream.
"""

MAX_IN_FLIGHT_BYTES = 16 << 20
"""With more message bytes than this under way, no further request is read."""

MAX_READY = 16
"""With this many answers unsent, decoupled models wait, and no further request is read."""

# As drain_window for connections of HTTP: what the client has sent meanwhile arrives within it.
QUIET_S = 1.0
"""When the server stops, a stream ends after so long without a request."""

READ_IN_A_ROW = 16
"""How many requests are begun before the answers that are already there are sent."""

Outcome = list[Buffer] | Exception
"""An answer as buffers, or an error that ends the stream."""


def stream_handler(
    inference: GrpcInference, stopping: asyncio.Event | None = None
) -> StreamHandler:
    """Return the handler of ModelStreamInfer; `stopping` is set when the server stops.

    Failures are reported inside the stream, which goes on; if the client sends the metadata
    triton_grpc_error: true, the first failure ends it instead.
    """
    failures = FailureLog(logging.getLogger("inferd.grpc"))

    def model_stream_infer(
        messages: AsyncIterator[bytes], call: Call
    ) -> AsyncIterator[list[Buffer]]:
        return InferStream(inference, failures, messages, call, stopping).answers()

    return model_stream_infer


class StreamRequest:
    """One request under way: from its message until its last answer has been sent."""

    def __init__(self, engine: Engine, size_bytes: int) -> None:
        self.engine: Engine | TracedEngine = engine
        self.size_bytes = size_bytes
        self.request: InferRequest | None = None
        self.request_id = ""
        self.trace: Trace | None = None
        self.outcome: Outcome | None = None  # while it waits in line
        self.message: Any = None  # what another protocol's codec decodes
        self.notes: Notes | None = None  # of a request that is logged, with what follows
        self.began_ns = 0
        self.sent_bytes = 0
        self.status = 0
        self.version = ""


class InferStream:
    """One call of ModelStreamInfer; other protocols override `decode`, `answer_once`, `fail`."""

    def __init__(
        self,
        inference: GrpcInference,
        failures: FailureLog,
        messages: AsyncIterator[bytes],
        call: Call,
        stopping: asyncio.Event | None = None,
    ) -> None:
        self._stopping = stopping
        self._is_stopping = False
        self._began_count = 0
        self.inference = inference
        self._engine = inference.engine
        self._failures = failures
        self._messages = messages
        self._call = call
        self._ends_at_error = ("triton_grpc_error", "true") in call.metadata
        forward = inference.forward
        self.forwarded = forward.chosen(call.metadata) if forward is not None else {}
        self._under_way: set[StreamRequest] = set()
        self._size_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        # Requests to models that answer once, in order, until their answers are ready.
        self._line: deque[StreamRequest] = deque()
        # (request, answer to send, whether it is the last); None for no more answers.
        self._ready: deque[tuple[StreamRequest, Outcome | None, bool]] = deque()
        self._may_read = asyncio.Event()
        self._has_room = asyncio.Event()
        self._waiter: asyncio.Future[None] | None = None

    async def answers(self) -> AsyncGenerator[list[Buffer], None]:
        """Yield the answers to all requests, each as buffers."""
        self._may_read.set()
        self._has_room.set()
        reader = self._start(self._read())
        if self._stopping is not None:
            self._start(self._end_with_server(self._stopping))
        try:
            while True:
                while self._ready:
                    pending, outcome, is_last = self._ready.popleft()
                    # Woken before the answer is sent, so that reading and models go on while the
                    # transport writes.
                    if len(self._ready) < MAX_READY:
                        self._has_room.set()
                        self._may_read.set()
                    # gRPC ends the stream with the status of what is raised.
                    if isinstance(outcome, Exception):
                        raise outcome
                    if outcome is not None:
                        _note_sending(pending, outcome)
                        yield outcome
                        _stamp(pending.trace, times.GRPC_SEND_END)
                    if is_last:
                        self._end(pending)
                # The client has half-closed: the stream ends when the last request has been
                # answered.
                if reader.done():
                    # Raises what ended the reading.
                    reader.result()
                    if not self._under_way:
                        return
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
        finally:
            # Also when the client goes away, which closes this generator.
            await self._give_up()

    async def _read(self) -> None:
        """Begin each request as it arrives; at the limits, wait."""
        count = 0
        async for data in self._messages:
            await self._begin(data)
            count += 1
            # Requests that run on the loop need no await, so without this a fast client would see
            # no answer until it pauses.
            if count % READ_IN_A_ROW == 0:
                await asyncio.sleep(0)
            while self._is_full():
                self._may_read.clear()
                await self._may_read.wait()

    def _is_full(self) -> bool:
        """Return whether no more may be read until the client has taken some answers."""
        return (
            len(self._under_way) >= MAX_IN_FLIGHT
            or self._size_bytes > MAX_IN_FLIGHT_BYTES
            or len(self._ready) >= MAX_READY
        )

    async def _begin(self, data: bytes) -> None:
        pending = StreamRequest(self._engine, len(data))
        self._under_way.add(pending)
        self._size_bytes += pending.size_bytes
        # Counted for the whole server, which then refuses others.
        self._call.hold(pending.size_bytes)
        self._began_count += 1
        if self._call.notes is not None:
            pending.notes, pending.began_ns = Notes(), time_ns()
        try:
            request = await self.decode(data, pending)
            if self._is_stopping and not _goes_on(request):
                raise _stopped()
            is_decoupled = pending.engine.is_decoupled(request.model, request.version)
        except Exception as error:  # noqa: BLE001  reported to the client, or raised by `answers`
            # Undecodable, maybe, but its id can still be found, and lets the client tell which one
            # failed.
            if pending.request is None:
                pending.request_id = v2_grpc.request_id(data)
            pending.outcome = self.fail(pending, error)
            # A failure takes its place in line: answers keep the order of the requests.
            self._line.append(pending)
            self._advance()
            return
        if is_decoupled:
            self._start(self._answer_often(pending, request))
            return
        self._line.append(pending)
        # Run up to its first wait without a task: a small model has answered by then, and a task
        # costs as much as the model.
        running = self.answer_once(pending, request)
        try:
            waits_for = running.send(None)
        except StopIteration as done:
            pending.outcome = done.value
            self._advance()
        # Raised by the model, since this task is not cancelled here.
        except asyncio.CancelledError:
            pending.outcome = self.fail(pending, Cancelled())
            self._advance()
        else:
            self._start(self._answer_later(pending, running, waits_for))

    async def decode(self, data: bytes, pending: StreamRequest) -> InferRequest:
        """Return the request in `data`, and note it in `pending`."""
        request: InferRequest = await self.inference.decode(data, self._call)
        pending.request, pending.request_id = request, request.id
        self.begin_trace(pending, request)
        if self.forwarded:
            add_forwarded(request, self.forwarded)
        return request

    def begin_trace(self, pending: StreamRequest, request: InferRequest) -> None:
        """Have the engine trace the request, if it is one to be traced."""
        if self._engine.tracer.is_on:
            trace = self.inference.begin_trace(request.model, self._call)
            if trace is not None:
                pending.trace = trace
                pending.engine = TracedEngine(self._engine, trace)

    async def answer_once(self, pending: StreamRequest, request: InferRequest) -> Outcome:
        """Return the answer to a request for a model that gives one answer."""
        try:
            response = await pending.engine.infer(request)
            # Marked for clients that read decoupled models in the same stream.
            response.final = True
            pending.version = response.version
            return self.inference.codec.encode_stream(request, response)
        except Exception as error:  # noqa: BLE001  reported to the client, or raised by `answers`
            return self.fail(pending, error)

    async def _answer_later(
        self, pending: StreamRequest, running: Coroutine[object, None, Outcome], waits_for: Any
    ) -> None:
        try:
            pending.outcome = await resume(running, waits_for)
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            pending.outcome = self.fail(pending, Cancelled())  # somebody else gave it up
        self._advance()

    def _advance(self) -> None:
        """Queue for sending the answers that are complete at the front of the line."""
        line = self._line
        while line and line[0].outcome is not None:
            pending = line.popleft()
            self._put(pending, pending.outcome, is_last=True)

    async def _answer_often(self, pending: StreamRequest, request: InferRequest) -> None:
        request.takes_errors = not self._ends_at_error
        try:
            is_final = False
            async with aclosing(pending.engine.stream(request)) as responses:
                async for response in responses:
                    is_final = response.final
                    pending.version = response.version
                    if response.error is None:
                        self._put(pending, self.inference.codec.encode_stream(request, response))
                    else:
                        self._put(pending, self.fail(pending, response.error, is_final=is_final))
                    # After the answer is handed over, so that each model may be one ahead even
                    # where there is no room.
                    await self._has_room.wait()
            # The client asked for it (parameter triton_enable_empty_final_response): a last answer
            # without outputs.
            if request.empty_final and not is_final:
                last = InferResponse(request.model, "", request.id)
                self._put(pending, self.inference.codec.encode_stream(request, last))
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            self._put(pending, self.fail(pending, Cancelled()))
        except Exception as error:  # noqa: BLE001  reported to the client, or raised by `answers`
            self._put(pending, self.fail(pending, error))
        self._put(pending, None, is_last=True)

    def _put(
        self, pending: StreamRequest, outcome: Outcome | None, *, is_last: bool = False
    ) -> None:
        self._ready.append((pending, outcome, is_last))
        if len(self._ready) >= MAX_READY:
            self._has_room.clear()
        self._wake()

    def fail(self, pending: StreamRequest, error: Exception, *, is_final: bool = True) -> Outcome:
        """Return the outcome that reports `error`; it names the model if that has run.

        `is_final` says that nothing follows for the request.
        """
        if pending.trace is not None:
            pending.trace.fail(error)
        if self._ends_at_error:
            pending.status = status_of(error)[0]
            return error
        self._failures.note("ModelStreamInfer", error)
        code, text = status_of(error)
        pending.status = code
        request = pending.request
        # Triton's form of the error has no model unless that was reached.
        has_run = code == GRPC_STATUS[Code.INTERNAL] or (request and request.started_ns)
        if request is None or not has_run:
            return v2_grpc.encode_stream_error(text, pending.request_id)
        return v2_grpc.encode_late_error(request, text, is_final=is_final)

    async def _end_with_server(self, stopping: asyncio.Event) -> None:
        """When the server stops, refuse new requests, and end the stream once it is quiet."""
        await stopping.wait()
        self._is_stopping = True
        count = -1
        # Quiet is a whole interval without a request, and nothing under way.
        while self._under_way or count != self._began_count:
            count = self._began_count
            await asyncio.sleep(QUIET_S)
        # Through the queue, behind the answers that are there.
        self._put(StreamRequest(self._engine, 0), _stopped())

    def _end(self, pending: StreamRequest) -> None:
        """Note that the last answer to a request has been sent."""
        self._under_way.discard(pending)
        self._size_bytes -= pending.size_bytes
        self._call.release(pending.size_bytes)
        self._may_read.set()
        if pending.trace is not None:
            self._engine.tracer.finish(pending.trace)
        if pending.notes is not None:
            self._log(pending, pending.notes)

    def _log(self, pending: StreamRequest, notes: Notes) -> None:
        call = self._call
        if call.notes is not None:  # those of the call itself keep no request of the stream
            call.notes.about = None
        notes.about, notes.version = pending.request, pending.version
        call.note_request(
            notes, pending.status, pending.size_bytes, pending.sent_bytes, pending.began_ns
        )

    async def _give_up(self) -> None:
        """End everything still under way: the stream has ended, or its client has gone."""
        loop = asyncio.get_running_loop()
        for task in self._tasks:
            coroutine = cast("Coroutine[object, None, None]", task.get_coro())
            if getcoroutinestate(coroutine) == CORO_CREATED:
                # It would not pass the cancellation on to a coroutine it took over.
                loop.call_soon(task.cancel)
            else:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # `_end` removes from the set.
        for pending in list(self._under_way):
            if pending.trace is not None and not pending.trace.error:
                pending.trace.fail(Cancelled())
            pending.status = pending.status or GRPC_STATUS[Code.CANCELLED]
            self._end(pending)

    def _start(self, running: Coroutine[object, None, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(running)
        self._tasks.add(task)
        task.add_done_callback(self._note_done)
        return task

    def _note_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _note_sending(pending: StreamRequest, answer: list[Buffer]) -> None:
    _stamp(pending.trace, times.GRPC_SEND_START)
    if pending.notes is not None:
        pending.sent_bytes += sum(map(len, answer))


def _goes_on(request: InferRequest) -> bool:
    """Return whether a request continues a sequence, which only this server can go on with."""
    sequence = request.sequence
    # A first request could go to another server as well.
    return sequence is not None and bool(sequence.id) and not sequence.start


def _stopped() -> Unavailable:
    # The words that Triton's clients know, for all kinds of models.
    msg = "Server is stopping, scheduler for model has stopped accepting new inference requests"
    return Unavailable(msg)


def _stamp(trace: Trace | None, name: str) -> None:
    if trace is not None:
        trace.stamp(name)
