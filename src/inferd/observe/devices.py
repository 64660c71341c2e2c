"""Devices: metrics of the machine's processors, memory and GPUs, and of the server's process.

Those of devices have Triton's names, those of the process the names that Prometheus's own client
libraries use. They are read from Linux's /proc, where there is one, and those of NVIDIA's GPUs from
their driver's library (NVML). It comes with the driver; without it there are no GPUs. It is called
through ctypes: ten functions do not need a package.
"""

import ctypes
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from inferd import system
from inferd.observe.family import Family, escaped

log = logging.getLogger("inferd.metrics")

LIBRARY = "libnvidia-ml.so.1"

# NVML_DEVICE_UUID_V2_BUFFER_SIZE and NVML_DEVICE_NAME_V2_BUFFER_SIZE.
_UUID_BYTES = 96
_NAME_BYTES = 96


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _MemoryInfo(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class GpuReading(NamedTuple):
    """What a GPU does now: its load from 0 to 1, and bytes; None for what it has no meter for."""

    name: str
    utilization: float | None
    used_bytes: int | None
    total_bytes: int | None


class NvmlError(Exception):
    """A function of the library failed."""


class Gpus:
    """The GPUs. `load` opens the library, at the first use."""

    def __init__(self, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        self._load = load
        self._library: Any = None
        self._handles: list[tuple[ctypes.c_void_p, str]] | None = None

    def uuids(self) -> list[str]:
        """Return the UUIDs of the GPUs, which never change, in the driver's order."""
        return [uuid for _, uuid in self._opened()]

    def families(self) -> list[Family]:
        """Return the metrics of the GPUs; those a GPU does not support are left out."""
        found: dict[str, list[tuple[str, float]]] = {name: [] for name, _, _, _ in METRICS}
        for handle, uuid in self._opened():
            for name, _, _, read in METRICS:
                try:
                    value = read(self, handle)
                except NvmlError:
                    continue  # not every GPU has every meter
                found[name].append((f'gpu_uuid="{escaped(uuid)}"', value))
        return [
            Family(name, kind, help, found[name]) for name, kind, help, _ in METRICS if found[name]
        ]

    def readings(self) -> list[GpuReading]:
        """Return what each GPU does now; may take milliseconds."""
        found = []
        for handle, _ in self._opened():
            utilization = memory = None
            with suppress(NvmlError):
                utilization = self.utilization(handle)
            with suppress(NvmlError):
                memory = self.memory(handle)
            used, total = (memory.used, memory.total) if memory is not None else (None, None)
            found.append(GpuReading(self._name(handle), utilization, used, total))
        return found

    def _name(self, handle: ctypes.c_void_p) -> str:
        name = ctypes.create_string_buffer(_NAME_BYTES)
        try:
            self._call("nvmlDeviceGetName", handle, name, ctypes.c_uint(_NAME_BYTES))
        except NvmlError:
            return "GPU"
        return name.value.decode(errors="replace")

    def memory_use(self, index: int) -> float | None:
        """Return the share of a GPU's memory that is in use, from 0 to 1; None if unknown."""
        gpus = self._opened()
        if not 0 <= index < len(gpus):
            return None
        try:
            sizes = self.memory(gpus[index][0])
        except NvmlError:
            return None
        return float(sizes.used / sizes.total) if sizes.total else None

    def utilization(self, handle: ctypes.c_void_p) -> float:
        """Return the share of time, from 0 to 1, in which the GPU was busy."""
        value = _Utilization()
        # The rates are of the last second or so, in percent.
        self._call("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(value))
        return float(value.gpu) / 100

    def memory(self, handle: ctypes.c_void_p) -> _MemoryInfo:
        """Return the total, free and used memory, in bytes."""
        value = _MemoryInfo()
        self._call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(value))
        return value

    def power_w(self, handle: ctypes.c_void_p) -> float:
        """Return the power drawn now, in watts."""
        # NVML counts in milliwatts, Triton's metrics are in watts.
        return self._number("nvmlDeviceGetPowerUsage", handle, ctypes.c_uint()) / 1000

    def power_limit_w(self, handle: ctypes.c_void_p) -> float:
        """Return the power limit, in watts."""
        return self._number("nvmlDeviceGetEnforcedPowerLimit", handle, ctypes.c_uint()) / 1000

    def energy_j(self, handle: ctypes.c_void_p) -> float:
        """Return the energy used since the driver was loaded, in joules."""
        value = self._number("nvmlDeviceGetTotalEnergyConsumption", handle, ctypes.c_ulonglong())
        return value / 1000

    def _opened(self) -> list[tuple[ctypes.c_void_p, str]]:
        """Return the handle and UUID of each GPU; opening the library is tried only once."""
        if self._handles is None:
            # Set before opening: what failed once is not tried at each scrape.
            self._handles = []
            try:
                self._library = self._load(LIBRARY)
                self._handles = self._find()
            except OSError:  # no driver
                pass
            except NvmlError as error:
                log.warning("no metrics of GPUs: %s", error)
        return self._handles

    def _find(self) -> list[tuple[ctypes.c_void_p, str]]:
        # Never shut down: others in this process may use the library as well, and the process's end
        # does it.
        self._call("nvmlInit_v2")
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        found = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
            uuid = ctypes.create_string_buffer(_UUID_BYTES)
            self._call("nvmlDeviceGetUUID", handle, uuid, ctypes.c_uint(_UUID_BYTES))
            found.append((handle, uuid.value.decode(errors="replace")))
        return found

    def _number(self, function: str, handle: ctypes.c_void_p, value: Any) -> float:
        self._call(function, handle, ctypes.byref(value))
        return float(value.value)

    def _call(self, function: str, *args: Any) -> None:
        try:
            status = getattr(self._library, function)(*args)
        except AttributeError as error:  # an older driver
            raise NvmlError(f"{LIBRARY} has no {function}") from error
        # 0 is NVML_SUCCESS.
        if status != 0:
            raise NvmlError(f"{function} of {LIBRARY} returned {status}")


METRICS: tuple[tuple[str, str, str, Callable[[Gpus, ctypes.c_void_p], float]], ...] = (
    ("nv_gpu_utilization", "gauge", "How busy the GPU is, from 0 to 1", Gpus.utilization),
    (
        "nv_gpu_memory_total_bytes",
        "gauge",
        "Memory of the GPU, in bytes",
        lambda gpus, handle: gpus.memory(handle).total,
    ),
    (
        "nv_gpu_memory_used_bytes",
        "gauge",
        "Memory of the GPU in use, in bytes",
        lambda gpus, handle: gpus.memory(handle).used,
    ),
    ("nv_gpu_power_usage", "gauge", "Power the GPU draws, in watts", Gpus.power_w),
    ("nv_gpu_power_limit", "gauge", "Power the GPU may draw, in watts", Gpus.power_limit_w),
    (
        "nv_energy_consumption",
        "counter",
        "Energy the GPU has used since its driver was loaded, in joules",
        Gpus.energy_j,
    ),
)


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
        rows = [
            ("utilization", "How busy the processors are, from 0 to 1", self._utilization),
            ("memory_total_bytes", "Memory of the machine, in bytes", total_bytes),
            (
                "memory_used_bytes",
                "Memory that programs cannot have any more, in bytes",
                total_bytes - free_bytes,
            ),
        ]
        return [Family(f"nv_cpu_{name}", "gauge", help, [("", n)]) for name, help, n in rows]

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


_UTIME, _STIME, _START, _VSIZE, _RSS = 11, 12, 19, 20, 21
"""Fields of /proc/PID/stat (proc(5)), counted from the one after the program's name."""


def process_families(proc: Path = Path("/proc")) -> list[Family]:
    """Return the metrics of this process; `proc` is where /proc is mounted.

    Those of several processes are added up; the server began with the first of them.
    """
    folder = proc / "self"
    try:
        # The program's name is in parentheses and may contain anything, even parentheses.
        stat = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        # When the machine started, in seconds since 1970.
        boot_s = int(_line((proc / "stat").read_text(), "btime ")[1])
        open_count = len(os.listdir(folder / "fd"))
        limit = _line((folder / "limits").read_text(), "Max open files")[3]
        most_open = float(limit.replace("unlimited", "inf"))
    except (OSError, ValueError):
        return []
    ticks_per_s, page_bytes = system.CLOCK_TICKS_PER_S, system.PAGE_BYTES
    cpu_s = (int(stat[_UTIME]) + int(stat[_STIME])) / ticks_per_s
    started_s = boot_s + int(stat[_START]) / ticks_per_s
    rss_bytes, vsize_bytes = int(stat[_RSS]) * page_bytes, int(stat[_VSIZE])
    rows = [
        ("cpu_seconds_total", "counter", "CPU time of the process, in seconds", cpu_s),
        ("start_time_seconds", "gauge", "When the process began, in seconds since 1970", started_s),
        ("resident_memory_bytes", "gauge", "Memory the process holds, in bytes", rss_bytes),
        ("virtual_memory_bytes", "gauge", "Addresses the process has taken, in bytes", vsize_bytes),
        ("open_fds", "gauge", "Open files and sockets", open_count),
        ("max_fds", "gauge", "Files and sockets that may be open", most_open),
    ]
    return [
        Family(
            f"process_{name}",
            kind,
            help,
            [("", value)],
            "least" if name == "start_time_seconds" else None,
        )
        for name, kind, help, value in rows
    ]


def _line(text: str, start: str) -> list[str]:
    """Return the words of the one line in `text` that begins with `start`."""
    [line] = [line for line in text.splitlines() if line.startswith(start)]
    return line.split()
