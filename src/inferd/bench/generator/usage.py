"""What this process has used so far: CPU time, and time that it waited for a core."""

import time
from typing import NamedTuple


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
