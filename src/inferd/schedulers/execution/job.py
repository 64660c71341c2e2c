"""Job: requests on their way through one instance.

An exception that ends requests refers to frames of the callers and of the thread, and these refer
to the job: so neither a job nor a frame may keep a reference to the exception, or the tensors of
failed requests would stay until the garbage collector runs.
"""

import asyncio
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from copy import copy

from inferd.aio.driver import fulfil, reject
from inferd.aio.promise import Promise
from inferd.compiled import mypyc_attr
from inferd.core.interfaces import Answer, DecoupledInstance, Instance, Outcome
from inferd.core.request import InferRequest, InferResponse, Round
from inferd.errors import BackendFailed, Cancelled, InferdError, foreign_text
from inferd.tensor.tensor import Tensor

STREAM_AHEAD = 16
"""How many answers a decoupled model may be ahead of a slow reader."""

STREAM_AHEAD_BYTES = 1 << 20
"""About how many bytes it may be ahead; an answer larger than this goes ahead alone."""


class JobHost:
    """What a job must know of its model; `clock` and `cpu_clock` return ns.

    `count` is how many jobs wait or run.
    """

    def __init__(self, name: str, clock: Callable[[], int], cpu_clock: Callable[[], int]) -> None:
        self.name = name
        self.clock = clock
        self.cpu_clock = cpu_clock
        self.count = 0

    def note_ended(self) -> None:
        """Note that a job has ended; called on the event loop."""
        self.count -= 1


@mypyc_attr(allow_interpreted_subclasses=True)
class Job:
    """Requests to be run by one thread, or by an instance that needs no thread.

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
        """Return whether a caller still waits for it; called in the thread."""
        return not self.is_abandoned

    def abandon(self) -> None:
        """Note that nobody waits for it any longer."""
        self.is_abandoned = True
        if self.when_abandoned is not None:
            self.when_abandoned()

    def run(self, instance: Instance, host: JobHost) -> None:
        """Execute the requests in this thread, and hand the outcome to the event loop."""
        model = host.name
        started_ns = host.cpu_clock()
        outcome: Outcome
        try:
            outcome = instance.execute(self.requests)
            if len(outcome) != len(self.requests):
                outcome = miscounted(model, len(outcome), len(self.requests))
            else:
                check_types(model, self.requests, outcome)
        except BaseException as error:  # noqa: BLE001  the thread must outlive any model
            outcome = failure(model, error)
        first = self.requests[0]
        first.ended_ns = host.clock()
        first.cpu_ns = host.cpu_clock() - started_ns
        tell(self.loop, self._end, host, outcome)
        del outcome

    def drop(self, host: JobHost) -> None:
        """End it without running it, since nobody wants it; called in the thread."""
        tell(self.loop, self._end, host, Cancelled("nobody waits for the request"))

    def finish(self, outcome: Outcome) -> None:
        """Hand the outcome, or why it never runs, to the caller; called on the event loop."""
        raise NotImplementedError

    def _end(self, host: JobHost, outcome: Outcome) -> None:
        host.note_ended()
        self.when_abandoned = None
        self.finish(outcome)


class AwaitedJob(Job):
    """Requests that one caller waits for."""

    # Not super(): one call less for each request.
    def __init__(self, requests: Sequence[InferRequest], loop: asyncio.AbstractEventLoop) -> None:
        self.requests = requests
        self.loop = loop
        self.is_abandoned = self.was_retried = False
        self.when_abandoned = None
        # asyncio.Future resumes its waiter a turn of the loop later.
        self._done: Promise[Sequence[Answer]] | None = Promise(loop=loop)

    def waited_for(self) -> Promise[Sequence[Answer]]:
        """Return the future of the answers; called once."""
        assert self._done is not None
        return self._done

    def abandon(self) -> None:
        """See Job.abandon."""
        super().abandon()
        # The future may hold an error whose traceback holds what the job holds.
        self._done = None

    def finish(self, outcome: Outcome) -> None:
        """See Job.finish."""
        done, self._done = self._done, None
        # Cancelled in the same turn in which the answer came.
        if done is None or done.done():
            return
        self.is_finished = True
        if isinstance(outcome, InferdError):
            reject(done, outcome)
        else:
            fulfil(done, outcome)


class StartedJob(Job):
    """Requests whose outcome is passed to `finished`; they run only if still `wanted`."""

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

    Each answer comes with its share of `room`, which its reader gives back.
    """

    may_go_ahead = False

    def __init__(self, request: InferRequest, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__((request,), loop)
        self.answers: asyncio.Queue[tuple[Answer | None, int]] = asyncio.Queue()
        # A thread waits on it, so asyncio's will not do.
        self.room = threading.Semaphore(STREAM_AHEAD)

    def give_room(self, share: int) -> None:
        """Let the model be `share` further ahead."""
        self.room.release(share)

    def abandon(self) -> None:
        """See Job.abandon. The model no longer waits for room."""
        super().abandon()
        # As much as any answer can ask for, so that the thread wakes and sees that it is abandoned.
        self.room.release(STREAM_AHEAD)

    def run(self, instance: Instance, host: JobHost) -> None:
        """Iterate in this thread, handing over each answer, never too far ahead of the reader."""
        try:
            # A model's generator may hold resources in its `finally`, and is to end in the thread
            # that runs it.
            with closing(_answers(instance, self.requests[0], host.name)) as answers:
                for answer in answers:
                    check_types(host.name, self.requests, (answer,))
                    share = share_of(answer)
                    # acquire() takes one at a time.
                    for _ in range(share):
                        self.room.acquire()
                    if self.is_abandoned:
                        break
                    tell(self.loop, self.answers.put_nowait, (answer, share))
            check_types(host.name, self.requests, ())
        except BaseException as error:  # noqa: BLE001  the thread must outlive any model
            tell(self.loop, self.answers.put_nowait, (failure(host.name, error), 1))
        self.requests[0].ended_ns = host.clock()
        # Through the loop like the answers, so that the end comes after all of them.
        tell(self.loop, self._end, host, ())

    def finish(self, outcome: Outcome) -> None:
        """See Job.finish. The answers have already been handed over."""
        last = (outcome, 1) if isinstance(outcome, InferdError) else (None, 0)
        self.answers.put_nowait(last)


def share_of(answer: Answer) -> int:
    """Return how much of STREAM_AHEAD an answer takes up; a large one takes all of it."""
    if isinstance(answer, InferdError):
        return 1
    size_bytes = sum([tensor.size_bytes for tensor in answer.outputs])
    # An answer without data takes a place as well: its object has a size.
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
    """Schedule `callback` on the event loop, if it still runs."""
    with suppress(RuntimeError):  # the loop has closed: nobody is left to notify
        loop.call_soon_threadsafe(callback, *args)


def failure(model: str, error: BaseException) -> InferdError:
    """Return the error for requests whose execution raised `error`."""
    if isinstance(error, InferdError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return Cancelled(f"model '{model}' cancelled the request")
    failed = BackendFailed(f"model '{model}' failed: {foreign_text(error)}")
    failed.__cause__ = error
    return failed


def twin(error: InferdError) -> InferdError:
    """Return a copy of `error` for another caller: each one is raised separately."""
    other = copy(error)
    # copy() does not take it along, and the log shows it.
    other.__cause__ = error.__cause__
    return other


def miscounted(model: str, got: int, expected: int) -> InferdError:
    """Return the error for requests whose model gave a wrong number of answers."""
    return BackendFailed(f"model '{model}' gave {got} answers to {expected} requests")


def check_types(model: str, requests: Sequence[InferRequest], answers: Sequence[Answer]) -> None:
    """Raise BackendFailed unless values from a backend have the types that compiled code requires.

    So a backend of another package behaves the same with and without compilation. Checking in
    threads is enough, as every model starts there.
    """
    for request in requests:
        for name, time_ns in (
            ("computing_ns", request.computing_ns),
            ("computed_ns", request.computed_ns),
        ):
            # Not isinstance: compiled code takes exactly int.
            if type(time_ns) is not int:
                raise _mistyped(model, f"its request's {name}", time_ns, int)
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
