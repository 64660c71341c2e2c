"""Device: the few calls of NVIDIA's driver that a plan needs; all code that needs a GPU is here.

TensorRT must not be used before `find_device` has found a GPU: without one its runtime
ends the process when given a plan.
"""

import ctypes
from contextlib import AbstractContextManager
from typing import Any

from inferd.errors import BackendFailed
from inferd.memory.libcuda import LIBRARY, Address, LibCuda, Pointer, Signatures

_SIGNATURES: Signatures = {
    "cuDevicePrimaryCtxRelease_v2": (ctypes.c_int,),
    "cuStreamCreate": (ctypes.POINTER(Pointer), ctypes.c_uint),
    "cuStreamSynchronize": (Pointer,),
    "cuStreamDestroy_v2": (Pointer,),
    "cuMemAlloc_v2": (ctypes.POINTER(Address), ctypes.c_size_t),
    "cuMemFree_v2": (Address,),
    "cuMemHostAlloc": (ctypes.POINTER(Pointer), ctypes.c_size_t, ctypes.c_uint),
    "cuMemFreeHost": (Pointer,),
    "cuMemcpyHtoDAsync_v2": (Address, Pointer, ctypes.c_size_t, Pointer),
    "cuMemcpyDtoHAsync_v2": (Pointer, Address, ctypes.c_size_t, Pointer),
}

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: does not synchronize with the default stream


def find_device(device_id: int, load: Any = ctypes.CDLL) -> "Device | None":
    """Return GPU `device_id`, or None without a driver or such a GPU."""
    try:
        libcuda = LibCuda(load(LIBRARY), _SIGNATURES, BackendFailed)
        return Device(libcuda, device_id) if device_id < libcuda.device_count() else None
    except (OSError, BackendFailed):
        return None


class Device:
    """An NVIDIA GPU, used through its primary context, as CUDA's own runtime does.

    Addresses are numbers; every call but `current` is made inside `current`.
    """

    def __init__(self, libcuda: LibCuda, device_id: int) -> None:
        self._driver = libcuda
        # TensorRT uses the primary context, so memory allocated in
        # another one would not be its own.
        self._device, self._context = libcuda.retain(device_id)

    def current(self) -> AbstractContextManager[None]:
        """Return a context in which the calling thread uses this GPU."""
        # The current context is the thread's, and any of a pool of threads may run an instance.
        return self._driver.current(self._context)

    def stream(self) -> int:
        """Return a new stream."""
        made = Pointer()
        self._driver.call("cuStreamCreate", ctypes.byref(made), _NON_BLOCKING)
        return made.value or 0

    def wait(self, stream: int) -> None:
        """Wait until all work on `stream` is done. Releases the interpreter lock meanwhile."""
        self._driver.call("cuStreamSynchronize", stream)

    def close_stream(self, stream: int) -> None:
        """Free a stream."""
        self._driver.call("cuStreamDestroy_v2", stream)

    def allocate(self, size_bytes: int) -> int:
        """Allocate GPU memory; return its address."""
        made = Address()
        # cuMemAlloc refuses 0 bytes, and TensorRT a tensor without an address.
        self._driver.call("cuMemAlloc_v2", ctypes.byref(made), max(1, size_bytes))
        return made.value

    def free(self, address: int) -> None:
        """Free memory from `allocate`."""
        self._driver.call("cuMemFree_v2", address)

    def allocate_host(self, size_bytes: int) -> int:
        """Allocate pinned CPU memory; return its address."""
        made = Pointer()
        self._driver.call("cuMemHostAlloc", ctypes.byref(made), max(1, size_bytes), 0)
        return made.value or 0

    def free_host(self, address: int) -> None:
        """Free memory from `allocate_host`."""
        self._driver.call("cuMemFreeHost", address)

    def copy_in(self, to: int, host: int, size_bytes: int, stream: int) -> None:
        """Enqueue a copy from CPU to GPU on `stream`."""
        self._driver.call("cuMemcpyHtoDAsync_v2", to, host, size_bytes, stream)

    def copy_out(self, host: int, source: int, size_bytes: int, stream: int) -> None:
        """Enqueue a copy from GPU to CPU on `stream`."""
        self._driver.call("cuMemcpyDtoHAsync_v2", host, source, size_bytes, stream)

    def close(self) -> None:
        """Release the GPU."""
        self._driver.call("cuDevicePrimaryCtxRelease_v2", self._device)
