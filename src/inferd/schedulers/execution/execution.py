"""Execution: runs the requests of one model version, wherever its instances are.

A request runs on the event loop itself (`run_now`), if those like it have been short
(execution.promotion), or is a job that waits for an instance: one with a thread of this process
(execution.threads), or one that works elsewhere and answers to the event loop (execution.remote).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence

from inferd.compiled import mypyc_attr
from inferd.config.model import QueuePolicy
from inferd.core.interfaces import Answer, AsyncInstance, Instance, Opened, Outcome, always
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import InferdError
from inferd.observe.crash.mark import ModelMarks, RunMarks, shown_ids
from inferd.observe.stats import Counts
from inferd.schedulers.execution.job import AwaitedJob, Job, StartedJob, failure, miscounted
from inferd.schedulers.execution.jobs import JobLines, JobQueue, Jobs
from inferd.schedulers.execution.promotion import OVERRUN_NS, Gauges, Promotion, size_class_of
from inferd.schedulers.execution.remote import RemoteInstances
from inferd.schedulers.execution.streaming import answers_of
from inferd.schedulers.execution.threads import InstanceThreads
from inferd.schedulers.queueing.policy import UNSET, timeout_us_of


@mypyc_attr(allow_interpreted_subclasses=True)
class Execution:
    """The loaded instances of one model version, and how requests get to run in them.

    The times of each execution are noted in its first request (InferRequest), on the clock of
    `counts`; an execution of several requests is also counted there. `on_room` is called when there
    is room while jobs still run.
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
        self._counts = counts or Counts()
        self.clock = self._counts.clock
        self._marks = marks or ModelMarks(RunMarks(), name, "")
        self.on_room: Callable[[], None] | None = None
        gauges = gauges or Gauges()
        self._instances: InstanceThreads | RemoteInstances
        # All or none: an instance with a thread and one without take jobs in different ways.
        if all(isinstance(one.alone, AsyncInstance) for one in instances):
            lines, may_run_inline = JobLines(), False
            self._jobs = Jobs(name, lines, self.clock, gauges.cpu_ns)
            self._instances = RemoteInstances(instances, self._jobs, self._note_room)
        else:
            queue = JobQueue()
            self._jobs = Jobs(name, queue, self.clock, gauges.cpu_ns)
            self._instances = InstanceThreads(instances, self._jobs, queue, self._marks)
        self._promotion = Promotion(name, self.clock, gauges, self._marks, may=may_run_inline)

    @property
    def may_run_inline(self) -> bool:
        """Whether requests may ever run on the event loop."""
        return self._promotion.may

    @property
    def instance_count(self) -> int:
        """How many instances there are, without those that are to leave."""
        return self._instances.instance_count

    @property
    def has_turns(self) -> bool:
        """Whether an instance may wait for its turn before it takes a job."""
        return self._instances.has_turns

    @property
    def has_room(self) -> bool:
        """Whether a job submitted now would not wait for the running ones."""
        return self._instances.has_room

    @property
    def instances(self) -> Sequence[Instance]:
        """See Resizable.instances."""
        return [one.alone for one in self._instances.opened]

    @property
    def kinds(self) -> list[Hashable]:
        """The kind of each instance; see Opened."""
        return [one.kind for one in self._instances.opened]

    @property
    def pending_count(self) -> int:
        """How many requests no instance has taken yet."""
        return self._instances.pending_count

    def run_now(self, requests: Sequence[InferRequest]) -> Sequence[Answer] | None:
        """Run `requests` right here, or return None when they do not belong on the event loop.

        Raises InferdError when all of them failed.
        """
        promotion = self._promotion
        # A flag before the size class: a model that never runs on the loop pays one comparison.
        if not promotion.has_any:
            return None
        size_class = size_class_of(requests)
        if not promotion.is_prompt[size_class]:
            return None
        is_shared = len(requests) > 1
        # Any would do: only backends that may run in several threads at once come here.
        first = self._instances.opened[0]
        instance = first.together if is_shared else first.alone
        if promotion.overruns.runs_to_watch:
            promotion.overruns.watch()
        mark = promotion.mark
        try:
            mark.note.value = shown_ids(requests) if is_shared else requests[0].id
        except ValueError:  # more characters than a note has: asking first would cost all others
            mark.note.value = shown_ids(requests)
        requests[0].started_ns = started_ns = self.clock()
        failed = True
        try:
            answers = instance.execute(requests)
            if len(answers) != len(requests):
                raise miscounted(self.name, len(answers), len(requests))
            failed = False
        except InferdError:
            raise
        # Raised by the model, not by a canceller: nothing is awaited here. SystemExit is a model's
        # mistake, too; it must not end the server.
        except (Exception, asyncio.CancelledError, SystemExit) as error:
            raise failure(self.name, error) from error
        finally:
            mark.note.value = mark.idle
            requests[0].ended_ns = ended_ns = self.clock()
            if (took_ns := ended_ns - started_ns) > OVERRUN_NS:
                promotion.note_overrun(size_class, took_ns)
            if is_shared:
                self._counts.add_shared_execution(requests[0], requests, failed=failed)
        return answers

    async def run(
        self, requests: Sequence[InferRequest], policy: QueuePolicy = UNSET
    ) -> Sequence[Answer]:
        """Run `requests` in the next free instance; until then they wait as `policy` says.

        Raises InferdError when all of them failed, Overloaded when too many wait already,
        Unavailable when the first has waited too long. If the caller is cancelled before an
        instance has taken the requests, they never run.
        """
        job = AwaitedJob(requests, asyncio.get_running_loop())
        done = job.waited_for()
        timer = self._submit(job, policy)
        try:
            answers = await done
        finally:
            del done  # it may hold an error whose traceback refers to this frame
            requests[0].answered_ns = self.clock()
            # Its outcome was not taken: the caller has been cancelled, and the job may still be
            # queued.
            if timer is not None or not job.is_finished:
                self._jobs.abandon(job, timer)
        self._promotion.note_thread_run(requests, answers)
        return answers

    def begin(
        self,
        requests: Sequence[InferRequest],
        finish: Callable[[Outcome], None],
        wanted: Callable[[], bool] = always,
        *,
        is_counted: bool = True,
    ) -> None:
        """Run `requests` in the next free instance, then call `finish` on the event loop.

        They do not run if `wanted`, called just before, maybe in a thread, returns False. `finish`
        is called in any case. If no client waits for them, they are not counted. Raises Unavailable
        if the model is being unloaded.
        """

        def finished(outcome: Outcome) -> None:
            requests[0].answered_ns = self.clock()
            failed = isinstance(outcome, InferdError)
            if len(requests) > 1 and requests[0].started_ns:
                self._counts.add_shared_execution(requests[0], requests, failed=failed)
            self._promotion.note_thread_run(requests, outcome)
            finish(outcome)

        if is_counted and len(requests) > 1:
            requests[0].shared = True  # also if its client leaves before `finished` counts them all
        loop = asyncio.get_running_loop()
        job = StartedJob(requests, loop, finished if is_counted else finish, wanted)
        # Before an instance takes it: an instance may finish it at once.
        self._jobs.enter(job)
        self._instances.take(job)

    def stream(
        self, request: InferRequest, policy: QueuePolicy = UNSET, level: int = 0
    ) -> AsyncGenerator[InferResponse, None]:
        """Return the answers of a decoupled model as they come; `request` waits as `policy` says.

        Among waiting requests, those of the lowest `level` come first.

        The model may be STREAM_AHEAD answers ahead of the reader, fewer if they are large; then it
        waits. Raises InferdError while iterating. Closing the iterator stops the model at its next
        answer.
        """
        job = self._instances.stream_job(request)
        job.level = level

        def end(timer: asyncio.TimerHandle | None) -> None:
            request.answered_ns = self.clock()
            self._jobs.abandon(job, timer)

        return answers_of(job, lambda: self._submit(job, policy), end)

    def _submit(self, job: Job, policy: QueuePolicy) -> asyncio.TimerHandle | None:
        """Submit a job that has waited in no queue; return its timeout's timer, if it has one."""
        jobs, instances = self._jobs, self._instances
        timeout_us = timeout_us_of(policy, job.requests[0])
        if timeout_us:
            # Ahead of what an instance runs, nobody can take it back when its time is up.
            job.may_go_ahead = False
        is_served_at_once = jobs.count < instances.instance_count
        if not is_served_at_once and not instances.takes_now(job):
            jobs.check_room(job, policy, instances.instance_count)
        jobs.enter(job)
        instances.take(job)
        # No timer for a request that a free instance takes in this turn.
        if not timeout_us or (is_served_at_once and not instances.has_turns):
            return None
        return jobs.timer(job, policy, timeout_us)

    def cancel(self, request: InferRequest) -> None:
        """Note that nobody waits any more for the answer to `request`, which has been begun."""
        self._instances.leave((request,))

    def count_round(self, request: InferRequest, *, failed: bool) -> None:
        """Count one of several executions of `request`, run alone."""
        self._counts.add_shared_execution(request, (request,), failed=failed)

    async def close(self, timeout_s: float) -> None:
        """Refuse new requests, let those submitted finish, and close the instances.

        After `timeout_s` seconds it waits no longer: requests that no instance has taken yet fail
        as Unavailable, and the instances are closed, which may wake one that hangs.
        """
        # Before awaiting: what comes meanwhile is refused.
        self._jobs.is_closed = True
        self._promotion.stop()
        await self._instances.close(timeout_s)

    def grow(self, instance: Opened) -> None:
        """See Resizable.grow."""
        self._instances.grow(instance)

    def shrink(self, kind: Hashable = None) -> None:
        """See Resizable.shrink."""
        self._instances.shrink(kind)

    def beside(self, instance: Opened) -> "Execution":
        """Return another Execution of the same model whose only instance is `instance`."""
        may, counts, marks = self.may_run_inline, self._counts, self._marks
        return Execution(self.name, [instance], may_run_inline=may, counts=counts, marks=marks)

    def _note_room(self) -> None:
        if self.on_room is not None and self.has_room:
            self.on_room()
