"""Jobs: those of one model version that wait for an instance, and how long they may."""

import asyncio
import queue
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from inferd.compiled import mypyc_attr
from inferd.config.model import QueuePolicy
from inferd.errors import InferdError
from inferd.schedulers.execution.job import Job, JobHost, twin
from inferd.schedulers.queueing.policy import MAX_WAITING, full, too_late, unloading

_LONG_US = 1 << 45
"""A longer timeout (more than a year) gets no timer."""

_JobLine = OrderedDict[Job, None]


@mypyc_attr(allow_interpreted_subclasses=True)
class JobLines:
    """Lines of waiting jobs, one per level: first come, first served.

    An abandoned job is removed at once, and its tensors with it: a model that hangs must not
    accumulate them. A delayed job is served after all others of its level.
    """

    def __init__(self) -> None:
        self._levels: dict[int, tuple[_JobLine, _JobLine]] = {}  # jobs in time, and delayed ones
        self._order: list[_JobLine] = []  # the lines in serving order; rebuilt for a new level
        self._lines(0)

    def __len__(self) -> int:
        """Return how many jobs wait."""
        return sum(map(len, self._order))

    def count(self, level: int) -> int:
        """Return how many jobs of a level wait."""
        return sum(map(len, self._levels.get(level, ())))

    def put(self, job: Job) -> None:
        """Queue `job` behind all others of its level that are not delayed."""
        in_time, _ = self._lines(job.level)
        # A dict as an ordered set: removing a request that gave up takes as long for the millionth
        # as for the first.
        in_time[job] = None

    def put_first(self, job: Job) -> None:
        """Put `job`, which has been taken, back in front of all others of its level."""
        in_time, _ = self._lines(job.level)
        in_time[job] = None
        in_time.move_to_end(job, last=False)

    def take(self) -> Job | None:
        """Take the next job; return None if there is none, or it has just been removed."""
        for line in self._order:
            try:
                if line:
                    return line.popitem(last=False)[0]
            # `line` was not empty above, but another thread took the last one in between.
            except KeyError:  # it has just been removed
                continue
        return None

    def first(self) -> Job | None:
        """Return the next job without taking it; only for use where no thread takes jobs."""
        line = next((line for line in self._order if line), None)
        return next(iter(line)) if line is not None else None

    def delay(self, job: Job) -> bool:
        """Move `job` behind all others of its level; return False if it has been taken."""
        in_time, delayed = self._lines(job.level)
        # The default that is returned tells "not there" in one call, which no other thread can
        # interrupt.
        if in_time.pop(job, job) is job:
            return False
        delayed[job] = None
        return True

    def remove(self, job: Job) -> bool:
        """Remove `job`; return whether it was still there."""
        in_time, delayed = self._lines(job.level)
        return in_time.pop(job, job) is not job or delayed.pop(job, job) is not job

    def _lines(self, level: int) -> tuple[_JobLine, _JobLine]:
        lines = self._levels.get(level)
        if lines is None:
            # Drop empty levels: a configuration may allow more than fit in memory.
            self._levels = {number: both for number, both in self._levels.items() if any(both)}
            lines = self._levels[level] = (OrderedDict(), OrderedDict())
            self._order = [line for _, both in sorted(self._levels.items()) for line in both]
        return lines


class JobQueue(JobLines):
    """Lines of jobs that threads take.

    A thread first waits until there may be a job, then takes it: in between the job can still be
    removed. Each of these steps is one call into C, so no lock is needed. Unless they say
    otherwise, methods other than `take` are called on the event loop.
    """

    def __init__(self) -> None:
        super().__init__()
        # Written in C and safe between threads, which a Condition in Python would pay for with each
        # job.
        self._signals: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def put(self, job: Job) -> None:
        """See JobLines.put."""
        super().put(job)
        self._signals.put(True)

    def end(self) -> None:
        """Let one thread end, once the jobs queued before this call are served."""
        self._signals.put(False)

    def pass_on(self) -> None:
        """Leave the job this thread was woken for to another thread; called in a thread."""
        self._signals.put(True)

    def wake(self, count: int) -> None:
        """Wake up to `count` waiting threads, though there may be no job."""
        for _ in range(count - self._signals.qsize()):
            self._signals.put(True)

    def wait(self) -> bool:
        """Wait in a thread until there may be a job; return False if the thread is to end."""
        return self._signals.get()

    def has_more(self) -> bool:
        """Return, in a thread, whether there may be a job; if so, it counts as waited for."""
        try:
            if self._signals.get_nowait():
                return True
        except queue.Empty:
            return False
        # The signal to end was for whoever waits next; this thread has a turn to finish.
        self._signals.put(False)
        return False

    def delay(self, job: Job) -> bool:
        """See JobLines.delay."""
        if not super().delay(job):
            return False
        self._signals.put(True)  # a thread may have looked for it in between
        return True

    def remove(self, job: Job) -> bool:
        """See JobLines.remove."""
        if not super().remove(job):
            return False
        with suppress(queue.Empty):  # if empty, a thread has the signal and will find no job
            # The job's own signal is taken back, so that no thread wakes for nothing; one to end is
            # put back.
            if not self._signals.get_nowait():
                self._signals.put(False)
        return True


class Jobs(JobHost):
    """The jobs of one model version; `lines` are those that no instance has taken yet."""

    def __init__(
        self, name: str, lines: JobLines, clock: Callable[[], int], cpu_clock: Callable[[], int]
    ) -> None:
        super().__init__(name, clock, cpu_clock)
        self.lines = lines
        self.is_closed = False

    def enter(self, job: Job) -> None:
        """Count a job that is submitted. Raises Unavailable if the model is being unloaded."""
        if self.is_closed:
            raise unloading(self.name)
        self.count += 1
        request = job.requests[0]
        # One that waited in a scheduler's queue has it already: its wait began there.
        request.queued_ns = request.queued_ns or self.clock()

    def check_room(self, job: Job, policy: QueuePolicy, instance_count: int) -> None:
        """Raise Overloaded when as many jobs wait as `policy` allows."""
        most = policy.max_queue_size or MAX_WAITING
        # Those that run are not waiting.
        if self.count - instance_count >= most and (
            not job.level or self.lines.count(job.level) >= most
        ):
            raise full(self.name, policy)

    def timer(self, job: Job, policy: QueuePolicy, timeout_us: int) -> asyncio.TimerHandle | None:
        """Return the timer of what happens to `job` if it still waits after `timeout_us`."""
        # It would go off when nobody lives to see it, and is more than timers of event loops take.
        if not 0 < timeout_us < _LONG_US:
            return None
        loop = asyncio.get_running_loop()
        if policy.timeout_action == "DELAY":
            return loop.call_later(timeout_us / 1e6, self.lines.delay, job)
        return loop.call_later(timeout_us / 1e6, self._expire, job, timeout_us)

    def abandon(self, job: Job, timer: asyncio.TimerHandle | None) -> None:
        """Note that nobody waits for `job` any longer, as it has ended or its caller has left."""
        if timer is not None:
            timer.cancel()
        job.abandon()
        if self.lines.remove(job):
            self.note_ended()

    def refuse(self, error: InferdError | None = None) -> None:
        """End all waiting jobs with `error`, or as those of a model that is being unloaded."""
        while (job := self.lines.take()) is not None:
            self.note_ended()
            job.finish(twin(error) if error is not None else unloading(self.name))

    def _expire(self, job: Job, timeout_us: int) -> None:
        if self.lines.remove(job):
            self.note_ended()
            job.finish(too_late(self.name, timeout_us))
