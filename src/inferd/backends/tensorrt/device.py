"""Device: the few calls of NVIDIA's driver that a plan needs; all code that needs a GPU is here.

The driver's own library is called directly, as it exists wherever there is a GPU and needs no
package. TensorRT must not be used before `find_device` has found a GPU: without one its runtime
ends the process when given a plan.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from inferd.errors import BackendFailed

# The driver's name for users; libcuda.so without a version comes with development packages only.
_LIBRARY = "libcuda.so.1"
_Address = ctypes.c_uint64
_Pointer = ctypes.c_void_p

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDeviceGetCount": (ctypes.POINTER(ctypes.c_int),),
    "cuDeviceGet": (ctypes.POINTER(ctypes.c_int), ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (ctypes.POINTER(_Pointer), ctypes.c_int),
    # _v2 and the like are what NVIDIA's headers make of the plain names; the plain symbols are ABIs
    # of before 2010, some with 32-bit sizes.
    "cuDevicePrimaryCtxRelease_v2": (ctypes.c_int,),
    "cuCtxPushCurrent_v2": (_Pointer,),
    "cuCtxPopCurrent_v2": (ctypes.POINTER(_Pointer),),
    "cuStreamCreate": (ctypes.POINTER(_Pointer), ctypes.c_uint),
    "cuStreamSynchronize": (_Pointer,),
    "cuStreamDestroy_v2": (_Pointer,),
    "cuMemAlloc_v2": (ctypes.POINTER(_Address), ctypes.c_size_t),
    "cuMemFree_v2": (_Address,),
    "cuMemHostAlloc": (ctypes.POINTER(_Pointer), ctypes.c_size_t, ctypes.c_uint),
    "cuMemFreeHost": (_Pointer,),
    "cuMemcpyHtoDAsync_v2": (_Address, _Pointer, ctypes.c_size_t, _Pointer),
    "cuMemcpyDtoHAsync_v2": (_Pointer, _Address, ctypes.c_size_t, _Pointer),
    "cuGetErrorName": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
}

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: does not synchronize with the default stream


def find_device(device_id: int, load: Any = ctypes.CDLL) -> "Device | None":
    """Return GPU `device_id`, or None without a driver or such a GPU."""
    try:
        library = load(_LIBRARY)
    except OSError:
        return None
    driver = _Driver(library)
    try:
        driver.call("cuInit", 0)
        count = ctypes.c_int()
        driver.call("cuDeviceGetCount", ctypes.byref(count))
        return Device(driver, device_id) if device_id < count.value else None
    except BackendFailed:
        return None


class _Driver:
    def __init__(self, library: Any) -> None:
        self._library = library
        for name, types in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = types, ctypes.c_int

    def call(self, name: str, *args: Any) -> None:
        """Call a function of the driver. Raises BackendFailed with the driver's error name."""
        # ctypes releases the interpreter's lock during the call.
        if status := getattr(self._library, name)(*args):
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(status, ctypes.byref(text))
            word = (text.value or b"an unknown error").decode()
            msg = f"the GPU's driver answers {name} with {word}"
            raise BackendFailed(msg)


class Device:
    """An NVIDIA GPU, used through its primary context, as CUDA's own runtime does.

    Addresses are numbers; every call but `current` is made inside `current`.
    """

    def __init__(self, driver: _Driver, device_id: int) -> None:
        self._driver = driver
        self._device = ctypes.c_int()
        self._context = _Pointer()
        driver.call("cuDeviceGet", ctypes.byref(self._device), device_id)
        # TensorRT uses the primary context, so memory allocated in
        # another one would not be its own.
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Return a context in which the calling thread uses this GPU."""
        # The current context is the thread's, and any of a pool of threads may run an instance.
        self._driver.call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self._driver.call("cuCtxPopCurrent_v2", ctypes.byref(_Pointer()))

    def stream(self) -> int:
        """Return a new stream."""
        made = _Pointer()
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
        made = _Address()
        # cuMemAlloc refuses 0 bytes, and TensorRT a tensor without an address.
        self._driver.call("cuMemAlloc_v2", ctypes.byref(made), max(1, size_bytes))
        return made.value

    def free(self, address: int) -> None:
        """Free memory from `allocate`."""
        self._driver.call("cuMemFree_v2", address)

    def allocate_host(self, size_bytes: int) -> int:
        """Allocate pinned CPU memory; return its address."""
        made = _Pointer()
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
