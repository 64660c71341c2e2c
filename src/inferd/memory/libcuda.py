"""LibCuda: calls of NVIDIA's driver.

Its library is called directly: it is there wherever a GPU is, and needs no package.
"""

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from inferd.errors import InferdError

# The name for users; libcuda.so without a version comes with development packages only.
LIBRARY = "libcuda.so.1"

Address = ctypes.c_uint64
"""CUdeviceptr."""

Pointer = ctypes.c_void_p

Signatures = Mapping[str, tuple[object, ...]]
"""The types of arguments, by the name of the function.

_v2 and the like are what NVIDIA's headers make of the plain names; the plain symbols are ABIs of
before 2010, some with 32-bit sizes.
"""

_OF_ALL: Signatures = {
    "cuInit": (ctypes.c_uint,),
    "cuDeviceGetCount": (ctypes.POINTER(ctypes.c_int),),
    "cuDeviceGet": (ctypes.POINTER(ctypes.c_int), ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (ctypes.POINTER(Pointer), ctypes.c_int),
    "cuCtxPushCurrent_v2": (Pointer,),
    "cuCtxPopCurrent_v2": (ctypes.POINTER(Pointer),),
    "cuGetErrorName": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
}


class LibCuda:
    """The functions in `signatures`, and those that each user needs.

    Each call raises `error` with the driver's name for what it answered. Raises AttributeError for
    a `library` that lacks a function.
    """

    def __init__(self, library: Any, signatures: Signatures, error: type[InferdError]) -> None:
        self._library = library
        self._error = error
        for name, types in {**_OF_ALL, **signatures}.items():
            function = getattr(library, name)
            function.argtypes, function.restype = types, ctypes.c_int
        self.call("cuInit", 0)

    def call(self, name: str, *args: Any) -> None:
        """Call a function; ctypes releases the interpreter's lock meanwhile."""
        if status := getattr(self._library, name)(*args):
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(status, ctypes.byref(text))
            word = (text.value or b"").decode("ascii", "replace") or f"error {status}"
            raise self._error(f"the GPU's driver answers {name} with {word}")

    def device_count(self) -> int:
        """Return the number of GPUs."""
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def retain(self, device_id: int) -> tuple[ctypes.c_int, Pointer]:
        """Return a device and its primary context, the one that CUDA's own runtime uses."""
        device, context = ctypes.c_int(), Pointer()
        self.call("cuDeviceGet", ctypes.byref(device), device_id)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        return device, context

    @contextmanager
    def current(self, context: Pointer) -> Iterator[None]:
        """Make a context current in this thread, as calls about memory require."""
        self.call("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(Pointer()))
