"""WorkerInstance: a model instance that lives in a process of its own.

It is driven by the event loop (see AsyncInstance) and needs no thread there: a request becomes a
packet, and the packet that comes back becomes its answer. When the process ends, the requests in
it fail with the reason.
"""

import asyncio
import concurrent.futures
import queue
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from inferd.backends.worker.calls import WorkerCalls
from inferd.backends.worker.document import (
    DECODERS,
    Answers,
    Content,
    DescribedAnswer,
    Failed,
    Logged,
    Said,
    Started,
)
from inferd.backends.worker.failure import Lost, Untaken
from inferd.backends.worker.link import NO_LOANS, LinkClosed, Loans
from inferd.backends.worker.message import ResultReader, describe_request, placed, response_of
from inferd.backends.worker.plan import WorkerPlan
from inferd.backends.worker.readiness import Readiness
from inferd.backends.worker.replies import Caller
from inferd.backends.worker.supervisor import Supervisor
from inferd.backends.worker.under_way import Deliver, RunningBatch, RunningStream, joined
from inferd.core.interfaces import Outcome
from inferd.core.request import InferRequest, InferResponse
from inferd.core.rows import UNKNOWN, Verdict
from inferd.core.traits import InstanceTraits
from inferd.errors import BackendFailed, InferdError, TooLarge, Unavailable
from inferd_worker import packet
from inferd_worker.arena import ArenaFull, NeverFits

if TYPE_CHECKING:
    from inferd.observe.tracing.trace import Trace

CREDIT_AT = 8
"""How much of a stream's window must have been consumed before the worker gets a CREDIT."""


class WorkerInstance(Supervisor):
    """One instance. See AsyncInstance, and DecoupledInstance for callers in a thread.

    `calls` makes what carries out the calls of a model that may ask something of the server.
    """

    def __init__(
        self, plan: WorkerPlan, calls: Callable[[Caller], WorkerCalls] | None = None
    ) -> None:
        super().__init__(plan)
        self.retries = plan.retries
        self._calls = calls(self) if calls is not None else None
        self._version = str(plan.files.version)
        self._numbers = 0
        self._batches: dict[int, RunningBatch] = {}
        self._places: dict[int, tuple[RunningBatch, int]] = {}
        self._streams: dict[int, RunningStream] = {}
        self._running_bytes = 0  # of the tensors sent with the running executions
        self._result = msgspec.json.Decoder(Answers).decode
        self._results: dict[bytes, ResultReader] = {}  # earlier RESULTs, by their documents
        self._readiness = Readiness(partial(self.send, packet.ASK, []))

    def begin(self, requests: Sequence[InferRequest], finish: Callable[[Outcome], None]) -> None:
        """See AsyncInstance.begin."""
        payload = packet.Payload()
        batch = RunningBatch(requests, finish)
        documents = []
        number = self._numbers
        for index, request in enumerate(requests):
            number += 1
            documents.append(describe_request(request, payload, self.plan.reshapes))
            self._places[number] = batch, index
        self._numbers = number
        self._batches[number] = batch
        callers = requests[0].callers
        if len(requests) > 1:
            # The longest chain: it is what MAX_NESTING has to stop.
            callers = max([request.callers for request in requests], key=len)
        error = self._send_batch(number, batch, (documents, payload), callers)
        if error is not None:
            del self._batches[number]
            for one in range(number - len(requests), number):
                del self._places[one + 1]
            finish(error)

    def begin_stream(self, request: InferRequest, deliver: Deliver) -> int:
        """See AsyncInstance.begin_stream."""
        payload = packet.Payload()
        self._numbers += 1
        number = self._numbers
        batch = RunningBatch((), lambda _: None)
        self._batches[number] = batch
        self._streams[number] = RunningStream(request, deliver)
        documents = [describe_request(request, payload, self.plan.reshapes)]
        error = self._send_batch(number, batch, (documents, payload), request.callers)
        if error is not None:
            del self._batches[number], self._streams[number]
            deliver(error, 0)
            if not error.is_untaken:
                deliver(None, 0)
        return number

    def _send_batch(
        self,
        number: int,
        batch: RunningBatch,
        packed: tuple[list[Any], packet.Payload],
        callers: Sequence[str],
    ) -> InferdError | None:
        """Send a batch; return the error if it cannot be sent."""
        link, plan = self._link, self.plan
        assert link is not None
        # Before anything can fail: a scheduler that is told of a failure
        # must not come back here at once.
        self.is_free = False
        holds = self.running_count > 0  # a busy worker would not read it yet
        try:
            link.send(packet.EXECUTE, [packed[0], callers], packed[1], (number, 0, 0), holds=holds)
        except LinkClosed:
            msg = f"the worker process of model '{plan.model}' has just ended"
            return Untaken(msg)  # the next process makes this instance free again
        except ArenaFull as error:
            failed = _too_large(plan, error, len(batch.requests))
            if self.running_count:  # free again when these end and give their memory back
                return Untaken(failed.message)
            self.is_free = True
            return failed
        self.running_count += 1
        batch.size = packed[1].size
        self._running_bytes += batch.size
        self.is_free = self.ahead.has_room(self.running_count, self._running_bytes)
        if plan.timeout_s and self.reads_on is not None:
            batch.timer = self.reads_on.call_later(plan.timeout_s, self._time_out)
        return None

    @property
    def traits(self) -> InstanceTraits:
        """See Instance. The verdict is that of the backend in the worker."""
        started = self._started
        spoken = started.verdict if isinstance(started, Started) else None
        verdict = Verdict(*spoken) if spoken is not None else UNKNOWN
        return InstanceTraits(is_bounded=False, verdict=verdict)

    def _time_out(self) -> None:
        if self._process is not None:
            self._process.kill(
                f"was killed: an execution took longer than {self.plan.timeout_s:g} s"
            )

    def cancel(self, requests: Sequence[InferRequest]) -> None:
        """See AsyncInstance.cancel."""
        # By identity: two requests may be equal.
        wanted = {id(request) for request in requests}
        numbers = [
            number
            for number, (batch, index) in self._places.items()
            if id(batch.requests[index]) in wanted
        ]
        numbers += [number for number, one in self._streams.items() if id(one.request) in wanted]
        if numbers:
            self.send(packet.CANCEL, [numbers])

    def cancel_stream(self, number: int) -> None:
        """See AsyncInstance.cancel_stream."""
        if self._streams.pop(number, None) is not None:
            self.send(packet.CANCEL, [[number]])

    def credit(self, number: int, share: int) -> None:
        """See AsyncInstance.credit."""
        stream = self._streams.get(number)
        if stream is None:
            return
        stream.ahead -= 1
        stream.taken += share
        # Not for each answer: a packet costs as much as a small answer does.
        if stream.taken >= CREDIT_AT:
            self.send(packet.CREDIT, [[[number, stream.taken]]])
            stream.taken = 0

    def _trace_of(self, number: int) -> "Trace | None":
        """Return the trace of a request in execution, if it is traced."""
        if stream := self._streams.get(number):
            return stream.request.trace
        place = self._places.get(number)
        return place[0].requests[place[1]].trace if place is not None else None

    async def says_ready(self) -> bool:
        """See AsyncInstance.says_ready."""
        self.attach(asyncio.get_running_loop())
        started = self._started
        if not isinstance(started, Started) or not started.can_say or self._link is None:
            return True  # whether there is a process is checked elsewhere
        return await self._readiness.ask(is_busy=self.running_count > 0)

    def _receive(self, kind: int, document: bytes, data: Any, numbers: tuple[int, ...]) -> None:
        link = self._link
        assert link is not None
        if kind == packet.RESULT:
            # Answers of a model are mostly alike but for their bytes, so
            # that the document is parsed once.
            result = self._results.get(document)
            if result is None:
                result = ResultReader(self._result(document))
                packet.keep(self._results, document, result, len(document))
            loans = NO_LOANS
            if result.blocks or result.released:
                loans = link.settle(result.released, result.blocks)
            self._take_result(result, data, loans, numbers)
            del loans  # the views into the blocks keep them alive
            link.expects = self.running_count > 1  # with one left, it may not be there yet
        elif kind == packet.CALL:
            if self._calls is not None:
                trace = self._trace_of(numbers[1]) if numbers[1] else None
                self._calls.receive_call(document, data, numbers[0], trace)
        elif kind in DECODERS:
            content = DECODERS[kind](document)
            link.settle(content.released)
            self._receive_content(kind, content, data, numbers[0])
        link.release()

    def _receive_content(self, kind: int, content: Content, data: Any, number: int) -> None:
        if isinstance(content, Answers):
            for answer in content.answers:
                self._take_answer(answer.number, answer, data)
        elif isinstance(content, Said):
            self._readiness.say(is_ready=content.is_ready)
        elif isinstance(content, Started):
            self._started = content
        elif isinstance(content, Failed):
            self._started = BackendFailed(f"model '{self.plan.model}': {content.text}")
        elif isinstance(content, Logged):
            self.lines.packet(content)
        elif self._calls is not None:
            self._calls.receive(kind, content, number)

    def _is_used(self) -> bool:
        return bool(self._batches or self._streams)

    def _lose(self, reason: str) -> None:
        if self._calls is not None:
            self._calls.end()
        self._readiness.say(is_ready=True)
        batches, streams = self._batches, self._streams
        self._batches, self._streams = {}, {}
        self._places.clear()
        self.running_count = self._running_bytes = 0
        self.ahead.room = 1
        behind: dict[int, RunningBatch] = {}  # what the ended process had not begun
        if self.plan.answers_each and self.ahead.most > 1:
            # In the order in which they were sent, which is that of execution: the
            # first is the one that may have begun.
            executing = {number: one for number, one in batches.items() if one.is_executing}
            behind = dict(islice(executing.items(), 1, None))
        for number, batch in batches.items():
            if batch.timer is not None:
                batch.timer.cancel()
            if number not in behind:
                batch.finish(Lost(reason))
        for batch in reversed(behind.values()):  # each goes to the front of the queue
            batch.finish(Untaken(reason))
        for stream in streams.values():
            stream.deliver(Lost(reason), 0)
            stream.deliver(None, 0)

    def _take_result(
        self, result: ResultReader, data: Any, loans: Loans, numbers: tuple[int, ...]
    ) -> None:
        number, began_ns, ended_ns = numbers
        batch = self._batches.get(number)
        if batch is None or not batch.is_executing:
            return
        # perf_counter is one clock for all processes of a machine (CLOCK_MONOTONIC); what lies
        # outside of the present was made up by the model's process.
        if not 0 <= began_ns <= ended_ns <= time.perf_counter_ns():
            raise ValueError(f"an execution from {began_ns} to {ended_ns} ns")
        self._has_answered = True
        if batch.timer is not None:
            batch.timer.cancel()
        self.running_count -= 1
        self._running_bytes -= batch.size
        if self.ahead.most > 1:
            self.ahead.note(batch, began_ns, ended_ns)
        for request in batch.requests:
            request.computing_ns = began_ns
            request.computed_ns = ended_ns
        has_room = self.ahead.has_room(self.running_count, self._running_bytes)
        self.is_free = has_room and not self._is_going
        self._answer(number, batch, result, data, loans)
        batch.is_executing = False
        if not batch.missing:
            del self._batches[number]
            if batch.requests:
                batch.finish(batch.answers)
        self.on_change()
        if self._waiting:
            self._change()

    def _answer(
        self, number: int, batch: RunningBatch, result: ResultReader, data: Any, loans: Loans
    ) -> None:
        if result.plain is None or batch.answers != [None] or self.plan.reshapes:
            for answer in result.answers:
                self._take_answer(number - answer.number, answer, data, loans)
        elif self._places.pop(number, None) is not None:
            request = batch.requests[0]  # the only one, whose answer has outputs and nothing else
            outputs = placed(result.plain, data, loans)
            batch.answers[0] = InferResponse(request.model, self._version, request.id, outputs)
            batch.missing = 0

    def _take_answer(
        self, number: int, answer: DescribedAnswer, data: Any, loans: Loans = NO_LOANS
    ) -> None:
        stream = self._streams.get(number)
        if stream is not None:
            if answer.outputs is not None or answer.error is not None:
                request, reshapes = stream.request, self.plan.reshapes
                response = response_of(answer, data, request, self._version, loans, reshapes)
                stream.take(answer, response)
            if answer.ends_stream:
                del self._streams[number]
                stream.deliver(None, 0)
            return
        place = self._places.get(number)
        if place is None:
            return
        batch, index = place
        request, reshapes = batch.requests[index], self.plan.reshapes
        request.ran_again = answer.ran_again
        response = response_of(answer, data, request, self._version, loans, reshapes)
        before = batch.answers[index]
        if before is not None or not answer.is_final or answer.outputs is None:
            response = joined(before, answer, response)
        batch.answers[index] = response
        if not answer.is_final and not answer.is_again and answer.error is None:
            if self._link is not None:  # the scheduler keeps it from getting too far ahead
                self._link.send(packet.CREDIT, [[[number, answer.share]]])
            return
        del self._places[number]
        batch.missing -= 1
        if not batch.missing and not batch.is_executing:
            # The response senders outlasted execute().
            numbers = [number for number, one in self._batches.items() if one is batch]
            for number in numbers:
                del self._batches[number]
            batch.finish(batch.answers)

    def send(
        self, kind: int, document: list[Any], payload: packet.Payload | None = None, number: int = 0
    ) -> None:
        """Send a packet other than a request, if there is a process. Raises ArenaFull."""
        if self._link is not None:
            try:  # suppress() would cost three calls each time
                self._link.send(kind, document, payload, (number, 0, 0))
            except LinkClosed:
                return

    def settle(self, released: list[int], named: Collection[int]) -> Loans:
        """See Link.settle."""
        return self._link.settle(released, named) if self._link is not None else NO_LOANS

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute. Raises Unavailable when the process has ended."""
        done: concurrent.futures.Future[Outcome] = concurrent.futures.Future()
        if self.reads_on is not None:
            self.reads_on.call_soon_threadsafe(self._begin_when_free, requests, done)
            outcome = done.result()
        else:
            self.begin(requests, done.set_result)
            self._read_until(done.done)
            outcome = done.result()
        if isinstance(outcome, InferdError):
            raise outcome
        return outcome

    def _begin_when_free(
        self, requests: Sequence[InferRequest], done: "concurrent.futures.Future[Outcome]"
    ) -> None:
        if self.is_free:
            self.begin(requests, done.set_result)
        elif self.unavailable_reason or self._is_closing:
            done.set_result(Unavailable(self.unavailable_reason or "the model is being unloaded"))
        else:
            self._waiting.append(partial(self._begin_when_free, requests, done))

    def _read_until(self, is_done: Callable[[], bool]) -> None:
        link, process, timeout_s = self._link, self._process, self.plan.timeout_s
        if link is None or process is None:
            raise Unavailable(f"model '{self.plan.model}' has no worker process")
        began_s = time.monotonic()
        while not is_done():
            # Looked at after a wait that brought nothing: what the process
            # sent before its end is read first.
            if not link.wait(0.2) and process.has_ended.is_set():
                raise Lost(f"the worker process of model '{self.plan.model}' {process.reason}")
            if timeout_s and time.monotonic() - began_s > timeout_s:
                self._time_out()

    def stream(self, request: InferRequest) -> Iterator[InferResponse]:
        """See DecoupledInstance.stream."""
        answers: queue.SimpleQueue[tuple[InferResponse | InferdError | None, int]]
        answers = queue.SimpleQueue()

        def deliver(answer: InferResponse | InferdError | None, share: int) -> None:
            answers.put((answer, share))

        loop = self.reads_on
        if loop is None:
            number = self.begin_stream(request, deliver)
        else:
            number = asyncio.run_coroutine_threadsafe(
                self._begin_stream(request, deliver), loop
            ).result()
        try:
            while True:
                if loop is None:
                    self._read_until(lambda: not answers.empty())
                answer, share = answers.get()
                if answer is None:
                    return
                if isinstance(answer, InferdError):
                    raise answer
                yield answer
                _call(self.reads_on, self.credit, number, share)
        finally:
            _call(self.reads_on, self.cancel_stream, number)

    async def _begin_stream(self, request: InferRequest, deliver: Deliver) -> int:
        while not self.is_free:
            if self.unavailable_reason or self._is_closing:
                raise Unavailable(self.unavailable_reason or "the model is being unloaded")
            changed = asyncio.Event()
            self._waiting.append(changed.set)
            await changed.wait()
        return self.begin_stream(request, deliver)


def result_of(plan: WorkerPlan) -> str | None:
    """Return the result of START in a process that is ended at once. Raises InferdError."""
    instance = WorkerInstance(plan)
    try:
        return instance.start()
    finally:
        instance.close()


def _call(
    loop: asyncio.AbstractEventLoop | None, function: Callable[..., None], *args: int
) -> None:
    """Call a function where the process is read: in `loop`, or in this thread if that is None."""
    if loop is None:
        function(*args)
    else:
        loop.call_soon_threadsafe(function, *args)


def _too_large(plan: WorkerPlan, error: ArenaFull, request_count: int) -> InferdError:
    inputs = f"the inputs of {request_count} requests" if request_count > 1 else "the inputs"
    msg = f"model '{plan.model}': {inputs} are too large: {error}"
    if setting := plan.growth_setting:
        msg += f"; --backend-config=BACKEND,{setting}=BYTES lets it grow further"
    if request_count <= 1 and isinstance(error, NeverFits):
        return TooLarge(msg)
    return Unavailable(msg)
