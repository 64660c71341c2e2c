"""Devices: metrics of the machine's processors, memory and GPUs, under Triton's names."""

import time
from collections.abc import Callable
from math import inf
from pathlib import Path

from inferd.observe.family import Family
from inferd.observe.nvml import Gpus


class Devices:
    """Measures the devices at most once in `interval_s` seconds, and keeps the last result.

    `gpu_uuid` is the UUID of the machine's GPU, "" while it is not known or if there are several:
    models do not say which one they run on.
    """

    def __init__(
        self,
        cpu: "Cpu | None",
        gpus: Gpus | None,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.gpu_uuid = ""
        self._cpu = cpu
        self._gpus = gpus
        self._interval_s = interval_s
        self._clock = clock
        self._measured_s = -inf
        self._families: list[Family] = []

    def families(self) -> list[Family]:
        """Return the metrics of all devices; may take milliseconds."""
        now_s = self._clock()
        # Several scrapers, or a hasty one, must not each ask NVML, which takes milliseconds.
        if now_s - self._measured_s >= self._interval_s:
            self._measured_s = now_s
            self._families = self._cpu.families() if self._cpu else []
            if self._gpus:
                self._families += self._gpus.families()
                uuids = self._gpus.uuids()
                self.gpu_uuid = uuids[0] if len(uuids) == 1 else ""
        return self._families


class Cpu:
    """The machine's processors and memory, from Linux's /proc; no metrics on other systems.

    The utilization is that of the time since the last measurement.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        # Until the first measurement, the utilization is that since boot.
        self._busy, self._all = self._ticks() or (0, 0)
        self._utilization = 0.0

    def families(self) -> list[Family]:
        """Return the metrics, none if /proc cannot be read."""
        ticks, memory = self._ticks(), self._memory_bytes()
        if ticks is None or memory is None:
            return []
        busy, total = ticks[0] - self._busy, ticks[1] - self._all
        if total > 0:
            # Counters of single processors may fall when one is taken offline.
            self._utilization = min(1.0, max(0.0, busy / total))
        self._busy, self._all = ticks
        total_bytes, free_bytes = memory
        return [
            Family("nv_" + name, "gauge", help, [("", value)])
            for name, help, value in (
                ("cpu_utilization", "How busy the processors are, from 0 to 1", self._utilization),
                ("cpu_memory_total_bytes", "Memory of the machine, in bytes", total_bytes),
                (
                    "cpu_memory_used_bytes",
                    "Memory that programs cannot have any more, in bytes",
                    total_bytes - free_bytes,
                ),
            )
        ]

    def _ticks(self) -> tuple[int, int] | None:
        """Return the ticks in which the processors were busy, and all ticks, since boot."""
        try:
            # The line "cpu" sums all processors; its tenth and eleventh fields, guest times, are
            # contained in user and nice.
            first = (self._proc / "stat").read_text().split("\n", 1)[0].split()
            user, nice, system, idle, waiting, *others = map(int, first[1:9])
        except (OSError, ValueError):
            return None
        busy = user + nice + system + sum(others)
        # Waiting for a disk is idle: another process could run.
        return busy, busy + idle + waiting

    def _memory_bytes(self) -> tuple[int, int] | None:
        """Return the total memory and what is available to programs, in bytes."""
        try:
            lines = (self._proc / "meminfo").read_text().splitlines()
            sizes = {
                name: int(rest.split()[0]) for name, _, rest in (x.partition(":") for x in lines)
            }
            # Not MemFree: caches are given back when programs ask for memory.
            return sizes["MemTotal"] * 1024, sizes["MemAvailable"] * 1024
        except (OSError, ValueError, LookupError):
            return None
