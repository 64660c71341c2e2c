"""Threads: the instances of a model in this process, each with a thread that takes jobs.

Each instance has its own, so a model that hangs holds up only its own callers.
"""

import asyncio
import logging
import threading
from collections.abc import Hashable, Sequence
from contextlib import ExitStack
from functools import partial

from inferd.core.interfaces import CancellableInstance, Instance, Opened
from inferd.core.request import InferRequest
from inferd.core.traits import Turn, traits_of
from inferd.errors import Unavailable
from inferd.observe.crash.mark import ModelMarks, RunMark, shown_ids
from inferd.schedulers.execution.cores import pin
from inferd.schedulers.execution.job import Job, StreamJob, tell
from inferd.schedulers.execution.jobs import JobQueue, Jobs

log = logging.getLogger("inferd.engine")

# Woken threads may all be others', so they are called until the right one comes; a tenth of a
# second is nothing beside a load.
CALL_S = 0.05
"""How often a thread that is to end is woken, in seconds."""


class InstanceThreads:
    """The instances `opened`, of which `instance_count` stay, and the threads of those used so far.

    With `has_turns` an instance may wait for its turn before it takes a job.
    """

    def __init__(
        self, instances: Sequence[Opened], jobs: Jobs, queue: JobQueue, marks: ModelMarks
    ) -> None:
        self.opened = list(instances)
        self.instance_count = len(instances)
        self.has_turns = any(traits_of(one.alone).turn is not None for one in instances)
        self._jobs = jobs
        self._queue = queue
        self._marks = marks
        self._tells = any(isinstance(one.alone, CancellableInstance) for one in instances)
        self._ended: list[asyncio.Future[None]] = []  # one per thread, done when it has ended
        self._going: set[int] = set()  # the ids of instances whose own thread is to end
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def has_room(self) -> bool:
        """See Execution.has_room."""
        return self._jobs.count < self.instance_count

    @property
    def pending_count(self) -> int:
        """See Execution.pending_count."""
        return len(self._queue)

    def takes_now(self, job: Job) -> bool:
        """Return whether `job` would not wait, however many run; a thread runs one at a time."""
        del job
        return False

    def stream_job(self, request: InferRequest) -> StreamJob:
        """Return a job for a decoupled model."""
        return StreamJob(request, asyncio.get_running_loop())

    def take(self, job: Job) -> None:
        """Have the thread of the next free instance run `job`."""
        if len(self._ended) < len(self.opened):
            self._start(len(self._ended))
        if self._tells:
            job.when_abandoned = partial(self.leave, job.requests)
        self._queue.put(job)

    def leave(self, requests: Sequence[InferRequest]) -> None:
        """Tell instances that can use it that nobody waits for `requests`; most have no use."""
        if self._tells:
            for one in self.opened:
                if isinstance(one.alone, CancellableInstance):
                    one.alone.cancel(requests)

    async def close(self, timeout_s: float) -> None:
        """See Execution.close."""
        for _ in self._ended:
            self._queue.end()
        # Each is closed, even if closing another one fails.
        with ExitStack() as at_the_end:
            for one in self.opened:
                at_the_end.callback(one.alone.close)
            at_the_end.callback(self._jobs.refuse)
            if ends := [*self._ended, *self._closing]:
                await asyncio.wait(ends, timeout=timeout_s)

    def grow(self, instance: Opened) -> None:
        """See Resizable.grow."""
        self.opened.append(instance)
        self.has_turns = self.has_turns or traits_of(instance.alone).turn is not None
        self._tells = self._tells or isinstance(instance.alone, CancellableInstance)
        self.instance_count += 1
        if self._jobs.is_closed:
            self._dismiss(len(self.opened) - 1)
        elif len(self._queue):
            self._start(len(self._ended))

    def shrink(self, kind: Hashable = None) -> None:
        """See Resizable.shrink. An instance without a thread goes at once."""
        if self.instance_count == 1 or self._jobs.is_closed:
            return
        number = len(self.opened) - 1
        if kind is not None:
            some = (n for n, one in enumerate(self.opened) if self._stays(one, kind))
            number = max(some, default=-1)
            if number < 0:
                return
        self.instance_count -= 1
        if number >= len(self._ended):
            self._dismiss(number)
        elif kind is not None:
            self._going.add(id(self.opened[number].alone))
            self._call_going()
        else:
            self._queue.end()

    def _stays(self, one: Opened, kind: Hashable) -> bool:
        return one.kind == kind and id(one.alone) not in self._going

    def _call_going(self) -> None:
        """Wake all threads repeatedly until each one that is to end has noticed."""
        if self._going and not self._jobs.is_closed:
            self._queue.wake(len(self._ended))
            asyncio.get_running_loop().call_later(CALL_S, self._call_going)

    def _dismiss(self, number: int) -> None:
        """Close an instance in which nothing runs."""
        instance = self.opened.pop(number).alone
        self._going.discard(id(instance))
        closing = asyncio.get_running_loop().create_task(_close(instance, self._jobs.name))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _note_end(self, ended: "asyncio.Future[None]") -> None:
        ended.set_result(None)
        if self._jobs.is_closed:
            return
        number = self._ended.index(ended)
        del self._ended[number]
        self._dismiss(number)

    def _start(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        work = partial(self._work, self.opened[number], loop, ended)
        # A daemon thread, so that a model that hangs cannot keep the process alive.
        name = f"{self._jobs.name}-{number}"
        threading.Thread(target=work, name=name, daemon=True).start()
        self._ended.append(ended)

    def _work(
        self, opened: Opened, loop: asyncio.AbstractEventLoop, ended: "asyncio.Future[None]"
    ) -> None:
        """Run jobs in this thread until it is to end."""
        # Before the first run, so that threads which the framework starts there inherit it.
        pin(opened.cores)
        number, turn = id(opened.alone), traits_of(opened.alone).turn
        mark = self._marks.claim(threading.get_ident())
        while self._queue.wait():
            if number in self._going:
                self._queue.pass_on()
                break
            if turn is None:
                self._run_next(opened, mark)
            else:
                self._run_in_turn(opened, mark, turn)
        else:
            if number in self._going:
                self._queue.end()  # the end signal was meant for another thread
        self._marks.release(mark)
        tell(loop, self._note_end, ended)

    def _run_in_turn(self, opened: Opened, mark: RunMark, turn: Turn) -> None:
        """Run jobs, one after the other, each when it is the instance's turn."""
        try:
            with turn:
                self._run_next(opened, mark)
                while id(opened.alone) not in self._going and self._queue.has_more():
                    # Between two runs: others whose turn it is come first.
                    turn.renew()
                    self._run_next(opened, mark)
        except Unavailable:  # the instance was closed while it waited for its turn
            return

    def _run_next(self, opened: Opened, mark: RunMark) -> None:
        """Run the next job in this thread; returning drops all references to its tensors."""
        job = self._queue.take()
        if job is None:
            return
        if job.is_wanted():
            job.requests[0].started_ns = self._jobs.clock()
            mark.note.value = shown_ids(job.requests)
            job.run(opened.together if len(job.requests) > 1 else opened.alone, self._jobs)
            mark.note.value = mark.idle
        else:
            job.drop(self._jobs)


async def _close(instance: Instance, model: str) -> None:
    """Close an instance in a thread and log any failure."""
    try:
        await asyncio.to_thread(instance.close)
    except Exception:
        log.exception("an instance of model '%s' does not close", model)
