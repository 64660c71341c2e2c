"""ProcessMeter: what this process and the workers it has started take of the machine."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from inferd import system

_UTIME, _STIME, _RSS = 11, 12, 21
"""Fields of /proc/PID/stat (proc(5)), counted from the one after the program's name."""


class _Use(NamedTuple):
    """CPU time in seconds, and memory in bytes."""

    cpu_s: float = 0.0
    memory: int = 0


class ProcessMeter:
    """Reads /proc, which takes some 20 µs for each process; elsewhere only CPU time is known."""

    def __init__(
        self, proc: Path = Path("/proc"), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._proc = proc
        self._clock = clock
        self._ticks_per_s, self._page_bytes = system.CLOCK_TICKS_PER_S, system.PAGE_BYTES
        self._at = clock()
        self._before: dict[int, float] = {}
        self.cpu = 0.0
        """The cores that were in use since the last look."""
        self.memory = 0
        # So that the first second has something to differ from.
        self.look()

    def look(self, workers: Iterable[int] = ()) -> None:
        """Measure, now, this process and the `workers`, by their numbers."""
        now = self._clock()
        # Keyed apart from any pid: this process's CPU time comes from the system call, not /proc.
        uses = {0: _Use(time.process_time(), self._read("self").memory)}
        uses |= {pid: self._read(str(pid)) for pid in workers if pid}
        before = self._before
        # A worker that is new counts from 0.
        used_s = sum(use.cpu_s - before.get(pid, 0.0) for pid, use in uses.items())
        passed_s = now - self._at
        self.cpu = used_s / passed_s if passed_s > 0 and before else 0.0
        self.memory = sum(use.memory for use in uses.values())
        self._at, self._before = now, {pid: use.cpu_s for pid, use in uses.items()}

    def memory_of(self, pid: int) -> int:
        """Return the memory of a process, 0 if there is none."""
        return self._read(str(pid)).memory

    def _read(self, name: str) -> _Use:
        try:
            # The program's name is in parentheses and may contain anything, even parentheses.
            text = (self._proc / name / "stat").read_text(errors="replace")
            stat = text.rpartition(")")[2].split()
            ticks = int(stat[_UTIME]) + int(stat[_STIME])
            return _Use(ticks / self._ticks_per_s, int(stat[_RSS]) * self._page_bytes)
        except (OSError, ValueError, LookupError):
            return _Use()
