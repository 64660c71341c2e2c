"""Promotion: which requests of a model run on the event loop itself, and which in threads.

A hand-over to a thread and back costs 10 to 40 µs, several times what a small model needs; a long
execution on the loop makes every other connection wait. So each model starts in threads, and
requests of one size class (the power of two their element count falls in) move onto the loop once
their measured time has been short for a while. One overrun that the system did not cause moves the
class back at once, and if overruns keep coming, each further move onto the loop needs twice the
previous surplus of short runs over long ones. Only backends that promise
to end by themselves (`is_bounded`) and to run in several threads at once (`is_concurrent`) come
onto the loop.

Runs in threads are measured in CPU time: their wall time includes waiting for the GIL. Runs on the
loop are measured in wall time, which is what the other connections wait, and whose clock costs a
tenth as much.

On a busy machine the system may preempt a run of microseconds, and the wall clock shows
milliseconds. Sending the model to the threads for that would make each of its requests more
expensive, just when there is nothing to spare. The system counts its preemptions; a short overrun
is forgiven when that count has risen since the last look, within a budget that bounds how long a
model that really is slow can make the other connections wait.

When the budget is used up the next runs are watched: the thread's usage is read before and after
each. That is exact, but takes four system calls per run, so it ends soon.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from inferd.core.interfaces import Outcome
from inferd.core.request import InferRequest
from inferd.errors import InferdError
from inferd.observe.crash.mark import ModelMarks, RunMarks

OVERRUN_NS = 1_000_000
"""A run on the loop that takes longer than this sends its size class back to the threads."""

MOST_FORGIVEN_NS = 20_000_000
"""A longer run makes the next runs be watched: few schedulers let a thread wait so long."""

BUDGET_NS = 200_000_000
"""How much time in total may be forgiven on suspicion within WINDOW_NS; a longer run never is."""

WINDOW_NS = 10_000_000_000

WATCHED_RUNS = 64
"""How many runs are watched when suspicion is not enough."""


class Usage(NamedTuple):
    """What the system has counted for a thread so far."""

    cpu_ns: int
    waits: int
    """Voluntary context switches: how often the thread waited for something."""
    preemptions: int
    """Involuntary context switches: how often the system took the processor from it."""


def _usage() -> Usage:
    """Return the usage of this thread, all zeros where the system does not count it."""
    try:
        from resource import RUSAGE_THREAD, getrusage
    except ImportError:  # only Linux counts for each thread
        return Usage(0, 0, 0)
    usage = getrusage(RUSAGE_THREAD)  # its CPU time is only as recent as the last tick
    return Usage(time.thread_time_ns(), usage.ru_nvcsw, usage.ru_nivcsw)


class Gauges(NamedTuple):
    """Readings of the calling thread: its CPU time in ns, and its whole Usage."""

    cpu_ns: Callable[[], int] = time.thread_time_ns
    usage: Callable[[], Usage] = _usage


class Overruns:
    """Judges the overruns of one model on the event loop; `clock` is in ns.

    While there are `runs_to_watch`, `watch` is called before each run.
    """

    def __init__(self, clock: Callable[[], int], usage: Callable[[], Usage]) -> None:
        self._clock = clock
        self._usage = usage
        self._seen = Usage(0, 0, 0)
        self._is_watched = False
        self._forgiven_ns = 0
        self._since_ns = 0
        self.runs_to_watch = 0

    def look(self) -> None:
        """Note the thread's usage so far; called when a size class moves onto the loop."""
        self._seen = self._usage()
        self._is_watched, self.runs_to_watch = False, 0

    def watch(self) -> None:
        """Note the thread's usage before the coming run; the last of these calls ends watching."""
        self.runs_to_watch -= 1
        self._seen, self._is_watched = self._usage(), self.runs_to_watch > 0

    def is_forgiven(self, took_ns: int) -> bool:
        """Return whether the system caused, or may have caused, a run to take `took_ns`."""
        before, now_ns = self._seen, self._clock()
        self._seen = now = self._usage()
        was_preempted = now.preemptions != before.preemptions
        if self._is_watched:
            is_short = now.cpu_ns - before.cpu_ns <= OVERRUN_NS
            # A run that waited (a lock, a file) was slow by itself, whatever the system did.
            return was_preempted and is_short and now.waits == before.waits
        if now_ns - self._since_ns > WINDOW_NS:
            self._since_ns, self._forgiven_ns = now_ns, 0
        # Counted also where it is not forgiven: so many long runs in a row use the budget up in any
        # case.
        self._forgiven_ns += took_ns
        if not was_preempted or took_ns > BUDGET_NS:
            return False
        if took_ns > MOST_FORGIVEN_NS or self._forgiven_ns > BUDGET_NS:
            self.runs_to_watch, self._forgiven_ns = WATCHED_RUNS, 0
        return True


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

_SIZE_CLASSES = 65  # no tensor has more than 2^64 - 1 elements, as it must fit in memory


class Promotion:
    """What is known of the runs of one model version, by size class.

    `has_any` tells whether any class runs on the loop, and `is_prompt` which do: a request looks at
    both itself, which saves a call. A run on the loop is noted in `mark`.
    """

    def __init__(
        self, name: str, clock: Callable[[], int], gauges: Gauges, marks: ModelMarks, *, may: bool
    ) -> None:
        self.may = may
        self.has_any = False
        # A list by number: no hash and no call.
        self.is_prompt = [False] * _SIZE_CLASSES
        self.mark = RunMarks().claim(name, "")  # until the first move: of a record nobody reads
        self.overruns = Overruns(clock, gauges.usage)
        self._clock = clock
        self._marks = marks
        self._has_mark = False
        self._runs_missing = [FIRST_RUNS] * _SIZE_CLASSES
        self._runs_needed = [FIRST_RUNS] * _SIZE_CLASSES
        self._moved_ns = [0] * _SIZE_CLASSES

    def stop(self) -> None:
        """Run nothing on the loop from now on."""
        self.may = self.has_any = False
        self.is_prompt = [False] * _SIZE_CLASSES
        if self._has_mark:
            self._has_mark = False
            self._marks.release(self.mark)

    def note_thread_run(self, requests: Sequence[InferRequest], outcome: Outcome) -> None:
        """Note a run in a thread, which may move its size class onto the loop."""
        # A model may fail before it has done its work, so the time of a failure says nothing.
        if not self.may or isinstance(outcome, InferdError) or isinstance(outcome[0], InferdError):
            return
        size_class, took_ns = size_class_of(requests), requests[0].cpu_ns
        missing, needed = self._runs_missing[size_class], self._runs_needed[size_class]
        # One run that would have made others wait counts more than all short ones before.
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
                self.mark = self._marks.claim()
            self.is_prompt[size_class] = self.has_any = True
            self._moved_ns[size_class] = self._clock()
            self.overruns.look()

    def note_overrun(self, size_class: int, took_ns: int) -> None:
        """Note a long run on the loop, which moves its size class back unless it is forgiven."""
        if self.overruns.is_forgiven(took_ns):
            return
        self.is_prompt[size_class] = False
        self.has_any = True in self.is_prompt
        needed = FIRST_RUNS
        if self._clock() - self._moved_ns[size_class] < CALM_NS:
            needed = min(2 * self._runs_needed[size_class], MOST_RUNS)
        self._runs_needed[size_class] = self._runs_missing[size_class] = needed


def size_class_of(requests: Sequence[InferRequest]) -> int:
    """Return the size class of `requests`: the bit length of their inputs' element count."""
    elements = 0
    for request in requests:
        for tensor in request.inputs:
            count = 1
            for dim in tensor.shape:  # saves the call of prod()
                count *= dim
            elements += count
    return elements.bit_length()
