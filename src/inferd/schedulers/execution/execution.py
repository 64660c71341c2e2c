"""Execution: where a model's requests run, on the event loop itself or in worker threads.

A hand-over to a thread and back costs 10 to 40 µs, several times what a small model needs; a long
execution on the loop makes every other connection wait. So each model starts in threads, and
requests of one size class (the power of two their element count falls in) move onto the loop once
their measured time has been short for a while. One overrun that the system did not cause
(`execution.overrun`) moves the class back at once, and if overruns keep coming, each
further move onto the loop needs twice the previous surplus of short runs over long ones. Only
backends that promise to end by themselves (`is_bounded`) and to run in several threads at once
(`is_concurrent`) come onto the loop.

Runs in threads are measured in CPU time: their wall time includes waiting for the GIL. Runs on the
loop are measured in wall time, which is what the other connections wait, and whose clock costs a
tenth as much.

Each instance has its own thread, so a model that hangs holds up only its own callers.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from contextlib import ExitStack
from functools import partial

from inferd.compiled import mypyc_attr
from inferd.config.model import QueuePolicy
from inferd.core.interfaces import CancellableInstance, Instance, Opened, always
from inferd.core.request import InferRequest, InferResponse
from inferd.core.traits import traits_of
from inferd.errors import InferdError, Unavailable
from inferd.observe.crash.mark import ModelMarks, RunMark, RunMarks, shown_ids
from inferd.observe.stats import Counts
from inferd.schedulers.execution.cores import pin
from inferd.schedulers.execution.job import (
    Answer,
    AwaitedJob,
    Job,
    JobQueue,
    Outcome,
    StartedJob,
    StreamJob,
    failure,
    miscounted,
    tell,
)
from inferd.schedulers.execution.overrun import OVERRUN_NS, Gauges, Overruns
from inferd.schedulers.execution.streaming import answers_of
from inferd.schedulers.queueing.policy import (
    MAX_WAITING,
    UNSET,
    full,
    timeout_us_of,
    too_late,
    unloading,
)

log = logging.getLogger("inferd.engine")

PROMOTE_NS = 100_000
"""A run in a thread that takes at most this much CPU time counts towards moving to the loop."""

FIRST_RUNS = 8
"""How many more short runs than long ones in threads move a size class onto the loop.

(Not in a row: when threads crowd the processors, a short run sometimes looks long.)
"""

MOST_RUNS = 256
"""The most it needs when overruns keep coming."""

CALM_NS = 10_000_000_000
"""An overrun later than this after the move onto the loop is not held against a size class."""

CALL_S = 0.05
"""How often a thread that is to end is woken, in seconds."""

_LONG_US = 1 << 45
"""A longer timeout (more than a year) gets no timer."""

_SIZE_CLASSES = 65  # no tensor has more than 2^64 - 1 elements, as it must fit in memory


@mypyc_attr(allow_interpreted_subclasses=True)
class Execution:
    """The loaded instances of one model version, and the choice of where a request runs.

    The times of each execution are noted in its first request (InferRequest), on the clock of
    `counts`; an execution of several requests is also counted there.
    """

    def __init__(
        self,
        name: str,
        instances: Sequence[Opened],
        *,
        may_run_inline: bool,
        counts: Counts | None = None,
        gauges: Gauges | None = None,
        marks: ModelMarks | None = None,
    ) -> None:
        self.name = name
        self._marks = marks or ModelMarks(RunMarks(), name, "")
        self._mark = RunMarks().claim(name, "")  # of runs on the loop, claimed before the first
        self._has_mark = False
        self._opened = list(instances)
        self._counts = counts or Counts()
        self.instance_count = len(instances)
        self.may_run_inline = may_run_inline
        self.clock = self._counts.clock
        gauges = gauges or Gauges()
        self.cpu_clock = gauges.cpu_ns
        self._overruns = Overruns(self.clock, gauges.usage)
        self._is_prompt = [False] * _SIZE_CLASSES
        self._has_prompt = False  # whether any class is
        self._runs_missing = [FIRST_RUNS] * _SIZE_CLASSES
        self._runs_needed = [FIRST_RUNS] * _SIZE_CLASSES
        self._moved_ns = [0] * _SIZE_CLASSES
        self._jobs = JobQueue()
        self._ended: list[asyncio.Future[None]] = []  # one per thread, done when it has ended
        self._going: set[int] = set()  # the ids of instances whose own thread is to end
        self._closing: set[asyncio.Task[None]] = set()
        self.has_turns = any(traits_of(one.alone).turn is not None for one in instances)
        """Whether an instance may wait for its turn before it takes a job."""
        self._tells = any(isinstance(one.alone, CancellableInstance) for one in instances)
        self._job_count = 0  # those that wait or run
        self._is_closed = False
        self._home: asyncio.AbstractEventLoop | None = None  # the event loop, once it is fixed
        self.on_room: Callable[[], None] | None = None  # called on room while jobs still run

    @property
    def has_room(self) -> bool:
        """Whether a job submitted now would not wait for the running ones."""
        return self._job_count < self.instance_count

    @property
    def instances(self) -> Sequence[Instance]:
        """See Resizable.instances."""
        return [one.alone for one in self._opened]

    @property
    def kinds(self) -> list[Hashable]:
        """The kind of each instance; see Opened."""
        return [one.kind for one in self._opened]

    @property
    def pending_count(self) -> int:
        """How many requests no instance has taken yet."""
        return len(self._jobs)

    def run_inline(self, requests: Sequence[InferRequest]) -> Sequence[Answer] | None:
        """Run `requests` right here, or return None when they belong in a thread.

        Raises InferdError when all of them failed.
        """
        if not self._has_prompt:
            return None
        size_class = _size_class(requests)
        if not self._is_prompt[size_class]:
            return None
        is_shared = len(requests) > 1
        first = self._opened[0]
        instance = first.together if is_shared else first.alone
        clock = self.clock
        if self._overruns.runs_to_watch:
            self._overruns.watch()
        mark = self._mark
        try:
            mark.note.value = shown_ids(requests) if is_shared else requests[0].id
        except ValueError:  # more characters than a note has: asking first would cost all others
            mark.note.value = shown_ids(requests)
        requests[0].started_ns = started_ns = clock()
        failed = True
        try:
            answers = instance.execute(requests)
            if len(answers) != len(requests):
                raise miscounted(self.name, len(answers), len(requests))
            failed = False
        except InferdError:
            raise
        except (Exception, asyncio.CancelledError, SystemExit) as error:
            raise failure(self.name, error) from error
        finally:
            mark.note.value = mark.idle
            requests[0].ended_ns = ended_ns = clock()
            if (took_ns := ended_ns - started_ns) > OVERRUN_NS:
                self._note_overrun(size_class, took_ns)
            if is_shared:
                self._counts.add_shared_execution(requests[0], requests, failed=failed)
        return answers

    async def run_in_thread(
        self, requests: Sequence[InferRequest], policy: QueuePolicy = UNSET
    ) -> Sequence[Answer]:
        """Run `requests` in the next free instance's thread; until then they wait as `policy` says.

        Raises InferdError when all of them failed, Overloaded when too many wait already,
        Unavailable when the first has waited too long. If the caller is cancelled before an
        instance has taken the requests, they never run.
        """
        job = AwaitedJob(requests, self._home or asyncio.get_running_loop())
        done = job.waited_for()
        timer = self._submit_to_wait(job, policy)
        try:
            answers = await done
        finally:
            del done  # it may hold an error whose traceback refers to this frame
            requests[0].answered_ns = self.clock()
            self._abandon(job, timer)
        # A model may fail before it has done its work, so the time of a failure says nothing.
        if self.may_run_inline and not isinstance(answers[0], InferdError):
            self._note_thread_run(_size_class(requests), requests[0].cpu_ns)
        return answers

    def start(
        self,
        requests: Sequence[InferRequest],
        finish: Callable[[Outcome], None],
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Run `requests` in the next free instance's thread, then call `finish` on the event loop.

        They do not run if `wanted`, called in the thread just before, returns False. `finish` is
        called in any case.
        """

        def finished(outcome: Outcome) -> None:
            requests[0].answered_ns = self.clock()
            failed = isinstance(outcome, InferdError)
            if len(requests) > 1 and requests[0].started_ns:
                self._counts.add_shared_execution(requests[0], requests, failed=failed)
            answer = outcome if isinstance(outcome, InferdError) else outcome[0]
            if self.may_run_inline and not isinstance(answer, InferdError):
                self._note_thread_run(_size_class(requests), requests[0].cpu_ns)
            finish(outcome)

        if len(requests) > 1:
            requests[0].shared = True  # also if its client leaves before `finished` counts them all
        loop = self._home or asyncio.get_running_loop()
        self._submit(StartedJob(requests, loop, finished, wanted))

    def start_uncounted(
        self, requests: Sequence[InferRequest], finish: Callable[[Outcome], None]
    ) -> None:
        """Run `requests`, for which no client waits, as `start` does, but count nothing.

        Raises Unavailable if the model is being unloaded.
        """
        loop = self._home or asyncio.get_running_loop()
        self._submit(StartedJob(requests, loop, finish, always))

    def cancel(self, request: InferRequest) -> None:
        """Note that nobody waits any more for the answer to `request`, which has been started.

        Most instances that run in threads have no use for it, and are not told.
        """
        if self._tells:
            self._tell_left((request,))

    def _tell_left(self, requests: Sequence[InferRequest]) -> None:
        for instance in self.instances:
            if isinstance(instance, CancellableInstance):
                instance.cancel(requests)

    def count_round(self, request: InferRequest, *, failed: bool) -> None:
        """Count one of several executions of `request`, run alone."""
        self._counts.add_shared_execution(request, (request,), failed=failed)

    def stream(
        self, request: InferRequest, policy: QueuePolicy = UNSET, level: int = 0
    ) -> AsyncGenerator[InferResponse, None]:
        """Return the answers of a decoupled model as they come; `request` waits as `policy` says.

        Among waiting requests, those of the lowest `level` come first.

        The model may be STREAM_AHEAD answers ahead of the reader, fewer if they are large; then it
        waits. Raises InferdError while iterating. Closing the iterator stops the model at its next
        answer.
        """
        job = self._stream_job(request)
        job.level = level

        def end(timer: asyncio.TimerHandle | None) -> None:
            request.answered_ns = self.clock()
            self._abandon(job, timer)

        return answers_of(job, lambda: self._submit_to_wait(job, policy), end)

    def _stream_job(self, request: InferRequest) -> StreamJob:
        return StreamJob(request, asyncio.get_running_loop())

    async def close(self, timeout_s: float) -> None:
        """Refuse new requests, let those submitted finish, and close the instances.

        After `timeout_s` seconds it waits no longer: requests that no instance has taken yet fail
        as Unavailable, and the instances are closed, which may wake one that hangs.
        """
        self._is_closed = True
        self.may_run_inline = False
        self._is_prompt = [False] * _SIZE_CLASSES
        self._has_prompt = False
        if self._has_mark:
            self._has_mark = False
            self._marks.release(self._mark)
        for _ in self._ended:
            self._jobs.end()
        with ExitStack() as at_the_end:
            for instance in self.instances:
                at_the_end.callback(instance.close)
            at_the_end.callback(self._refuse_waiting)
            if ends := [*self._ended, *self._closing]:
                await asyncio.wait(ends, timeout=timeout_s)

    def grow(self, instance: Opened) -> None:
        """See Resizable.grow."""
        self._opened.append(instance)
        self.has_turns = self.has_turns or traits_of(instance.alone).turn is not None
        self._tells = self._tells or isinstance(instance.alone, CancellableInstance)
        self.instance_count += 1
        if self._is_closed:
            self._dismiss(len(self._opened) - 1)
        elif len(self._jobs):
            self._start_thread(len(self._ended))

    def shrink(self, kind: Hashable = None) -> None:
        """See Resizable.shrink. An instance without a thread goes at once."""
        if self.instance_count == 1 or self._is_closed:
            return
        number = len(self._opened) - 1
        if kind is not None:
            some = (n for n, one in enumerate(self._opened) if self._stays(one, kind))
            number = max(some, default=-1)
            if number < 0:
                return
        self.instance_count -= 1
        if number >= len(self._ended):
            self._dismiss(number)
        elif kind is not None:
            self._going.add(id(self._opened[number].alone))
            self._call_going()
        else:
            self._jobs.end()

    def _stays(self, one: Opened, kind: Hashable) -> bool:
        return one.kind == kind and id(one.alone) not in self._going

    def _call_going(self) -> None:
        """Wake all threads repeatedly until each one that is to end has noticed."""
        if self._going and not self._is_closed:
            self._jobs.wake(len(self._ended))
            asyncio.get_running_loop().call_later(CALL_S, self._call_going)

    def beside(self, instance: Opened) -> "Execution":
        """Return another Execution of the same model whose only instance is `instance`."""
        return Execution(
            self.name,
            [instance],
            may_run_inline=self.may_run_inline,
            counts=self._counts,
            marks=self._marks,
        )

    def _dismiss(self, number: int) -> None:
        """Close an instance in which nothing runs."""
        instance = self._opened.pop(number).alone
        self._going.discard(id(instance))
        closing = asyncio.get_running_loop().create_task(_close(instance, self.name))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _note_thread_end(self, ended: "asyncio.Future[None]") -> None:
        ended.set_result(None)
        if self._is_closed:
            return
        number = self._ended.index(ended)
        del self._ended[number]
        self._dismiss(number)

    def _refuse_waiting(self) -> None:
        while (job := self._jobs.take()) is not None:
            self.note_ended()
            job.finish(unloading(self.name))

    def note_ended(self) -> None:
        """See JobHost.note_ended."""
        self._job_count -= 1

    def _submit_to_wait(self, job: Job, policy: QueuePolicy) -> asyncio.TimerHandle | None:
        """Submit a job that has waited in no queue; return its timeout's timer, if it has one."""
        waiting_count = self._job_count - self.instance_count
        most = policy.max_queue_size or MAX_WAITING
        if waiting_count >= most and (not job.level or self._jobs.count(job.level) >= most):
            raise full(self.name, policy)
        self._submit(job)
        timeout_us = timeout_us_of(policy, job.requests[0])
        is_served_at_once = waiting_count < 0 and not self.has_turns
        if is_served_at_once or not 0 < timeout_us < _LONG_US:
            return None
        loop = asyncio.get_running_loop()
        if policy.timeout_action == "DELAY":
            return loop.call_later(timeout_us / 1e6, self._jobs.delay, job)
        return loop.call_later(timeout_us / 1e6, self._expire, job, timeout_us)

    def _submit(self, job: Job) -> None:
        if self._is_closed:
            raise unloading(self.name)
        self._job_count += 1
        request = job.requests[0]
        request.queued_ns = request.queued_ns or self.clock()
        self._place(job)

    def _place(self, job: Job) -> None:
        """Have the next free instance take `job`."""
        if len(self._ended) < len(self._opened):
            self._start_thread(len(self._ended))
        if self._tells:
            job.when_abandoned = partial(self._tell_left, job.requests)
        self._jobs.put(job)

    def _expire(self, job: Job, timeout_us: int) -> None:
        if self._jobs.remove(job):
            self.note_ended()
            job.finish(too_late(self.name, timeout_us))

    def _abandon(self, job: Job, timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()
        job.abandon()
        if self._jobs.remove(job):
            self.note_ended()

    def _start_thread(self, number: int) -> None:
        opened = self._opened[number]
        instance, joined = opened.alone, opened.together
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        turn = traits_of(instance).turn

        def run(mark: RunMark) -> None:
            if turn is None:
                self._run_next(instance, joined, mark)
                return
            with turn:
                self._run_next(instance, joined, mark)
                while id(instance) not in self._going and self._jobs.has_more():
                    turn.renew()
                    self._run_next(instance, joined, mark)

        def work() -> None:
            pin(opened.cores)
            mark = self._marks.claim(threading.get_ident())
            while self._jobs.wait():
                if id(instance) in self._going:
                    self._jobs.pass_on()
                    break
                try:
                    run(mark)
                except Unavailable:  # the instance was closed while it waited for its turn
                    continue
            else:
                if id(instance) in self._going:
                    self._jobs.end()  # the end signal was meant for another thread
            self._marks.release(mark)
            tell(loop, self._note_thread_end, ended)

        # A daemon thread, so that a model that hangs cannot keep the process alive.
        name = f"{self.name}-{number}"
        threading.Thread(target=work, name=name, daemon=True).start()
        self._ended.append(ended)

    def _run_next(self, instance: Instance, joined: Instance, mark: RunMark) -> None:
        """Run the next job in this thread; returning drops all references to its tensors."""
        job = self._jobs.take()
        if job is None:
            return
        if job.is_wanted():
            job.requests[0].started_ns = self.clock()
            mark.note.value = shown_ids(job.requests)
            job.run(joined if len(job.requests) > 1 else instance, self)
            mark.note.value = mark.idle
        else:
            job.drop(self)

    def _note_thread_run(self, size_class: int, took_ns: int) -> None:
        missing, needed = self._runs_missing[size_class], self._runs_needed[size_class]
        if took_ns > OVERRUN_NS:
            missing = needed
        elif took_ns > PROMOTE_NS:
            missing = min(missing + 1, needed)
        else:
            missing -= 1
        self._runs_missing[size_class] = missing
        if missing <= 0:
            if not self._has_mark:
                self._has_mark = True
                self._mark = self._marks.claim()
            self._is_prompt[size_class] = self._has_prompt = True
            self._moved_ns[size_class] = self.clock()
            self._overruns.look()

    def _note_overrun(self, size_class: int, took_ns: int) -> None:
        if self._overruns.is_forgiven(took_ns):
            return
        self._is_prompt[size_class] = False
        self._has_prompt = True in self._is_prompt
        needed = FIRST_RUNS
        if self.clock() - self._moved_ns[size_class] < CALM_NS:
            needed = min(2 * self._runs_needed[size_class], MOST_RUNS)
        self._runs_needed[size_class] = self._runs_missing[size_class] = needed


async def _close(instance: Instance, model: str) -> None:
    """Close an instance in a thread and log any failure."""
    try:
        await asyncio.to_thread(instance.close)
    except Exception:
        log.exception("an instance of model '%s' does not close", model)


def _size_class(requests: Sequence[InferRequest]) -> int:
    """Return the size class of `requests`: the bit length of their inputs' element count."""
    elements = 0
    for request in requests:
        for tensor in request.inputs:
            count = 1
            for dim in tensor.shape:  # saves the call of prod()
                count *= dim
            elements += count
    return elements.bit_length()
