"""RemoteExecution: an Execution whose instances work elsewhere and answer to the event loop.

Requests wait here until an instance is free. Nothing is handed to a thread and nothing back: an
instance takes them on the event loop, and there its answers come. An instance whose process has
ended takes nothing until it has another; meanwhile requests wait, or go to other instances. When
none of them will come up soon, all that wait are refused with the reason.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from inferd.core.interfaces import Answer, AsyncInstance, Outcome
from inferd.core.request import InferRequest
from inferd.errors import InferdError, Unavailable
from inferd.observe.stats import Counts
from inferd.schedulers.execution import Execution, Job, StreamJob, miscounted, twin

END_S = 5.0
"""So long an instance may take to end, though the one who closes it has no more time."""


class RemoteExecution(Execution):
    """See Execution. `instances` are asynchronous."""

    def __init__(
        self, name: str, instances: Sequence[AsyncInstance], *, counts: Counts | None = None
    ) -> None:
        super().__init__(name, instances, may_run_inline=False, counts=counts)
        self._remote = instances
        self._waiting: deque[Job] = deque()
        self._running: dict[Job, AsyncInstance] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._quiet: asyncio.Future[None] | None = None
        for instance in instances:
            instance.on_change = self._advance

    @property
    def pending_count(self) -> int:
        """See Execution.pending_count."""
        return len(self._waiting)

    def run_inline(self, requests: Sequence[InferRequest]) -> None:
        """See Execution.run_inline: nothing runs on the event loop."""
        del requests

    async def close(self, timeout_s: float) -> None:
        """See Execution.close."""
        self._is_closed = True
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        if self._running or self._waiting:
            self._quiet = loop.create_future()
            await asyncio.wait((self._quiet,), timeout=timeout_s)
        self._refuse(self.unloading())
        for instance in self._remote:
            instance.attach(loop)
            instance.close()
        left_s = max(deadline_s - loop.time(), END_S)
        await asyncio.gather(*(instance.closed(left_s) for instance in self._remote))

    def _stream_job(self, request: InferRequest) -> StreamJob:
        return _RemoteStreamJob(request, asyncio.get_running_loop(), self)

    def _place(self, job: Job) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            for instance in self._remote:
                instance.attach(self._loop)
        self._waiting.append(job)
        self._advance()

    def _advance(self) -> None:
        """Give free instances what waits."""
        waiting = self._waiting
        while waiting:
            for instance in self._remote:
                if instance.is_free:
                    break
            else:
                self._look_for_trouble()
                break
            job = waiting.popleft()
            if not job.is_abandoned:
                self._begin(job, instance)
        if self._quiet is not None and not waiting and not self._running and not self._quiet.done():
            self._quiet.set_result(None)

    def _look_for_trouble(self) -> None:
        """Refuse what waits in vain, or for itself."""
        troubles = [instance.trouble for instance in self._remote]
        if all(troubles):
            self._refuse(Unavailable(f"model '{self.name}' cannot run: {troubles[0]}"))
            return
        last = self._waiting[-1]
        callers = next((one.callers for one in last.requests if self.name in one.callers), None)
        if callers is not None:
            self._waiting.pop()
            way = " -> ".join((*callers, self.name))
            msg = f"model '{self.name}' is called while all its instances wait for that call: {way}"
            last.refuse(Unavailable(msg))

    def _refuse(self, error: InferdError) -> None:
        while self._waiting:
            job = self._waiting.popleft()
            if not job.is_abandoned:
                job.refuse(twin(error))

    def _begin(self, job: Job, instance: AsyncInstance) -> None:
        job.requests[0].started_ns = self.clock()
        self._running[job] = instance
        if isinstance(job, _RemoteStreamJob):
            job.begin(instance)
            return
        job.when_abandoned = partial(instance.cancel, job.requests)
        instance.begin(job.requests, partial(self._finish, job, instance))

    def _finish(self, job: Job, instance: AsyncInstance, outcome: Outcome) -> None:
        del self._running[job]
        job.when_abandoned = None
        if isinstance(outcome, InferdError):
            if instance.retries and not job.was_retried and outcome.is_lost:
                job.was_retried = True
                self._waiting.appendleft(job)
                return  # the instance tells when it is free
        elif len(outcome) != len(job.requests):
            outcome = miscounted(self.name, len(outcome), len(job.requests))
        job.requests[0].ended_ns = self.clock()
        job.finish(outcome, 0)

    def end_stream(self, job: Job) -> None:
        """Forget a stream that is over."""
        if self._running.pop(job, None) is not None:
            job.requests[0].ended_ns = self.clock()
            if self._quiet is not None:
                self._advance()


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
