"""Execution: where a model's requests run, on the event loop itself or in worker threads.

A hand-over to a thread and back costs 10 to 40 µs, several times what a small model needs; a long
execution on the loop makes every other connection wait. So each model starts in threads, and
requests of one size class (the power of two their element count falls in) move onto the loop once
their measured time has been short for a while. One overrun that the system did not cause
(`inferd.schedulers.overrun`) moves the class back at once, and if overruns keep coming each
further move onto the loop needs twice as many short runs. Only backends
that promise to end by themselves (`bounded`) and to run in several threads at once (`concurrent`)
come onto the loop.

Runs in threads are measured in CPU time: their wall time holds the waiting for the interpreter
lock. Runs on the loop are measured in wall time, which is what the other connections wait, and
whose clock costs a tenth.

Each instance has a thread of its own, so a model that hangs holds up nobody but its own callers.
"""

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import ExitStack, closing, suppress
from copy import copy
from math import prod

from inferd.core.interfaces import DecoupledInstance, Instance
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import (
    BackendFailed,
    Cancelled,
    InferdError,
    Overloaded,
    Unavailable,
    foreign_text,
)
from inferd.observe.stats import Counts
from inferd.schedulers.overrun import Gauges, Overruns

PROMOTE_NS = 100_000
"""A run in a thread that takes less CPU time than this counts towards running on the loop."""

OVERRUN_NS = 1_000_000
"""A run on the loop that takes longer than this sends its size class back to the threads."""

FIRST_RUNS = 8
"""How many short runs in a row a size class needs in threads before its first on the loop."""

MOST_RUNS = 256
"""How many it needs at most, when overruns keep coming."""

CALM_NS = 10_000_000_000
"""An overrun later than this after the move onto the loop is not held against a size class."""

MAX_WAITING = 10_000
"""How many requests of one model may wait for its threads; more are refused as Overloaded."""

STREAM_AHEAD = 16
"""How many answers a decoupled model may be ahead of a slow reader."""

STREAM_AHEAD_BYTES = 1 << 20
"""About how many bytes; it is one answer ahead if that has more."""

Answer = InferResponse | InferdError
Outcome = Sequence[Answer] | InferdError
"""What became of several requests: an answer for each, or one error for all."""

_SIZE_CLASSES = 65  # no tensor has more than 2^64 - 1 elements: they lie in memory


class Execution:
    """The loaded instances of one model version, and the choice of where a request runs.

    `joined` are the same instances as they take several requests at once. It notes the times of
    each execution in its first request (InferRequest), on the clock of `counts`, and counts one for
    several requests there.
    """

    def __init__(
        self,
        name: str,
        instances: Sequence[Instance],
        *,
        may_run_inline: bool,
        joined: Sequence[Instance] | None = None,
        counts: Counts | None = None,
        gauges: Gauges | None = None,
    ) -> None:
        self.name = name
        self._instances = instances
        self._joined = joined or instances
        self._counts = counts or Counts()
        self.instance_count = len(instances)
        self._may_run_inline = may_run_inline
        self.clock = self._counts.clock
        gauges = gauges or Gauges()
        self.cpu_clock = gauges.cpu_ns
        self._overruns = Overruns(self.clock, gauges.preemptions)
        self._inline = [False] * _SIZE_CLASSES
        self._runs_missing = [FIRST_RUNS] * _SIZE_CLASSES
        self._runs_needed = [FIRST_RUNS] * _SIZE_CLASSES
        self._moved_ns = [0] * _SIZE_CLASSES
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._ended: list[asyncio.Future[None]] = []  # one per thread, done when it has ended
        self._waiting_count = 0
        self._is_closed = False

    @property
    def pending_count(self) -> int:
        """How many requests no instance has taken yet."""
        return self._jobs.qsize()

    def run_inline(self, requests: Sequence[InferRequest]) -> Sequence[Answer] | None:
        """Run `requests` here and now, or return None when they belong in a thread.

        Raises InferdError when all of them failed.
        """
        size_class = _size_class(requests)
        if not self._inline[size_class]:
            return None
        is_shared = len(requests) > 1
        instance = self._joined[0] if is_shared else self._instances[0]
        clock = self.clock
        requests[0].started_ns = started_ns = clock()
        failed = True
        try:
            answers = instance.execute(requests)
            if len(answers) != len(requests):
                raise _miscounted(self.name, len(answers), len(requests))
            failed = False
        except InferdError:
            raise
        except (Exception, asyncio.CancelledError, SystemExit) as error:
            raise failure(self.name, error) from error
        finally:
            requests[0].ended_ns = ended_ns = clock()
            if (took_ns := ended_ns - started_ns) > OVERRUN_NS:
                self._note_overrun(size_class, took_ns)
            if is_shared:
                self._counts.add_shared_execution(requests[0], requests, failed=failed)
        return answers

    async def run_in_thread(self, requests: Sequence[InferRequest]) -> Sequence[Answer]:
        """Run `requests` in the next free instance's thread.

        Raises InferdError when all of them failed, Overloaded when too many wait already. When
        the caller is cancelled before an instance took the requests, they never run.
        """
        job = _AwaitedJob(requests, asyncio.get_running_loop())
        self._submit(job)
        try:
            answers, cpu_ns = await job.waited_for()
        finally:
            requests[0].answered_ns = self.clock()
            job.abandon()
            self._waiting_count -= 1
        # A failure may come before the model has done its work: its time says nothing.
        if self._may_run_inline and not isinstance(answers[0], InferdError):
            self._note_thread_run(_size_class(requests), cpu_ns)
        return answers

    def start(self, requests: Sequence[InferRequest], finish: Callable[[Outcome], None]) -> None:
        """Run `requests` in the next free instance's thread, then call `finish` on the event loop.

        They run though nobody may wait for them any more. Raises Overloaded when too many wait
        already; otherwise `finish` is called, whatever happens.
        """

        def finished(outcome: Outcome, cpu_ns: int) -> None:
            self._waiting_count -= 1
            requests[0].answered_ns = self.clock()
            failed = isinstance(outcome, InferdError)
            if len(requests) > 1 and requests[0].started_ns:
                self._counts.add_shared_execution(requests[0], requests, failed=failed)
            answer = outcome if isinstance(outcome, InferdError) else outcome[0]
            if self._may_run_inline and not isinstance(answer, InferdError):
                self._note_thread_run(_size_class(requests), cpu_ns)
            finish(outcome)

        self._submit(_StartedJob(requests, asyncio.get_running_loop(), finished))

    def count_round(self, request: InferRequest, *, failed: bool) -> None:
        """Count an execution of `request` alone that is not all of its executions."""
        self._counts.add_shared_execution(request, (request,), failed=failed)

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """Yield the answers of a decoupled model as they come.

        The model may be STREAM_AHEAD answers ahead of the reader, fewer if they are large, then it
        waits. Raises InferdError while iterating. Closing the iterator stops the model at its next
        answer.
        """
        job = _StreamJob(request, asyncio.get_running_loop())
        self._submit(job)
        try:
            while True:
                answer, share = await job.answers.get()
                if answer is None:
                    return
                job.room.release(share)
                if isinstance(answer, InferdError):
                    try:
                        raise answer
                    finally:
                        del answer  # its traceback holds this frame
                yield answer
        finally:
            request.answered_ns = self.clock()
            job.abandon()
            job.room.release(STREAM_AHEAD)
            self._waiting_count -= 1

    async def close(self, timeout_s: float) -> None:
        """Refuse new requests, let those in the threads finish, and close the instances.

        What has not finished after `timeout_s` seconds is not waited for: requests that no
        instance has taken yet fail as Unavailable, and its close may wake an instance that hangs.
        """
        self._is_closed = True
        self._may_run_inline = False
        self._inline = [False] * _SIZE_CLASSES
        self._end_threads()
        with ExitStack() as at_the_end:
            for instance in self._instances:
                at_the_end.callback(instance.close)
            at_the_end.callback(self._refuse_waiting)
            if self._ended:
                await asyncio.wait(self._ended, timeout=timeout_s)

    def _end_threads(self) -> None:
        for _ in self._ended:
            self._jobs.put(None)

    def _refuse_waiting(self) -> None:
        with suppress(queue.Empty):
            while True:
                if job := self._jobs.get_nowait():
                    job.refuse(self.unloading())
        self._end_threads()

    def unloading(self) -> InferdError:
        """Return what those are told who come too late."""
        return Unavailable(f"model '{self.name}' is being unloaded")

    def _submit(self, job: "_Job") -> None:
        if self._is_closed:
            raise self.unloading()
        if self._waiting_count >= MAX_WAITING:
            msg = f"model '{self.name}' has {MAX_WAITING} requests waiting; try again later"
            raise Overloaded(msg)
        if len(self._ended) < len(self._instances):
            self._start_thread(len(self._ended))
        self._waiting_count += 1
        request = job.requests[0]
        request.queued_ns = request.queued_ns or self.clock()
        self._jobs.put(job)

    def _start_thread(self, number: int) -> None:
        instance, joined = self._instances[number], self._joined[number]
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def work() -> None:
            while (job := self._jobs.get()) is not None:
                if not job.is_abandoned:
                    job.requests[0].started_ns = self.clock()
                    job.run(joined if len(job.requests) > 1 else instance, self)
                del job  # an idle thread keeps nobody's tensors alive
            _tell(loop, ended.set_result, None)

        # A daemon: a model that hangs must not keep the process from ending.
        name = f"{self.name}-{number}"
        threading.Thread(target=work, name=name, daemon=True).start()
        self._ended.append(ended)

    def _note_thread_run(self, size_class: int, took_ns: int) -> None:
        if took_ns > PROMOTE_NS:
            self._runs_missing[size_class] = self._runs_needed[size_class]
            return
        self._runs_missing[size_class] -= 1
        if self._runs_missing[size_class] <= 0:
            self._inline[size_class] = True
            self._moved_ns[size_class] = self.clock()
            self._overruns.look()

    def _note_overrun(self, size_class: int, took_ns: int) -> None:
        if self._overruns.is_forgiven(took_ns):
            return
        self._inline[size_class] = False
        needed = FIRST_RUNS
        if self.clock() - self._moved_ns[size_class] < CALM_NS:
            needed = min(2 * self._runs_needed[size_class], MOST_RUNS)
        self._runs_needed[size_class] = self._runs_missing[size_class] = needed


def _size_class(requests: Sequence[InferRequest]) -> int:
    """Return the class of `requests`: the bit length of their inputs' element count."""
    elements = 0
    for request in requests:
        for tensor in request.inputs:
            elements += prod(tensor.shape)
    return elements.bit_length()


class _Job:
    """Requests on their way through one instance's thread.

    An exception that ends them holds frames of those who wait and of the thread, and these hold the
    job: so neither the job nor a frame may hold on to the exception, or the tensors of failed
    requests would stay until the garbage collector comes.
    """

    def __init__(self, requests: Sequence[InferRequest], loop: asyncio.AbstractEventLoop) -> None:
        self.requests = requests
        self.loop = loop
        self.is_abandoned = False

    def abandon(self) -> None:
        """Nobody waits any longer."""
        self.is_abandoned = True

    def run(self, instance: Instance, execution: Execution) -> None:
        """Execute in this thread, and hand the outcome to the event loop."""
        model = execution.name
        started_ns = execution.cpu_clock()
        outcome: Outcome
        try:
            outcome = instance.execute(self.requests)
            if len(outcome) != len(self.requests):
                outcome = _miscounted(model, len(outcome), len(self.requests))
        except BaseException as error:  # noqa: BLE001  the thread must outlive any model
            outcome = failure(model, error)
        self.requests[0].ended_ns = execution.clock()
        _tell(self.loop, self.finish, outcome, execution.cpu_clock() - started_ns)
        del outcome

    def refuse(self, error: InferdError) -> None:
        """Fail without having run; called on the event loop."""
        self.finish(error, 0)

    def finish(self, outcome: Outcome, cpu_ns: int) -> None:
        """Hand the outcome to who waits for it; called on the event loop."""
        raise NotImplementedError


class _AwaitedJob(_Job):
    """Requests that one caller waits for."""

    def __init__(self, requests: Sequence[InferRequest], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(requests, loop)
        self._done: asyncio.Future[tuple[Sequence[Answer], int]] | None = loop.create_future()

    def waited_for(self) -> "asyncio.Future[tuple[Sequence[Answer], int]]":
        """Return what will be the answers and the CPU ns they took; called once."""
        assert self._done is not None
        return self._done

    def abandon(self) -> None:
        """See _Job.abandon."""
        super().abandon()
        self._done = None

    def finish(self, outcome: Outcome, cpu_ns: int) -> None:
        """See _Job.finish."""
        done, self._done = self._done, None
        if done is None or done.done():
            return
        if isinstance(outcome, InferdError):
            done.set_exception(outcome)
        else:
            done.set_result((outcome, cpu_ns))


class _StartedJob(_Job):
    """Requests that run whoever still waits; `finished` is called when they have."""

    def __init__(
        self,
        requests: Sequence[InferRequest],
        loop: asyncio.AbstractEventLoop,
        finished: Callable[[Outcome, int], None],
    ) -> None:
        super().__init__(requests, loop)
        self._finished = finished

    def finish(self, outcome: Outcome, cpu_ns: int) -> None:
        """See _Job.finish."""
        self._finished(outcome, cpu_ns)


class _StreamJob(_Job):
    """One request to a decoupled model; `answers` ends with None.

    Each answer comes with its share of `room`, which whoever takes it gives back.
    """

    def __init__(self, request: InferRequest, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__((request,), loop)
        self.answers: asyncio.Queue[tuple[Answer | None, int]] = asyncio.Queue()
        self.room = threading.Semaphore(STREAM_AHEAD)

    def run(self, instance: Instance, execution: Execution) -> None:
        """Iterate in this thread, handing over each answer, never too far ahead."""
        try:
            with closing(_answers(instance, self.requests[0], execution.name)) as answers:
                for answer in answers:
                    share = _share(answer)
                    for _ in range(share):
                        self.room.acquire()
                    if self.is_abandoned:
                        return
                    self._hand_over(answer, share)
        except BaseException as error:  # noqa: BLE001  the thread must outlive any model
            self._hand_over(failure(execution.name, error), 1)
        self.requests[0].ended_ns = execution.clock()
        self._hand_over(None, 0)

    def refuse(self, error: InferdError) -> None:
        """See _Job.refuse."""
        self.answers.put_nowait((error, 1))

    def _hand_over(self, answer: Answer | None, share: int) -> None:
        _tell(self.loop, self.answers.put_nowait, (answer, share))


def _share(answer: Answer) -> int:
    """Return how much of STREAM_AHEAD an answer takes: all of it, if it is a large one."""
    if isinstance(answer, InferdError):
        return 1
    size_bytes = sum(tensor.size_bytes for tensor in answer.outputs)
    return min(1 + size_bytes * STREAM_AHEAD // STREAM_AHEAD_BYTES, STREAM_AHEAD)


def _answers(
    instance: Instance, request: InferRequest, model: str
) -> Generator[Answer, None, None]:
    """Yield the answers of `request`; closing this closes the instance's own generator."""
    if isinstance(instance, DecoupledInstance):
        yield from instance.stream(request)
        return
    answers = instance.execute((request,))
    if len(answers) != 1:
        raise _miscounted(model, len(answers), 1)
    yield from answers


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: object) -> None:
    with suppress(RuntimeError):  # the loop has closed: nobody is left to tell
        loop.call_soon_threadsafe(callback, *args)


def failure(model: str, error: BaseException) -> InferdError:
    """Return what those are told whose execution raised `error`."""
    if isinstance(error, InferdError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return Cancelled(f"model '{model}' cancelled the request")
    failed = BackendFailed(f"model '{model}' failed: {foreign_text(error)}")
    failed.__cause__ = error
    return failed


def twin(error: InferdError) -> InferdError:
    """Return the same error for somebody else: each is raised in a place of its own."""
    other = copy(error)
    other.__cause__ = error.__cause__
    return other


def _miscounted(model: str, got: int, expected: int) -> InferdError:
    return BackendFailed(f"model '{model}' gave {got} answers to {expected} requests")
