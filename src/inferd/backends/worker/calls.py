"""WorkerCalls: what the model in a worker asks of the server, carried out on the event loop.

Its requests to other models go through the engine like any other, without a socket. Each carries
the names of the models that wait for it. This limits the nesting depth, and lets a model notice
that it would wait for itself. The time a nested request may wait in a queue is bounded, too
(`inferd.schedulers.queueing.policy`), so that two models calling each other cannot wait forever.
"""

import asyncio
import inspect
import logging
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from inferd.aio.driver import Driver, cancel_soon
from inferd.aio.promise import driven
from inferd.backends.worker.commands import Commands, Loads
from inferd.backends.worker.document import CalledRequest, Command, Content, DescribedCall, Metered
from inferd.backends.worker.link import NO_LOANS, Loans
from inferd.backends.worker.message import (
    SEQUENCE_END,
    SEQUENCE_START,
    Places,
    blocks_of,
    placed,
    places_of,
)
from inferd.backends.worker.replies import Caller, Replies
from inferd.backends.worker.stream import answer_stream
from inferd.core.interfaces import BackendContext, Models
from inferd.core.request import InferRequest, Sequence, WantedOutput
from inferd.errors import InvalidRequest, Unsupported
from inferd_worker import packet

if TYPE_CHECKING:
    from inferd.observe.tracing.trace import Trace

MAX_NESTING = 16
"""The most models that may wait for each other in a chain."""

log = logging.getLogger("inferd.model")

MAX_CALLS = 1000
"""The most calls of one worker that may run at once."""

AHEAD = 16
"""How many responses a called decoupled model may be ahead of its caller."""


class Wish:
    """The content of a CALL by `model`, parsed once for all identical ones.

    `blocks` are the blocks of our memory that it names.
    """

    def __init__(self, call: DescribedCall, model: str) -> None:
        self.released = call.released
        self.is_decoupled = call.is_decoupled
        self.called = called = call.request
        self._callers = (*call.callers, model)
        if called.odd:
            called.parameters = packet.even_numbers(called.parameters, called.odd)
        version = str(called.version)
        # Triton's API has -1 for whichever version is the newest.
        self._version = "" if version == "-1" else version
        self.blocks = blocks_of(called.inputs)
        self._places: Places | None = None  # of the inputs, once they are wanted

    def request(self, data: Any, loans: Loans) -> InferRequest:
        """Return the request, its inputs views of `data` or `loans`.

        Raises InvalidRequest if too many models wait for each other, ValueError for inputs whose
        bytes are out of range or do not fit their shapes.
        """
        called = self.called
        if len(self._callers) > MAX_NESTING:
            way = " -> ".join((*self._callers[-4:], called.model))
            raise InvalidRequest(f"more than {MAX_NESTING} models wait for each other: ... {way}")
        if self._places is None:
            self._places = places_of(called.inputs)
        request = InferRequest(
            called.model,
            self._version,
            called.id,
            placed(self._places, data, loans),
            [WantedOutput(name) for name in called.outputs] if called.outputs else [],
            dict(called.parameters) if called.parameters else {},
        )
        # A model may send anything; the engine counts on what the wire codecs have checked for
        # clients.
        request.priority = max(0, called.priority)
        request.timeout_us = max(0, called.timeout_us)
        request.sequence = _sequence(called)
        request.callers = self._callers
        return request


class WorkerCalls:
    """The calls of one worker, the `caller`.

    `loads` are the loads that models of this backend wait for while they start.
    """

    def __init__(self, context: BackendContext, loads: Loads, caller: Caller) -> None:
        self._model = caller.plan.model
        self._caller = caller
        self._replies = Replies(caller)
        self._context = context
        self._running: dict[int, tuple[asyncio.Task[None] | Driver, asyncio.Semaphore | None]] = {}
        self._wishes: dict[bytes, Wish] = {}  # earlier CALLs, by their documents
        self._commands = Commands(context, loads, self._replies, self.begin)

    def end(self) -> None:
        """Cancel the running calls: the caller has ended."""
        for running, _ in self._running.values():
            cancel_soon(running)
        self._running.clear()
        self._commands.end()

    def receive(self, kind: int, content: Content, number: int) -> None:
        """Take a packet other than a CALL; `number` is the first one of its header."""
        if isinstance(content, Command):
            self._commands.run(number, content)
        elif isinstance(content, Metered):
            self._commands.apply(content)
        elif kind in (packet.CREDIT, packet.HANG_UP):
            self._note(kind, number)

    def receive_call(self, document: bytes, data: Any, number: int, trace: "Trace | None") -> None:
        """Take the CALL `number`; it belongs to the `trace`, if any."""
        wish = self._wishes.get(document)
        if wish is None:
            wish = Wish(msgspec.json.decode(document, type=DescribedCall), self._model)
            packet.keep(self._wishes, document, wish, len(document))
        loans = NO_LOANS
        if wish.blocks or wish.released:
            # The model holds the blocks of ours that a call names until the call is answered.
            loans = self._caller.settle(wish.released, wish.blocks)
        models = self._context.models
        try:
            if models is None:
                raise Unsupported("there are no models here that could be called")
            request = wish.request(data, loans)
        except Exception as error:  # noqa: BLE001  reported to the caller
            self._replies.fail(number, wish.called.model, error)
            return
        request.trace = trace
        if wish.is_decoupled:
            # A decoupled model may go on after an error, and the caller gets each as a response.
            request.takes_errors = True
            # A caller that does not read must not have all answers pile up here.
            room = asyncio.Semaphore(AHEAD)
            self.begin(number, answer_stream(self._replies, number, models, request, room), room)
        else:
            self.begin(number, self._call(number, models, request))

    def _note(self, kind: int, number: int) -> None:
        running = self._running.get(number)
        if running is None:
            return
        call, room = running
        if kind != packet.CREDIT:
            del self._running[number]
            cancel_soon(call)
        elif room is not None:
            room.release()

    def begin(
        self, number: int, job: Coroutine[object, None, None], room: asyncio.Semaphore | None = None
    ) -> None:
        """Run `job` to answer the call or command `number`; with `room` it streams, in a task."""
        if len(self._running) >= MAX_CALLS:
            job.close()
            msg = f"model '{self._model}' has {MAX_CALLS} calls of other models under way"
            self._replies.refuse(number, InvalidRequest(msg))
            return
        if self._caller.reads_on is None:  # during the load a thread waits for each call
            self._do_in_thread(number, job)
            return
        if room is not None:
            task = asyncio.get_running_loop().create_task(job)
            self._running[number] = task, room
            task.add_done_callback(lambda _: self._running.pop(number, None))
            return
        # Without a task: most calls are answered in a turn or two, and a task
        # would cost a turn more (aio/promise.py).
        driver = Driver(job, partial(self._go_on, number), partial(self._note_ended, number))
        self._running[number] = driver, None
        driver.step()

    def _go_on(self, number: int) -> None:
        """Continue a call: what it waited for is there."""
        driver, _ = self._running.get(number, (None, None))
        if isinstance(driver, Driver):
            driver.go_on()

    def _note_ended(self, number: int, _result: None, error: BaseException | None) -> None:
        self._running.pop(number, None)
        if isinstance(error, Exception):
            log.error("unexpected failure of a call by model '%s'", self._model, exc_info=error)

    def _do_in_thread(self, number: int, job: Coroutine[object, None, None]) -> None:
        loop = self._context.loop
        if loop is None:
            job.close()
            msg = "there is no server here whose models could be called"
            self._replies.refuse(number, Unsupported(msg))
        else:
            running = driven(job)
            try:
                waiting = asyncio.run_coroutine_threadsafe(running, loop)
            except RuntimeError:  # the server has ended, and this worker ends with it
                running.close()
                job.close()
                return
            try:
                waiting.result(self._caller.plan.start_timeout_s)
            except TimeoutError:  # then the start has taken too long, too, and that is reported
                waiting.cancel()
                if inspect.getcoroutinestate(running) == inspect.CORO_CREATED:
                    running.close()  # the server has ended
                    job.close()

    async def _call(self, number: int, models: Models, request: InferRequest) -> None:
        try:
            self._replies.answer(number, await models.infer(request), is_last=True)
        except Exception as error:  # noqa: BLE001  reported to the caller
            self._replies.fail(number, request.model, error)


def _sequence(called: CalledRequest) -> Sequence | None:
    if not called.correlation_id and not called.flags & (SEQUENCE_START | SEQUENCE_END):
        return None
    return Sequence(
        called.correlation_id,
        start=bool(called.flags & SEQUENCE_START),
        end=bool(called.flags & SEQUENCE_END),
    )
