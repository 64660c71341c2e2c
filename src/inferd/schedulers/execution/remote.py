"""RemoteExecution: an Execution whose instances work elsewhere and answer to the event loop.

Requests wait here until an instance is free. Nothing is handed to a thread or back: an instance
takes requests on the event loop, and its answers arrive there. An instance whose process has ended
takes nothing until it has a new one; meanwhile requests wait or go to other instances. When no
instance will come up soon, all waiting requests are refused with the reason.

A busy instance may still be free to take short executions ahead. Requests with a timeout wait here
for an idle one, and so do requests made by other models, which may be what the instance's current
execution waits for.
"""

import asyncio
from collections.abc import Hashable, Sequence
from contextlib import suppress
from functools import partial

from inferd.config.model import QueuePolicy
from inferd.core.interfaces import Answer, AsyncInstance, Opened, Outcome
from inferd.core.request import InferRequest
from inferd.errors import Cancelled, InferdError, Unavailable
from inferd.observe.stats import Counts
from inferd.schedulers.execution.execution import Execution
from inferd.schedulers.execution.job import AwaitedJob, Job, StreamJob, miscounted, twin
from inferd.schedulers.queueing.policy import UNSET, timeout_us_of, unloading

END_S = 5.0
"""How many seconds an instance may take to end, even if the caller's time to close is over."""


class RemoteExecution(Execution):
    """See Execution. `instances` are asynchronous."""

    def __init__(
        self, name: str, instances: Sequence[Opened], *, counts: Counts | None = None
    ) -> None:
        super().__init__(name, instances, may_run_inline=False, counts=counts)
        self._remote = _remote_of(instances)
        self._running: dict[Job, AsyncInstance] = {}
        self._leaving: list[AsyncInstance] = []  # closed when what they run has ended
        self._quiet: asyncio.Future[None] | None = None
        for instance in self._remote:
            instance.on_change = self._change

    @property
    def has_room(self) -> bool:
        """See Execution.has_room. An instance may be free while its streams go on."""
        return not self._jobs and self._freest() is not None

    @property
    def pending_count(self) -> int:
        """See Execution.pending_count; what was sent ahead waits behind what its instance runs."""
        return len(self._jobs) + sum([max(0, one.running_count - 1) for one in self._remote])

    def run_inline(self, requests: Sequence[InferRequest]) -> None:
        """See Execution.run_inline. Nothing runs on the event loop."""
        del requests

    async def run_in_thread(
        self, requests: Sequence[InferRequest], policy: QueuePolicy = UNSET
    ) -> Sequence[Answer]:
        """See Execution.run_in_thread. If none wait, a free instance takes the requests at once."""
        free = None
        if self._job_count == len(self._running) and not self._is_closed and self._home is not None:
            free = self._freest()
        if free is None or (free.running_count and timeout_us_of(policy, requests[0])):
            return await super().run_in_thread(requests, policy)
        assert self._home is not None
        job = AwaitedJob(requests, self._home)
        done = job.waited_for()
        self._job_count += 1
        request = requests[0]
        now_ns = self.clock()
        request.queued_ns = request.queued_ns or now_ns
        self._give(job, free, now_ns)
        try:
            answers = await done
        finally:
            del done  # it may hold an error whose traceback refers to this frame
            request.answered_ns = self.clock()
            if not job.is_finished:
                self._abandon(job, None)
        return answers

    def cancel(self, request: InferRequest) -> None:
        """See Execution.cancel. Its instance is told; the other requests of its batch run on."""
        for job, instance in self._running.items():
            if any(one is request for one in job.requests):
                instance.cancel((request,))
                return

    async def close(self, timeout_s: float) -> None:
        """See Execution.close."""
        self._is_closed = True
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        if self._running or self._jobs:
            self._quiet = loop.create_future()
            await asyncio.wait((self._quiet,), timeout=timeout_s)
        self._refuse_waiting()
        self._remote = [*self._remote, *self._leaving]
        for instance in self._remote:
            instance.attach(loop)
            instance.close()
        left_s = max(deadline_s - loop.time(), END_S)
        await asyncio.gather(*(instance.closed(left_s) for instance in self._remote))
        if self._closing:
            await asyncio.wait(self._closing, timeout=left_s)

    def grow(self, instance: Opened) -> None:
        """See Resizable.grow."""
        remote = instance.alone
        assert isinstance(remote, AsyncInstance)
        if self._is_closed:
            self._let_go(remote)
            return
        remote.on_change = self._change
        remote.attach(asyncio.get_running_loop())
        self._opened.append(instance)
        self._remote = _remote_of(self._opened)
        self.instance_count += 1
        self._advance()

    def shrink(self, kind: Hashable = None) -> None:
        """See Resizable.shrink. The newest idle instance goes at once, else the newest later."""
        some = [one for one in self._opened if kind is None or one.kind == kind]
        if self.instance_count == 1 or self._is_closed or not some:
            return
        self.instance_count -= 1
        busy = set(map(id, self._running.values()))
        idle = (one for one in reversed(some) if id(one.alone) not in busy)
        going = next(idle, some[-1])
        self._opened = [one for one in self._opened if one is not going]
        self._remote = _remote_of(self._opened)
        assert isinstance(going.alone, AsyncInstance)
        self._leaving.append(going.alone)
        self._let_go_if_done(going.alone)

    def beside(self, instance: Opened) -> "RemoteExecution":
        """See Execution.beside."""
        return RemoteExecution(self.name, [instance], counts=self._counts)

    def _let_go_if_done(self, instance: AsyncInstance) -> None:
        is_leaving = any(one is instance for one in self._leaving)
        if is_leaving and not any(one is instance for one in self._running.values()):
            self._leaving = [one for one in self._leaving if one is not instance]
            self._let_go(instance)

    def _let_go(self, instance: AsyncInstance) -> None:
        instance.on_change = lambda: None
        loop = asyncio.get_running_loop()
        instance.attach(loop)
        instance.close()
        closing = loop.create_task(instance.closed(END_S))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _stream_job(self, request: InferRequest) -> StreamJob:
        return _RemoteStreamJob(request, asyncio.get_running_loop(), self)

    def _submit_to_wait(self, job: Job, policy: QueuePolicy) -> asyncio.TimerHandle | None:
        if timeout_us_of(policy, job.requests[0]):
            job.may_go_ahead = False
        return super()._submit_to_wait(job, policy)

    def _place(self, job: Job) -> None:
        if self._home is None:
            self._home = asyncio.get_running_loop()
            for instance in self._remote:
                instance.attach(self._home)
        free = None if self._jobs else self._freest()
        if free is not None and (job.may_go_ahead or not free.running_count):
            self._begin(job, free)
            return
        self._jobs.put(job)
        self._advance(job)

    def _change(self) -> None:
        self._advance()
        if self.on_room is not None and self.has_room:
            self.on_room()

    def _advance(self, newest: Job | None = None) -> None:
        """Give waiting jobs to free instances; `newest` is the job that has just come, if any."""
        jobs = self._jobs
        while self._job_count > len(self._running) and jobs:
            freest = self._freest()
            if freest is None or (freest.running_count and not self._may_go_ahead()):
                self._refuse_vain(newest)
                break
            self._jobs.wait()  # the signal that came with the job
            if (job := self._jobs.take()) is not None:
                self._begin(job, freest)
        if self._quiet is not None and not jobs and not self._running and not self._quiet.done():
            self._quiet.set_result(None)

    def _may_go_ahead(self) -> bool:
        first = self._jobs.first()
        return first is not None and first.may_go_ahead

    def _freest(self) -> AsyncInstance | None:
        if len(self._remote) == 1:
            one = self._remote[0]
            return one if one.is_free else None
        freest: AsyncInstance | None = None
        for one in self._remote:
            if one.is_free and (freest is None or one.running_count < freest.running_count):
                freest = one
        return freest

    def _refuse_vain(self, newest: Job | None) -> None:
        """Refuse jobs that would wait in vain or, through other models, for themselves."""
        reasons = [instance.unavailable_reason for instance in self._remote]
        if all(reasons):
            self._refuse_waiting(Unavailable(f"model '{self.name}' cannot run: {reasons[0]}"))
            return
        if newest is None:
            return
        callers = next((one.callers for one in newest.requests if self.name in one.callers), None)
        if callers is not None and self._jobs.remove(newest):
            self.note_ended()
            way = " -> ".join((*callers, self.name))
            msg = f"model '{self.name}' is called while all its instances wait for that call: {way}"
            newest.finish(Unavailable(msg))

    def _refuse_waiting(self, error: InferdError | None = None) -> None:
        while (job := self._jobs.take()) is not None:
            self._jobs.wait()
            self.note_ended()
            job.finish(twin(error) if error is not None else unloading(self.name))

    def _begin(self, job: Job, instance: AsyncInstance) -> None:
        if not job.is_wanted():
            self.note_ended()
            job.finish(Cancelled("nobody waits for the request"))
            return
        now_ns = self.clock()
        if isinstance(job, _RemoteStreamJob):
            job.requests[0].started_ns = now_ns
            self._running[job] = instance
            job.begin(instance)
            return
        self._give(job, instance, now_ns)

    def _give(self, job: Job, instance: AsyncInstance, now_ns: int) -> None:
        job.requests[0].started_ns = now_ns
        self._running[job] = instance
        job.when_abandoned = partial(instance.cancel, job.requests)
        instance.begin(job.requests, partial(self._finish, job, instance))

    def _finish(self, job: Job, instance: AsyncInstance, outcome: Outcome) -> None:
        self._running.pop(job, None)
        if self._leaving:
            self._let_go_if_done(instance)
        job.when_abandoned = None
        if isinstance(outcome, InferdError):
            if outcome.is_untaken:
                self._jobs.put_first(job)  # the instance reports when it is free
                return
            if instance.retries and not job.was_retried and outcome.is_lost:
                job.was_retried = True
                self._jobs.put(job)
                return
        elif len(outcome) != len(job.requests):
            outcome = miscounted(self.name, len(outcome), len(job.requests))
        job.requests[0].ended_ns = self.clock()
        self._job_count -= 1
        job.finish(outcome)
        if self._quiet is not None:
            self._advance()

    def put_back(self, job: Job) -> None:
        """Queue a job again that no instance has taken after all."""
        self._running.pop(job, None)
        self._jobs.put(job)

    def end_stream(self, job: Job) -> None:
        """Forget a stream that is over."""
        if job in self._running:
            self._let_go_if_done(self._running.pop(job))
            self.note_ended()
            job.requests[0].ended_ns = self.clock()
            if self._quiet is not None:
                self._advance()


def _remote_of(instances: Sequence[Opened]) -> list[AsyncInstance]:
    return [one.alone for one in instances if isinstance(one.alone, AsyncInstance)]


class _RemoteStreamJob(StreamJob):
    """A stream whose answers come from an instance that works elsewhere."""

    def __init__(
        self, request: InferRequest, loop: asyncio.AbstractEventLoop, execution: RemoteExecution
    ) -> None:
        super().__init__(request, loop)
        self._execution = execution
        self._instance: AsyncInstance | None = None
        self._number = 0

    def begin(self, instance: AsyncInstance) -> None:
        """Have `instance` answer."""
        self._instance = instance
        self._number = instance.begin_stream(self.requests[0], self._deliver)

    def _deliver(self, answer: Answer | None, share: int) -> None:
        if isinstance(answer, InferdError) and answer.is_untaken:
            self._execution.put_back(self)
            return
        self.answers.put_nowait((answer, share))
        if answer is None:
            self._execution.end_stream(self)

    def give_room(self, share: int) -> None:
        """See StreamJob.give_room."""
        if self._instance is not None:
            self._instance.credit(self._number, share)

    def abandon(self) -> None:
        """See Job.abandon."""
        super().abandon()
        if self._instance is not None:
            with suppress(InferdError):
                self._instance.cancel_stream(self._number)
            self._execution.end_stream(self)
