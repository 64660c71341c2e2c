"""What this process has used so far: CPU time, and time that it waited for a core."""

import time
from typing import NamedTuple


class ProcessUsage(NamedTuple):
    """Seconds since some beginning; differences count."""

    at_s: float
    cpu_s: float
    waited_s: float


def usage() -> ProcessUsage:
    """Return what the process has used; of the wait for a core, what its main thread did."""
    waited_s = 0.0
    try:
        with open("/proc/self/schedstat", "rb") as file:
            waited_s = int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):  # another system, or one without these figures
        pass
    return ProcessUsage(time.monotonic(), time.process_time(), waited_s)
