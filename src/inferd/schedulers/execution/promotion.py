"""Promotion: which requests of a model run on the event loop itself, and which in threads.

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
"""

from collections.abc import Callable, Sequence

from inferd.core.interfaces import Outcome
from inferd.core.request import InferRequest
from inferd.errors import InferdError
from inferd.observe.crash.mark import ModelMarks, RunMarks
from inferd.schedulers.execution.overrun import OVERRUN_NS, Gauges, Overruns

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
