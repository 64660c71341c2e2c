"""LoadRecord: what was measured at a point, as it comes in; what the process used meanwhile."""

import time
from array import array
from collections import Counter
from typing import NamedTuple

import numpy as np

from inferd.bench.plan import LoadSample
from inferd.bench.saturation import GeneratorUse

MOST_KINDS_OF_ERRORS = 20
RECENT = 200


class ProcessUsage(NamedTuple):
    """Seconds since some beginning; differences count."""

    at_s: float
    cpu_s: float
    waited_s: float
    runs: int
    """How often it was given a core; 0 where the system does not tell."""


def usage() -> ProcessUsage:
    """Return what the process has used; of the wait for a core, what its main thread did."""
    waited_s, runs = 0.0, 0
    try:
        # Time on a CPU, time waited for one, and how often it got one (Linux, proc(5) and
        # sched-stats).
        with open("/proc/self/schedstat", "rb") as file:
            _, waited_ns, slices = map(int, file.read().split())
        waited_s, runs = waited_ns / 1e9, slices
    except (OSError, ValueError):  # another system, or one without these figures
        pass
    return ProcessUsage(time.monotonic(), time.process_time(), waited_s, runs)


class LoadRecord:
    """The requests of a point: when each should have been sent, and how long it took."""

    def __init__(self) -> None:
        self.answered_count = self.error_count = 0
        self.recent: list[int] = []
        self.late_count = self.waiting_count = self.due_count = 0
        # 8 bytes for each request instead of an object of 32: a long run has millions.
        self._sent = array("q")
        self._latencies = array("q")
        self._firsts = array("q")
        self._parts = array("q")
        self._errors: Counter[str] = Counter()

    def answered(self, due_ns: int, ended_ns: int, first_ns: int, parts: int) -> None:
        """Count an answer; of a stream `first_ns` is when the first of `parts` was there."""
        latency = ended_ns - due_ns
        self._sent.append(due_ns)
        self._latencies.append(latency)
        if parts:
            self._firsts.append(first_ns - due_ns)
            self._parts.append(parts)
        self.answered_count += 1
        # A part stands for all: it is for the eye.
        if len(self.recent) < RECENT:
            self.recent.append(latency)

    def failed(self, error: str) -> None:
        """Count a request without an answer."""
        self.error_count += 1
        if len(self._errors) >= MOST_KINDS_OF_ERRORS and error not in self._errors:
            # Texts with ids or times in them are all different.
            error = "others"
        self._errors[error] += 1

    def forget_errors(self) -> None:
        """Leave what has failed until now out of what was measured."""
        self._errors.clear()

    def sample(
        self, began_ns: int, ended_ns: int, before: ProcessUsage, after: ProcessUsage
    ) -> LoadSample:
        """Return what was measured between two times, at which the process had used so much."""
        sent = np.frombuffer(self._sent, np.int64) if self._sent else np.empty(0, np.int64)
        latencies = np.frombuffer(self._latencies, np.int64) if self._latencies else sent
        inside = (sent >= began_ns) & (sent < ended_ns)
        ended = sent + latencies
        firsts = parts = np.empty(0, np.int64)
        if len(self._firsts) == len(self._sent) and self._firsts:
            firsts = np.frombuffer(self._firsts, np.int64)[inside]
            parts = np.frombuffer(self._parts, np.int64)[inside]
        # Requests that ended while usage was counted, which began later than the point.
        used_count = int(((ended >= before.at_s * 1e9) & (ended < after.at_s * 1e9)).sum())
        return LoadSample(
            began_ns,
            ended_ns,
            sent[inside].tobytes(),
            latencies[inside].tobytes(),
            firsts.tobytes(),
            int(parts.sum()),
            int(((ended >= began_ns) & (ended < ended_ns)).sum()),
            dict(self._errors),
            self.waiting_count / max(1, self.due_count),
            GeneratorUse(
                after.at_s - before.at_s,
                after.cpu_s - before.cpu_s,
                after.waited_s - before.waited_s,
                used_count,
                self.late_count / max(1, self.due_count),
                after.runs - before.runs,
            ),
        )
