"""CUDA regions over a driver that keeps its "GPU memory" in this process.

Its functions have the types libcuda's header gives them, so what crosses that border is real.
"""

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p

import pytest

from inferd.core.metadata import CudaRegionStatus
from inferd.errors import InvalidRequest, RegionFailed, Unavailable
from inferd.shm.cuda import CudaDriver, CudaRegion, cuda_driver
from inferd.shm.regions import Regions

INVALID_VALUE, INVALID_HANDLE = 1, 400
HANDLE = b"handle\0of\0memory".ljust(64, b"\xff")


class Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * 64),)


class Gpu:
    """Stands in for libcuda: one device, one allocation of 64 bytes, shared as HANDLE from 16 on.

    `opened` and `depth` count handles and pushed contexts. `fails` is a function's name that
    returns an error.
    """

    def __init__(self, count=1):
        self.memory = (ctypes.c_ubyte * 64)()
        self.base = ctypes.addressof(self.memory)
        self.opened = self.depth = 0
        self.fails = ""
        self.cuInit = self._function("cuInit", lambda flags: flags, c_uint)
        self.cuDeviceGetCount = self._function(
            "cuDeviceGetCount", lambda into: self._put(into, count), POINTER(c_int)
        )
        self.cuDeviceGet = self._function(
            "cuDeviceGet", lambda into, device: self._put(into, device + 7), POINTER(c_int), c_int
        )
        self.cuDevicePrimaryCtxRetain = self._function(
            "cuDevicePrimaryCtxRetain",
            lambda into, device: self._put(into, 0x1000 + device),
            *(POINTER(c_void_p), c_int),
        )
        self.cuCtxPushCurrent_v2 = self._function(
            "cuCtxPushCurrent_v2", lambda context: self._push(context == 0x1007, 1), c_void_p
        )
        self.cuCtxPopCurrent_v2 = self._function(
            "cuCtxPopCurrent_v2", lambda _: self._push(self.depth, -1), POINTER(c_void_p)
        )
        self.cuIpcOpenMemHandle_v2 = self._function(
            "cuIpcOpenMemHandle_v2", self._open, POINTER(c_uint64), Handle, c_uint
        )
        self.cuIpcCloseMemHandle = self._function("cuIpcCloseMemHandle", self._close, c_uint64)
        self.cuMemGetAddressRange_v2 = self._function(
            "cuMemGetAddressRange_v2",
            lambda base, size, _: self._put(base, self.base) + self._put(size, 64),
            *(POINTER(c_uint64), POINTER(c_size_t), c_uint64),
        )
        copy = {"cuMemcpyDtoH_v2": (c_void_p, c_uint64), "cuMemcpyHtoD_v2": (c_uint64, c_void_p)}
        for name, types in copy.items():
            setattr(self, name, self._function(name, self._copy, *types, c_size_t))
        self._texts = []
        self.cuGetErrorName = CFUNCTYPE(c_int, c_int, POINTER(c_char_p))(self._name)

    def _function(self, name, body, *types):
        def call(*args):
            return INVALID_VALUE if name == self.fails else int(body(*args))

        return CFUNCTYPE(c_int, *types)(call)

    def _put(self, into, value):
        into[0] = value
        return 0

    def _push(self, is_right, step):
        self.depth += step
        return not is_right

    def _open(self, into, handle, flags):
        if bytes(handle) != HANDLE or flags != 1 or not self.depth:
            return INVALID_HANDLE
        self.opened += 1
        return self._put(into, self.base + 16)

    def _close(self, address):
        self.opened -= 1
        return address != self.base + 16

    def _copy(self, into, source, size):
        ctypes.memmove(into, source, size)
        return not self.depth

    def _name(self, code, into):
        names = {INVALID_VALUE: b"CUDA_ERROR_INVALID_VALUE"}
        if code not in names:
            return INVALID_VALUE
        self._texts.append(c_char_p(names[code]))
        into[0] = self._texts[-1]
        return 0


@pytest.fixture
def gpu():
    made = Gpu()
    yield made
    assert made.depth == 0


@pytest.fixture
def regions(gpu):
    made = Regions(allowed=True, find_driver=lambda: CudaDriver(gpu))
    yield made
    made.close()
    assert gpu.opened == 0


def test_a_region_is_registered_reported_and_unregistered(regions, gpu):
    regions.add(regions.open_cuda("g", HANDLE, 0, 48))
    assert regions.cuda_status() == regions.cuda_status("g") == [CudaRegionStatus("g", 0, 48)]
    assert gpu.opened == 1
    regions.unregister(CudaRegion, "g")
    assert (regions.cuda_status(), gpu.opened) == ([], 0)


def test_what_a_span_holds_is_fetched_and_flushed(regions, gpu):
    regions.add(regions.open_cuda("g", HANDLE, 0, 48))
    gpu.memory[16 + 8] = 5
    span = regions.span("g", 8, 4)
    assert (span.is_copy, span.extent[1:], len(span.view)) == (True, (8, 12), 4)
    span.look()
    span.fetch()
    assert bytes(span.view) == b"\5\0\0\0"
    span.view[:] = b"abcd"
    span.flush(3)
    assert bytes(gpu.memory[24:28]) == b"abc\0"
    span.check()


def test_a_span_of_nothing_copies_nothing(regions, gpu):
    regions.add(regions.open_cuda("g", HANDLE, 0, 48))
    gpu.fails = "cuMemcpyHtoD_v2"
    span = regions.span("g", 48, 0)
    span.fetch()
    span.flush(0)


def test_a_copy_there_is_no_memory_for_is_refused(gpu):
    region = CudaRegion(CudaRegionStatus("g", 0, 1), HANDLE, CudaDriver(gpu))
    with pytest.raises(Unavailable, match="no memory for a copy"):
        region.span(0, 2**60)


def test_memory_stays_open_for_who_uses_it(regions, gpu):
    regions.add(regions.open_cuda("g", HANDLE, 0, 48))
    span = regions.span("g", 0, 4)
    regions.unregister(CudaRegion)
    assert gpu.opened == 1
    span.fetch()


def test_the_same_memory_under_two_names_is_the_same(regions):
    for name in "ab":
        regions.add(regions.open_cuda(name, HANDLE, 0, 48))
    assert regions.span("a", 0, 4).extent == regions.span("b", 0, 4).extent


def test_a_region_larger_than_its_memory_is_refused(regions, gpu):
    with pytest.raises(InvalidRequest, match="has 48 bytes, byte_size is 49"):
        regions.add(regions.open_cuda("g", HANDLE, 0, 49))
    assert gpu.opened == 0


@pytest.mark.parametrize("device_id", [-1, 1, 2**40])
def test_a_gpu_that_is_not_there_is_named(regions, device_id):
    with pytest.raises(InvalidRequest, match=f"no GPU {device_id} here"):
        regions.add(regions.open_cuda("g", HANDLE, device_id, 48))


@pytest.mark.parametrize("handle", [b"", HANDLE[:-1], HANDLE + b"x"])
def test_a_handle_of_another_size_is_none(regions, handle):
    with pytest.raises(InvalidRequest, match="a CUDA IPC handle has 64"):
        regions.add(regions.open_cuda("g", handle, 0, 48))


def test_a_handle_the_driver_refuses_is_refused(regions):
    with pytest.raises(RegionFailed, match="answers cuIpcOpenMemHandle_v2 with error 400"):
        regions.add(regions.open_cuda("g", bytes(64), 0, 48))


def test_memory_whose_size_is_unknown_is_closed_again(regions, gpu):
    gpu.fails = "cuMemGetAddressRange_v2"
    with pytest.raises(RegionFailed, match="CUDA_ERROR_INVALID_VALUE"):
        regions.add(regions.open_cuda("g", HANDLE, 0, 48))
    assert gpu.opened == 0


def test_copies_that_fail_are_reported(regions, gpu):
    regions.add(regions.open_cuda("g", HANDLE, 0, 48))
    span = regions.span("g", 0, 4)
    for gpu.fails, call in (("cuMemcpyDtoH_v2", span.fetch), ("cuMemcpyHtoD_v2", span.flush)):
        with pytest.raises(RegionFailed, match="CUDA_ERROR_INVALID_VALUE"):
            call(*[4] * (call == span.flush))


def test_a_machine_without_a_gpu_says_so():
    with pytest.raises(InvalidRequest, match="region: 'g', GPUs not supported"):
        CudaRegion(CudaRegionStatus("g", 0, 1), HANDLE, None)


def test_this_machine_has_a_driver_only_with_a_gpu():
    driver = cuda_driver()
    assert driver is None or driver.device_count() > 0


def test_a_closed_region_has_no_spans(gpu):
    region = CudaRegion(CudaRegionStatus("g", 0, 1), HANDLE, CudaDriver(gpu))
    region.close()
    with pytest.raises(InvalidRequest, match="no longer registered"):
        region.span(0, 1)
