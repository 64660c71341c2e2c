"""Jobs: requests on their way through one instance's thread, and the line they wait in.

An exception that ends requests holds frames of those who wait and of the thread, and these hold the
job: so neither a job nor a frame may hold on to the exception, or the tensors of failed requests
would stay until the garbage collector comes.
"""

import asyncio
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from copy import copy
from typing import Protocol

from inferd.compiled import mypyc_attr
from inferd.core.interfaces import Answer as Answer
from inferd.core.interfaces import DecoupledInstance, Instance
from inferd.core.interfaces import Outcome as Outcome
from inferd.core.later import Later
from inferd.core.paused import bring, fail
from inferd.core.request import InferRequest, InferResponse, Round
from inferd.errors import BackendFailed, Cancelled, InferdError, foreign_text
from inferd.tensor.tensor import Tensor

STREAM_AHEAD = 16
"""How many answers a decoupled model may be ahead of a slow reader."""

STREAM_AHEAD_BYTES = 1 << 20
"""About how many bytes; it is one answer ahead if that has more."""


class Place(Protocol):
    """What a job must know of the Execution it belongs to; `clock` and `cpu_clock` give ns."""

    name: str
    clock: Callable[[], int]
    cpu_clock: Callable[[], int]

    def note_ended(self) -> None:
        """Take note that a thread has done with a job; called on the event loop."""
        ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Job:
    """Requests that one thread is to run, or an instance that needs none.

    `when_abandoned`, if set, is called when nobody waits any longer, until they have run.
    `is_finished` tells that who awaits one has been given the outcome.
    `level` is its priority, the lowest number comes first. One that `may_go_ahead` may be given to
    an instance that is still busy: it has no timeout, and no other request waits for it.
    """

    level = 0
    may_go_ahead = True
    is_finished = False

    def __init__(self, requests: Sequence[InferRequest], loop: asyncio.AbstractEventLoop) -> None:
        self.requests = requests
        self.loop = loop
        self.is_abandoned = False
        self.was_retried = False
        self.when_abandoned: Callable[[], None] | None = None

    def is_wanted(self) -> bool:
        """Tell whether anybody waits for it still; asked in the thread."""
        return not self.is_abandoned

    def abandon(self) -> None:
        """Nobody waits any longer."""
        self.is_abandoned = True
        if self.when_abandoned is not None:
            self.when_abandoned()

    def run(self, instance: Instance, place: Place) -> None:
        """Execute in this thread, and hand the outcome to the event loop."""
        model = place.name
        started_ns = place.cpu_clock()
        outcome: Outcome
        try:
            outcome = instance.execute(self.requests)
            if len(outcome) != len(self.requests):
                outcome = miscounted(model, len(outcome), len(self.requests))
            else:
                check_told(model, self.requests, outcome)
        except BaseException as error:  # noqa: BLE001  the thread must outlive any model
            outcome = failure(model, error)
        first = self.requests[0]
        first.ended_ns = place.clock()
        first.cpu_ns = place.cpu_clock() - started_ns
        tell(self.loop, self._end, place, outcome)
        del outcome

    def drop(self, place: Place) -> None:
        """Leave it unrun, since nobody wants it; called in the thread."""
        tell(self.loop, self._end, place, Cancelled("nobody waits for the request"))

    def refuse(self, error: InferdError) -> None:
        """Fail without having run; called on the event loop."""
        self.finish(error)

    def finish(self, outcome: Outcome) -> None:
        """Hand the outcome to who waits for it; called on the event loop."""
        raise NotImplementedError

    def _end(self, place: Place, outcome: Outcome) -> None:
        place.note_ended()
        self.when_abandoned = None
        self.finish(outcome)


class AwaitedJob(Job):
    """Requests that one caller waits for."""

    def __init__(self, requests: Sequence[InferRequest], loop: asyncio.AbstractEventLoop) -> None:
        self.requests = requests
        self.loop = loop
        self.is_abandoned = self.was_retried = False
        self.when_abandoned = None
        self._done: Later[Sequence[Answer]] | None = Later(loop=loop)

    def waited_for(self) -> Later[Sequence[Answer]]:
        """Return what will be the answers; called once."""
        assert self._done is not None
        return self._done

    def abandon(self) -> None:
        """See Job.abandon."""
        super().abandon()
        self._done = None

    def finish(self, outcome: Outcome) -> None:
        """See Job.finish."""
        done, self._done = self._done, None
        if done is None or done.done():
            return
        self.is_finished = True
        if isinstance(outcome, InferdError):
            fail(done, outcome)
        else:
            bring(done, outcome)


class StartedJob(Job):
    """Requests whose outcome `finished` is called with; they run while they are `wanted`."""

    def __init__(
        self,
        requests: Sequence[InferRequest],
        loop: asyncio.AbstractEventLoop,
        finished: Callable[[Outcome], None],
        wanted: Callable[[], bool],
    ) -> None:
        super().__init__(requests, loop)
        self._finished = finished
        self._wanted = wanted

    def is_wanted(self) -> bool:
        """See Job.is_wanted."""
        return self._wanted()

    def finish(self, outcome: Outcome) -> None:
        """See Job.finish."""
        self._finished(outcome)


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamJob(Job):
    """One request to a decoupled model; `answers` ends with None.

    Each answer comes with its share of `room`, which whoever takes it gives back.
    """

    may_go_ahead = False

    def __init__(self, request: InferRequest, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__((request,), loop)
        self.answers: asyncio.Queue[tuple[Answer | None, int]] = asyncio.Queue()
        self.room = threading.Semaphore(STREAM_AHEAD)

    def give_room(self, share: int) -> None:
        """Let the model be `share` further ahead."""
        self.room.release(share)

    def abandon(self) -> None:
        """See Job.abandon. The model need not wait for room any more."""
        super().abandon()
        self.room.release(STREAM_AHEAD)

    def run(self, instance: Instance, place: Place) -> None:
        """Iterate in this thread, handing over each answer, never too far ahead."""
        try:
            with closing(_answers(instance, self.requests[0], place.name)) as answers:
                for answer in answers:
                    check_told(place.name, self.requests, (answer,))
                    share = _share(answer)
                    for _ in range(share):
                        self.room.acquire()
                    if self.is_abandoned:
                        break
                    tell(self.loop, self.answers.put_nowait, (answer, share))
            check_told(place.name, self.requests, ())
        except BaseException as error:  # noqa: BLE001  the thread must outlive any model
            tell(self.loop, self.answers.put_nowait, (failure(place.name, error), 1))
        self.requests[0].ended_ns = place.clock()
        tell(self.loop, self._end, place, ())

    def finish(self, outcome: Outcome) -> None:
        """See Job.finish; the answers have been handed over before."""
        last = (outcome, 1) if isinstance(outcome, InferdError) else (None, 0)
        self.answers.put_nowait(last)


class JobQueue:
    """The lines of jobs that wait for a thread, one for each level: first come, first served.

    A job that nobody waits for leaves at once, and its tensors with it: a model that hangs must not
    gather them. What is delayed is served after all others of its level. A thread first waits until
    there may be a job, then takes it: meanwhile the job can still leave. One call in C each, so
    nothing is locked. All but `wait` and `take` is called on the event loop.
    """

    def __init__(self) -> None:
        self._levels: dict[int, tuple[_Line, _Line]] = {}  # those in time, and those delayed
        self._order: list[_Line] = []  # in which they are served; made anew when levels come
        self._signals: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._lines(0)

    def __len__(self) -> int:
        """How many wait."""
        return sum(map(len, self._order))

    def count(self, level: int) -> int:
        """Return how many of a level wait."""
        return sum(map(len, self._levels.get(level, ())))

    def put(self, job: Job) -> None:
        """Let `job` wait behind all others of its level that are not delayed."""
        in_time, _ = self._lines(job.level)
        in_time[job] = None
        self._signals.put(True)

    def end(self) -> None:
        """Let one thread end, when there is no job before."""
        self._signals.put(False)

    def pass_on(self) -> None:
        """Let another thread take the job that this one was woken for; called in a thread."""
        self._signals.put(True)

    def wake(self, count: int) -> None:
        """Wake so many threads that wait, though there may be no job."""
        for _ in range(count - self._signals.qsize()):
            self._signals.put(True)

    def wait(self) -> bool:
        """Wait, in a thread, until there may be a job; False: the thread is to end."""
        return self._signals.get()

    def has_more(self) -> bool:
        """Tell, in a thread, whether there may be a job, which is then as if waited for."""
        try:
            if self._signals.get_nowait():
                return True
        except queue.Empty:
            return False
        self._signals.put(False)
        return False

    def take(self) -> Job | None:
        """Take the next job, None if it has left."""
        for line in self._order:
            try:
                if line:
                    return line.popitem(last=False)[0]
            except KeyError:  # it has just left
                continue
        return None

    def first(self) -> Job | None:
        """Return the next job, and let it wait on; only where no thread takes any."""
        line = next((line for line in self._order if line), None)
        return next(iter(line)) if line is not None else None

    def put_first(self, job: Job) -> None:
        """Let `job`, which has been taken, wait before all others of its level again."""
        self.put(job)
        in_time, _ = self._lines(job.level)
        in_time.move_to_end(job, last=False)

    def delay(self, job: Job) -> None:
        """Let `job` wait behind all others of its level."""
        in_time, delayed = self._lines(job.level)
        with suppress(KeyError):  # it has been taken
            in_time.pop(job)
            delayed[job] = None
            self._signals.put(True)  # a thread may have looked for it in between

    def remove(self, job: Job) -> bool:
        """Take out `job`; tell whether it was still there."""
        in_time, delayed = self._lines(job.level)
        if in_time.pop(job, job) is job and delayed.pop(job, job) is job:
            return False
        with suppress(queue.Empty):  # or a thread has the signal, and finds nothing to take
            if not self._signals.get_nowait():
                self._signals.put(False)
        return True

    def _lines(self, level: int) -> "tuple[_Line, _Line]":
        lines = self._levels.get(level)
        if lines is None:
            # Levels come and go: a configuration may allow more than there is memory for.
            self._levels = {number: both for number, both in self._levels.items() if any(both)}
            lines = self._levels[level] = (OrderedDict(), OrderedDict())
            self._order = [line for _, both in sorted(self._levels.items()) for line in both]
        return lines


_Line = OrderedDict[Job, None]


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
        raise miscounted(model, len(answers), 1)
    yield from answers


def tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: object) -> None:
    """Have `callback` called on the event loop, if that still runs."""
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


def miscounted(model: str, got: int, expected: int) -> InferdError:
    """Return what those are told whose model gave a wrong number of answers."""
    return BackendFailed(f"model '{model}' gave {got} answers to {expected} requests")


def check_told(model: str, requests: Sequence[InferRequest], answers: Sequence[Answer]) -> None:
    """Raise BackendFailed unless what a backend made has the types that compiled code takes.

    So it is the same wherever a backend of another package runs. Each model begins in threads,
    where this is looked at.
    """
    for request in requests:
        for name, told in (
            ("computing_ns", request.computing_ns),
            ("computed_ns", request.computed_ns),
        ):
            if type(told) is not int:
                raise _mistyped(model, f"its request's {name}", told, int)
    for answer in answers:
        if not isinstance(answer, InferdError):
            _check_answer(model, answer)


def _check_answer(model: str, answer: InferResponse) -> None:
    if type(answer) is not InferResponse and type(answer) is not Round:
        raise _mistyped(model, "its answer", answer, InferResponse)
    if type(answer.version) is not str:
        raise _mistyped(model, "its answer's version", answer.version, str)
    if type(answer.outputs) is not list:
        raise _mistyped(model, "its answer's outputs", answer.outputs, list)
    for tensor in answer.outputs:
        if type(tensor) is not Tensor:
            raise _mistyped(model, "an output", tensor, Tensor)
        if type(tensor.shape) is not tuple:
            raise _mistyped(model, f"the shape of output '{tensor.name}'", tensor.shape, tuple)


def _mistyped(model: str, what: str, given: object, expected: type) -> BackendFailed:
    msg = f"model '{model}': {what} is of type {type(given).__name__}, not {expected.__name__}"
    return BackendFailed(msg)
