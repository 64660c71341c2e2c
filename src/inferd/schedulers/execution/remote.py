"""Remote: the instances of a model that work elsewhere and answer to the event loop.

Requests wait until one is free. Nothing is handed to a thread or back: an instance
takes requests on the event loop, and its answers arrive there. An instance whose process has ended
takes nothing until it has a new one; meanwhile requests wait or go to other instances. When no
instance will come up soon, all waiting requests are refused with the reason.

A busy instance may still be free to take short executions ahead. Requests with a timeout wait here
for an idle one, and so do requests made by other models, which may be what the instance's current
execution waits for.
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial

from inferd.core.interfaces import Answer, AsyncInstance, Opened, Outcome
from inferd.core.request import InferRequest
from inferd.errors import Cancelled, InferdError, Unavailable
from inferd.schedulers.execution.job import Job, StreamJob, miscounted
from inferd.schedulers.execution.jobs import Jobs

# Closing must not leave processes behind.
END_S = 5.0
"""How many seconds an instance may take to end, even if the caller's time to close is over."""


class RemoteInstances:
    """The instances `opened`, all asynchronous; `on_change` is called when one becomes free.

    Those that are to leave are no longer among them.
    """

    has_turns = False

    def __init__(
        self, instances: Sequence[Opened], jobs: Jobs, on_change: Callable[[], None]
    ) -> None:
        self.opened = list(instances)
        self.instance_count = len(instances)
        self._jobs = jobs
        self._lines = jobs.lines
        self._on_change = on_change
        self._home: asyncio.AbstractEventLoop | None = None  # the event loop, once it is fixed
        self._remote = _remote_of(instances)
        self._running: dict[Job, AsyncInstance] = {}
        self._leaving: list[AsyncInstance] = []  # closed when what they run has ended
        self._closing: set[asyncio.Task[None]] = set()
        self._quiet: asyncio.Future[None] | None = None
        for instance in self._remote:
            instance.on_change = self._change

    @property
    def has_room(self) -> bool:
        """See Execution.has_room. An instance may be free while its streams go on."""
        return not self._lines and self._freest() is not None

    @property
    def pending_count(self) -> int:
        """See Execution.pending_count; what was sent ahead waits behind what its instance runs."""
        return len(self._lines) + sum([max(0, one.running_count - 1) for one in self._remote])

    def takes_now(self, job: Job) -> bool:
        """Return whether `job` would not wait, however many run.

        Streams are not counted by their instance: what limits them is that all of them wait here.
        """
        # Whoever waits already comes first.
        free = None if self._lines or self._home is None else self._freest()
        return free is not None and _suits(job, free) and not isinstance(job, StreamJob)

    def stream_job(self, request: InferRequest) -> StreamJob:
        """Return a job for a decoupled model."""
        return _RemoteStreamJob(request, asyncio.get_running_loop(), self)

    def take(self, job: Job) -> None:
        """Give `job` to a free instance, now or later."""
        if self._home is None:
            self._home = asyncio.get_running_loop()
            for instance in self._remote:
                instance.attach(self._home)
        free = None if self._lines else self._freest()
        if free is not None and _suits(job, free):
            self._begin(job, free)
            return
        self._lines.put(job)
        self._advance(job)

    def leave(self, requests: Sequence[InferRequest]) -> None:
        """Tell the instance of `requests`, which belong together, that nobody waits for them.

        The other requests of their batch run on.
        """
        for job, instance in self._running.items():
            # Identity: two requests may be equal.
            if any(one is requests[0] for one in job.requests):
                instance.cancel(requests)
                return

    async def close(self, timeout_s: float) -> None:
        """See Execution.close."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        if self._running or self._lines:
            self._quiet = loop.create_future()
            await asyncio.wait((self._quiet,), timeout=timeout_s)
        # Those that no instance took; what runs is ended by closing the instance.
        self._jobs.refuse()
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
        if self._jobs.is_closed:
            self._let_go(remote)
            return
        remote.on_change = self._change
        remote.attach(asyncio.get_running_loop())
        self.opened.append(instance)
        self._remote = _remote_of(self.opened)
        self.instance_count += 1
        self._advance()

    def shrink(self, kind: Hashable = None) -> None:
        """See Resizable.shrink. The newest idle instance goes at once, else the newest later."""
        some = [one for one in self.opened if kind is None or one.kind == kind]
        if self.instance_count == 1 or self._jobs.is_closed or not some:
            return
        self.instance_count -= 1
        # Instances are compared by identity: a backend may define equality.
        busy = set(map(id, self._running.values()))
        idle = (one for one in reversed(some) if id(one.alone) not in busy)
        going = next(idle, some[-1])
        self.opened = [one for one in self.opened if one is not going]
        self._remote = _remote_of(self.opened)
        assert isinstance(going.alone, AsyncInstance)
        self._leaving.append(going.alone)
        self._let_go_if_done(going.alone)

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

    def _change(self) -> None:
        self._advance()
        self._on_change()

    def _advance(self, newest: Job | None = None) -> None:
        """Give waiting jobs to free instances; `newest` is the job that has just come, if any."""
        lines = self._lines
        while self._jobs.count > len(self._running) and lines:
            freest = self._freest()
            if freest is None or (freest.running_count and not self._may_go_ahead()):
                self._refuse_vain(newest)
                break
            if (job := lines.take()) is not None:
                self._begin(job, freest)
        if self._quiet is not None and not lines and not self._running and not self._quiet.done():
            self._quiet.set_result(None)

    def _may_go_ahead(self) -> bool:
        first = self._lines.first()
        return first is not None and first.may_go_ahead

    def _freest(self) -> AsyncInstance | None:
        # Most models have one instance: no loop.
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
        # One that comes up again serves them all.
        if all(reasons):
            self._jobs.refuse(Unavailable(f"model '{self._jobs.name}' cannot run: {reasons[0]}"))
            return
        if newest is None:
            return
        name = self._jobs.name
        # A model that calls itself through others waits for its own instance, for ever.
        callers = next((one.callers for one in newest.requests if name in one.callers), None)
        if callers is not None and self._lines.remove(newest):
            self._jobs.note_ended()
            way = " -> ".join((*callers, name))
            msg = f"model '{name}' is called while all its instances wait for that call: {way}"
            newest.finish(Unavailable(msg))

    def _begin(self, job: Job, instance: AsyncInstance) -> None:
        if not job.is_wanted():
            self._jobs.note_ended()
            job.finish(Cancelled("nobody waits for the request"))
            return
        job.requests[0].started_ns = self._jobs.clock()
        self._running[job] = instance
        if isinstance(job, _RemoteStreamJob):
            job.begin(instance)
            return
        job.when_abandoned = partial(instance.cancel, job.requests)
        instance.begin(job.requests, partial(self._finish, job, instance))

    def _finish(self, job: Job, instance: AsyncInstance, outcome: Outcome) -> None:
        self._running.pop(job, None)
        if self._leaving:
            self._let_go_if_done(instance)
        job.when_abandoned = None
        if isinstance(outcome, InferdError):
            if outcome.is_untaken:
                # It had its turn already, so it keeps it.
                self._lines.put_first(job)  # the instance reports when it is free
                return
            # Once: a request that kills its worker must not go on to kill the next.
            if instance.retries and not job.was_retried and outcome.is_lost:
                job.was_retried = True
                self._lines.put(job)
                return
        elif len(outcome) != len(job.requests):
            outcome = miscounted(self._jobs.name, len(outcome), len(job.requests))
        job.requests[0].ended_ns = self._jobs.clock()
        self._jobs.note_ended()
        job.finish(outcome)
        if self._quiet is not None:
            self._advance()

    def put_back(self, job: Job) -> None:
        """Queue a job again that no instance has taken after all."""
        self._running.pop(job, None)
        self._lines.put(job)

    def end_stream(self, job: Job) -> None:
        """Forget a stream that is over."""
        if job in self._running:
            self._let_go_if_done(self._running.pop(job))
            self._jobs.note_ended()
            job.requests[0].ended_ns = self._jobs.clock()
            if self._quiet is not None:
                self._advance()


def _suits(job: Job, free: AsyncInstance) -> bool:
    """Return whether `job` may be given to a free instance, even ahead of what that runs."""
    return job.may_go_ahead or not free.running_count


def _remote_of(instances: Sequence[Opened]) -> list[AsyncInstance]:
    return [one.alone for one in instances if isinstance(one.alone, AsyncInstance)]


class _RemoteStreamJob(StreamJob):
    """A stream whose answers come from an instance that works elsewhere."""

    def __init__(
        self, request: InferRequest, loop: asyncio.AbstractEventLoop, remotes: RemoteInstances
    ) -> None:
        super().__init__(request, loop)
        self._remotes = remotes
        self._instance: AsyncInstance | None = None
        self._number = 0

    def begin(self, instance: AsyncInstance) -> None:
        """Have `instance` answer."""
        self._instance = instance
        self._number = instance.begin_stream(self.requests[0], self._deliver)

    def _deliver(self, answer: Answer | None, share: int) -> None:
        if isinstance(answer, InferdError) and answer.is_untaken:
            self._remotes.put_back(self)
            return
        self.answers.put_nowait((answer, share))
        if answer is None:
            self._remotes.end_stream(self)

    def give_room(self, share: int) -> None:
        """See StreamJob.give_room."""
        if self._instance is not None:
            self._instance.credit(self._number, share)

    def abandon(self) -> None:
        """See Job.abandon."""
        super().abandon()
        if self._instance is not None:
            # The instance is gone, and the stream with it.
            with suppress(InferdError):
                self._instance.cancel_stream(self._number)
            self._remotes.end_stream(self)
