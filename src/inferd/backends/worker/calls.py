"""WorkerCalls: what the model in a worker asks of the server, done on the event loop.

Its requests to other models go through the engine like any other, without a socket. Each carries
the names of the models that wait for it. That bounds how deep they may be nested, and lets a model
notice that it would wait for itself; how long a nested request may wait in a queue is bounded, too
(`inferd.schedulers.policy`), so two models that call each other cannot wait for ever.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from inferd.backends.worker.bootstrap.inferd_worker import packet
from inferd.backends.worker.bootstrap.inferd_worker.arena import ArenaFull
from inferd.backends.worker.document import Call, Called, Command, Metered, Note
from inferd.backends.worker.link import NO_LOANS, Loans, Payload
from inferd.backends.worker.loads import Loads
from inferd.backends.worker.message import (
    ERRORS,
    SEQUENCE_END,
    SEQUENCE_START,
    blocks_of,
    described,
    tensors_of,
)
from inferd.core.interfaces import Surroundings
from inferd.core.later import Later, Paused, resumed
from inferd.core.load import LoadRequest, UnloadRequest
from inferd.core.request import InferRequest, InferResponse, Sequence, WantedOutput
from inferd.errors import (
    BackendFailed,
    Code,
    InferdError,
    InvalidRequest,
    ModelNotFound,
    Unsupported,
    foreign_text,
)

if TYPE_CHECKING:
    from inferd.backends.worker.instance import WorkerInstance
    from inferd.observe.custom import CustomMetric

log = logging.getLogger("inferd.model")

MAX_NESTING = 16
"""So many models may wait for each other."""

MAX_CALLS = 1000
"""So many calls of one worker may run at once."""

AHEAD = 16
"""A decoupled model that is called may be so many responses ahead of the one that calls."""

_CODES = {code: number for number, code in enumerate(kind.code for kind in ERRORS)}


class WorkerCalls:
    """The calls of one worker of `model`. `instance` is set when there is one.

    `loads` are those that models of this backend wait for while they start.
    """

    def __init__(self, model: str, surroundings: Surroundings, loads: Loads) -> None:
        self.instance: WorkerInstance | None = None
        self._model = model
        self._loads = loads
        self._surroundings = surroundings
        self._running: dict[int, tuple[asyncio.Task[None] | Paused, asyncio.Semaphore | None]] = {}
        self._calls: dict[bytes, Call] = {}  # those before, by their documents
        self._metrics: dict[int, CustomMetric] = {}

    def end(self) -> None:
        """Give up what runs: its caller has ended."""
        for running, _ in self._running.values():
            _give_up(running)
        self._running.clear()
        self._metrics.clear()

    def receive(
        self, kind: int, document: bytes, data: Any, numbers: tuple[int, ...] = packet.NO_NUMBERS
    ) -> None:
        """Take a packet; `numbers` are those of its header."""
        if kind == packet.CALL:
            call = self._calls.get(document)
            if call is None:
                call = msgspec.json.decode(document, type=Call)
                packet.keep(self._calls, document, call, len(document))
            loans = self._lent(call)
            if call.released:
                self._give(call.released)
            room = asyncio.Semaphore(AHEAD) if call.is_decoupled else None
            self._begin(numbers[0], self._call(numbers, call, data, loans, room), room)
        elif kind == packet.COMMAND:
            command = msgspec.json.decode(document, type=Command)
            self._give(command.released)
            self._command(command)
        elif kind == packet.METRIC:
            metered = msgspec.json.decode(document, type=Metered)
            self._give(metered.released)
            if metric := self._metrics.get(metered.number):
                metric.apply(metered.verb, metered.value)
        elif kind in (packet.CREDIT, packet.HANG_UP):
            note = msgspec.json.decode(document, type=Note)
            self._give(note.released)
            self._note(kind, note.number)

    def _lent(self, call: Call) -> Loans:
        """Return what a call names of our own memory, which the model has, and waits with."""
        blocks = blocks_of(call.request.inputs)
        return self.instance.lend(blocks) if blocks and self.instance is not None else NO_LOANS

    def _give(self, offsets: list[int]) -> None:
        if offsets and self.instance is not None:
            self.instance.give(offsets)

    def _note(self, kind: int, number: int) -> None:
        running = self._running.get(number)
        if running is None:
            return
        call, room = running
        if kind != packet.CREDIT:
            del self._running[number]
            _give_up(call)
        elif room is not None:
            room.release()

    def _begin(
        self, number: int, job: Coroutine[Any, Any, None], room: asyncio.Semaphore | None = None
    ) -> None:
        if len(self._running) >= MAX_CALLS:
            job.close()
            msg = f"model '{self._model}' has {MAX_CALLS} calls of other models under way"
            self._refuse(number, InvalidRequest(msg))
            return
        assert self.instance is not None
        if self.instance.reads_on is None:  # it is being loaded: a thread waits for each call
            self._do_in_thread(number, job)
            return
        if room is not None:
            self._go_on_in_task(number, job, room)
            return
        try:  # without suppress(), which costs three calls each time
            waits_for = job.send(None)
        except StopIteration:
            return
        self._wait(number, job, waits_for)

    def _wait(self, number: int, job: Coroutine[Any, Any, None], waits_for: Any) -> None:
        if type(waits_for) is Later:
            self._running[number] = Paused(job, waits_for, partial(self._go_on, number)), None
        else:
            self._go_on_in_task(number, resumed(job, waits_for), None)

    def _go_on(self, number: int) -> None:
        """Go on with a call: what it has waited for is there."""
        paused, _ = self._running.pop(number, (None, None))
        if isinstance(paused, Paused):
            try:
                waits_for = paused.go_on()
            except StopIteration:
                return
            self._wait(number, paused.running, waits_for)

    def _go_on_in_task(
        self, number: int, job: Coroutine[Any, Any, None], room: asyncio.Semaphore | None
    ) -> None:
        task = asyncio.get_running_loop().create_task(job)
        self._running[number] = task, room
        task.add_done_callback(lambda _: self._running.pop(number, None))

    def _do_in_thread(self, number: int, job: Coroutine[object, object, None]) -> None:
        loop = self._surroundings.loop
        if loop is None:
            job.close()
            msg = "there is no server here whose models could be called"
            self._refuse(number, Unsupported(msg))
        else:
            assert self.instance is not None
            try:
                waiting = asyncio.run_coroutine_threadsafe(job, loop)
            except RuntimeError:  # the server has ended meanwhile, and so does this worker
                job.close()
                return
            try:
                waiting.result(self.instance.plan.start_timeout_s)
            except TimeoutError:  # so the start has taken too long as well, which is told
                waiting.cancel()
                if inspect.getcoroutinestate(job) == inspect.CORO_CREATED:  # the server has ended
                    job.close()

    # --- requests ---

    async def _call(
        self,
        numbers: tuple[int, ...],
        call: Call,
        data: Any,
        loans: Loans,
        room: asyncio.Semaphore | None,
    ) -> None:
        number, made_for, _ = numbers
        try:
            models = self._surroundings.models
            if models is None:
                msg = "there are no models here that could be called"
                raise Unsupported(msg)
            request = self._request(call, data, loans)
            del data, loans  # what the request shows of them keeps them
            if made_for and self.instance is not None:
                request.trace = self.instance.trace_of(made_for)
            if room is not None:
                request.takes_errors = True
                await self._stream(number, models.stream(request), room)
            else:
                self._answer(number, await models.infer(request), is_last=True)
        except InferdError as error:
            self._refuse(number, error)
        except Exception as error:
            log.exception(
                "model '%s': a call of model '%s' failed", self._model, call.request.model
            )
            self._refuse(number, BackendFailed(foreign_text(error)))

    async def _stream(
        self, number: int, responses: AsyncGenerator[InferResponse, None], room: asyncio.Semaphore
    ) -> None:
        async with aclosing(responses):
            async for response in responses:
                await room.acquire()
                if response.error is not None:
                    self._refuse(number, response.error, is_last=response.final)
                else:
                    self._answer(number, response, is_last=response.final)
                if response.final:
                    return
        self._answer(number, InferResponse("", ""), is_last=True)

    def _request(self, call: Call, data: Any, loans: Loans) -> InferRequest:
        asked = call.request
        callers = (*call.callers, self._model)
        if len(callers) > MAX_NESTING:
            way = " -> ".join((*callers[-4:], asked.model))
            msg = f"more than {MAX_NESTING} models wait for each other: ... {way}"
            raise InvalidRequest(msg)
        version = str(asked.version)
        return InferRequest(
            asked.model,
            "" if version in ("-1", "") else version,
            asked.id,
            tensors_of(asked.inputs, data, loans),
            [WantedOutput(name) for name in asked.outputs] if asked.outputs else [],
            dict(asked.parameters) if asked.parameters else {},
            priority=max(0, asked.priority),
            timeout_us=max(0, asked.timeout_us),
            sequence=_sequence(asked),
            callers=callers,
        )

    def _answer(self, number: int, response: InferResponse, *, is_last: bool) -> None:
        payload = Payload()
        document = [
            "response",
            [described(tensor, payload) for tensor in response.outputs],
            response.parameters,
            response.model,
            response.version,
            response.id,
        ]
        try:
            self._reply(number, [is_last, document], payload)
        except ArenaFull as error:
            raise BackendFailed(str(error)) from error

    def _refuse(self, number: int, error: InferdError, *, is_last: bool = True) -> None:
        code = _CODES.get(error.code, _CODES[Code.INTERNAL])
        self._reply(number, [is_last, ["error", code, error.message]])

    def _reply(self, number: int, document: list[Any], payload: Payload | None = None) -> None:
        if self.instance is not None:
            self.instance.send(packet.REPLY, document, payload, number)

    # --- everything else ---

    def _command(self, command: Command) -> None:
        try:
            if command.verb in ("load", "unload"):
                job = self._control(command)
                self._begin(command.number, job)
                return
            value = self._value(command.verb, command.arguments)
        except InferdError as error:
            self._refuse(command.number, error)
        except Exception as error:  # noqa: BLE001  whatever the arguments were
            self._refuse(command.number, InvalidRequest(foreign_text(error)))
        else:
            self._reply(command.number, [True, ["value", value]])

    def _value(self, verb: str, arguments: list[Any]) -> Any:
        metrics = self._surroundings.metrics
        if verb == "is_ready":
            return self._is_ready(*arguments)
        if metrics is None:
            msg = "there is no server here that has metrics"
            raise Unsupported(msg)
        if verb == "metric_family":
            metrics.add_family(*arguments)
            return None
        if verb == "metric":
            number, family, labels, bounds = arguments
            self._metrics[number] = metrics.metric(family, labels, bounds or ())
            return None
        return self._metrics[arguments[0]].value

    def _is_ready(self, name: str, version: str) -> bool:
        control = self._surroundings.control
        if control is None:
            return False
        with suppress(ModelNotFound):
            return control.is_model_ready(name, version)
        return False

    async def _control(self, command: Command) -> None:
        control = self._surroundings.control
        try:
            if control is None:
                msg = "there is no server here that could load models"
                raise Unsupported(msg)
            assert self.instance is not None
            is_starting = self.instance.reads_on is None
            if command.arguments[0] == self._model and is_starting:
                msg = f"model '{self._model}' is being loaded, and cannot {command.verb} itself"
                raise InvalidRequest(msg)
            if command.verb == "unload":
                name, dependents = command.arguments
                await control.unload(UnloadRequest(name, dependents))
            else:
                name, config, files = command.arguments
                sent = {path: bytes.fromhex(content) for path, content in files.items()}
                request = LoadRequest(name, config or None, sent)
                with self._loads.waiting(self._model, name) if is_starting else nullcontext():
                    await control.load(request)
        except InferdError as error:
            self._refuse(command.number, error)
        except Exception as error:  # noqa: BLE001  else the model would wait for ever
            self._refuse(command.number, InvalidRequest(foreign_text(error)))
        else:
            self._reply(command.number, [True, ["value", None]])


def _give_up(call: asyncio.Task[None] | Paused) -> None:
    """Cancel a call; a task takes its first step before, for it may have taken over what runs."""
    if isinstance(call, Paused):
        call.cancel()
    else:
        call.get_loop().call_soon(call.cancel)


def _sequence(asked: Called) -> Sequence | None:
    if not asked.correlation_id and not asked.flags & (SEQUENCE_START | SEQUENCE_END):
        return None
    return Sequence(
        asked.correlation_id,
        start=bool(asked.flags & SEQUENCE_START),
        end=bool(asked.flags & SEQUENCE_END),
    )
