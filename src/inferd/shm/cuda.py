"""CudaRegion: GPU memory that a client shares by its IPC handle, copied to and from the CPU.

Models take and return memory that the CPU can reach, so the parts of a region that a request uses
are copied to the CPU before the model runs, and back afterwards.
"""

import ctypes
import functools
from contextlib import AbstractContextManager, suppress
from typing import Any

import numpy as np

from inferd.compiled import override
from inferd.core.metadata import CudaRegionStatus
from inferd.core.request import Span
from inferd.errors import InvalidRequest, RegionFailed, Unavailable
from inferd.memory.libcuda import LIBRARY, Address, LibCuda, Signatures

HANDLE_BYTES = 64
"""The size of a cudaIpcMemHandle_t."""

_LAZY_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, the only flag


class _Handle(ctypes.Structure):
    """CUipcMemHandle, which is passed by value."""

    _fields_ = (("reserved", ctypes.c_char * HANDLE_BYTES),)


_SIGNATURES: Signatures = {
    "cuIpcOpenMemHandle_v2": (ctypes.POINTER(Address), _Handle, ctypes.c_uint),
    "cuIpcCloseMemHandle": (Address,),
    "cuMemGetAddressRange_v2": (ctypes.POINTER(Address), ctypes.POINTER(ctypes.c_size_t), Address),
    "cuMemcpyDtoH_v2": (ctypes.c_void_p, Address, ctypes.c_size_t),
    "cuMemcpyHtoD_v2": (Address, ctypes.c_void_p, ctypes.c_size_t),
}


class CudaDriver:
    """The libcuda calls that regions need. Each raises RegionFailed if the driver refuses it."""

    def __init__(self, library: Any) -> None:
        self._libcuda = libcuda = LibCuda(library, _SIGNATURES, RegionFailed)
        self._call = libcuda.call
        self.device_count = libcuda.device_count
        # Kept for good: if nothing else holds it, the driver would make the context anew each
        # time.
        self._contexts: dict[int, ctypes.c_void_p] = {}

    def open(self, handle: bytes, device_id: int) -> tuple[int, int]:
        """Return the address of the shared memory on the device, and its size in bytes."""
        address, base, size = Address(), Address(), ctypes.c_size_t()
        with self._on(device_id):
            given = _Handle.from_buffer_copy(handle)
            self._call("cuIpcOpenMemHandle_v2", ctypes.byref(address), given, _LAZY_PEER_ACCESS)
            try:
                self._call(
                    "cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), address
                )
            except RegionFailed:
                self._call("cuIpcCloseMemHandle", address)
                raise
        # The address may lie inside an allocation, of which only the rest is the client's to use.
        return address.value, base.value + size.value - address.value

    def close(self, address: int, device_id: int) -> None:
        """Undo `open`."""
        with self._on(device_id):
            self._call("cuIpcCloseMemHandle", address)

    def read(self, into: memoryview, address: int, device_id: int) -> None:
        """Fill `into` with the device memory at `address`."""
        if into:
            with self._on(device_id):
                self._call("cuMemcpyDtoH_v2", _address_of(into), address, len(into))

    def write(self, data: memoryview, address: int, device_id: int) -> None:
        """Write `data` to the device memory at `address`."""
        if data:
            with self._on(device_id):
                self._call("cuMemcpyHtoD_v2", address, _address_of(data), len(data))

    def _on(self, device_id: int) -> AbstractContextManager[None]:
        """Make the device's context current in this thread."""
        context = self._contexts.get(device_id)
        if context is None:
            _, context = self._libcuda.retain(device_id)
            self._contexts[device_id] = context
        return self._libcuda.current(context)


@functools.cache
def cuda_driver() -> CudaDriver | None:
    """Return this machine's driver, None if there is no GPU; looked up once per process."""
    try:
        driver = CudaDriver(ctypes.CDLL(LIBRARY))
        return driver if driver.device_count() else None
    except (OSError, AttributeError, RegionFailed):
        return None


class CudaRegion:
    """A part of a GPU's memory, registered under the client's name for it.

    Raises InvalidRequest for an invalid handle or device, if there is no GPU or if the memory is
    smaller than `status.size_bytes`, RegionFailed if it cannot be opened.
    """

    def __init__(self, status: CudaRegionStatus, handle: bytes, driver: CudaDriver | None) -> None:
        self.status = status
        if len(handle) != HANDLE_BYTES:
            raise InvalidRequest(
                f"raw_handle of shared memory region '{status.name}' has {len(handle)} bytes, "
                f"a CUDA IPC handle has {HANDLE_BYTES}"
            )
        if driver is None:
            raise InvalidRequest(
                f"failed to register CUDA shared memory region: '{status.name}', GPUs not "
                f"supported: this server finds none"
            )
        count = driver.device_count()
        if not 0 <= status.device_id < count:
            msg = f"there is no GPU {status.device_id} here, device_id goes from 0 to {count - 1}"
            raise InvalidRequest(msg)
        memory = _GpuMemory(driver, handle, status.device_id)
        if status.size_bytes > memory.size_bytes:
            raise InvalidRequest(
                f"the memory of shared memory region '{status.name}' has {memory.size_bytes} "
                f"bytes, byte_size is {status.size_bytes}"
            )
        self._memory: _GpuMemory | None = memory
        self.spans: dict[tuple[int, int], Span] = {}
        """Always empty: each span is a copy and cannot be shared."""

    def span(self, offset: int, size_bytes: int) -> Span:
        """Return `size_bytes` from `offset`, which must lie inside the region.

        Raises InvalidRequest if the region has been closed, Unavailable if there is no memory.
        """
        memory = self._memory
        if memory is None:  # just unregistered by another thread
            msg = f"shared memory region '{self.status.name}' is no longer registered"
            raise InvalidRequest(msg)
        try:
            return CudaSpan(memory, offset, size_bytes)
        except MemoryError:
            msg = f"the server has no memory for a copy of {size_bytes} bytes of GPU memory"
            raise Unavailable(msg) from None

    def close(self) -> None:
        """Release the memory; it is closed once no request uses it any more."""
        self._memory = None


class CudaSpan(Span):
    """See Span: `view` is a copy; `fetch` and `flush` raise RegionFailed if they cannot copy."""

    def __init__(self, gpu: "_GpuMemory", offset: int, size_bytes: int) -> None:
        # Not a bytearray: that would touch all of it, even if an output fills only a little.
        view = np.empty(size_bytes, np.uint8).data
        memory = (-1, gpu.device_id, gpu.address)  # no file system is number -1
        super().__init__(view, (memory, offset, offset + size_bytes), gpu, is_copy=True)
        self._gpu = gpu
        self._address = gpu.address + offset

    @override
    def fetch(self) -> None:
        self._gpu.driver.read(self.view, self._address, self._gpu.device_id)

    @override
    def flush(self, size_bytes: int) -> None:
        self._gpu.driver.write(self.view[:size_bytes], self._address, self._gpu.device_id)


class _GpuMemory:
    """An opened handle, closed once neither the region nor a span refers to it."""

    def __init__(self, driver: CudaDriver, handle: bytes, device_id: int) -> None:
        self.driver = driver
        self.device_id = device_id
        self.address, self.size_bytes = driver.open(handle, device_id)

    def __del__(self) -> None:
        with suppress(AttributeError, RegionFailed):  # never opened; the GPU has gone
            self.driver.close(self.address, self.device_id)


def _address_of(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))
