"""Gpus: metrics of the machine's NVIDIA GPUs, from their driver's library (NVML).

The library comes with the driver; without it there are no GPUs. It is called through ctypes: ten
functions do not need a package.
"""

import ctypes
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

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
            msg = f"{LIBRARY} has no {function}"
            raise NvmlError(msg) from error
        # 0 is NVML_SUCCESS.
        if status != 0:
            msg = f"{function} of {LIBRARY} returned {status}"
            raise NvmlError(msg)


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
