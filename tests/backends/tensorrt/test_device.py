"""The driver's calls, on a library that is a fake."""

import pytest

from inferd.backends.tensorrt.device import find_device
from inferd.errors import BackendFailed


class Function:
    """A function of a C library: it notes its calls, fills in what it points to, and answers."""

    def __init__(self, name, calls, answers):
        self.name, self.calls, self.answers = name, calls, answers

    def __call__(self, *args):
        self.calls.append(self.name)
        status, value = self.answers.get(self.name, (0, 0))
        if value:
            args[-1 if self.name == "cuGetErrorName" else 0]._obj.value = value
        return status


class Library:
    """A C library that has any function."""

    def __init__(self, calls, answers):
        self._given = calls, answers

    def __getattr__(self, name):
        return Function(name, *self._given)


@pytest.fixture
def library():
    """library(name=(status, value)) is a function that loads a driver of two GPUs."""

    def make(**answers):
        answers = {"cuDeviceGetCount": (0, 2), "cuGetErrorName": (0, b"CUDA_ERROR_X"), **answers}
        calls = []
        return (lambda name: Library(calls, answers)), calls

    return make


@pytest.mark.parametrize(
    ("answers", "number"),
    [({"cuInit": (100, 0)}, 0), ({"cuDeviceGetCount": (0, 0)}, 0), ({}, 2)],
)
def test_no_gpu_is_no_error(library, answers, number):
    load, _ = library(**answers)
    assert find_device(number, load) is None


def test_a_gpu_that_is_there_is_used_and_left(library):
    load, calls = library(cuMemAlloc_v2=(0, 4096), cuStreamCreate=(0, 7))
    device = find_device(1, load)
    with device.current():
        assert (device.allocate(5), device.stream()) == (4096, 7)
        device.wait(7)
    device.close()
    assert calls[2:] == [
        "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuMemAlloc_v2",
        "cuStreamCreate", "cuStreamSynchronize", "cuCtxPopCurrent_v2",
        "cuDevicePrimaryCtxRelease_v2",
    ]  # fmt: skip


def test_a_refusal_has_the_drivers_name_for_it(library):
    load, calls = library(cuMemAlloc_v2=(2, 0))
    device = find_device(0, load)
    refused = pytest.raises(BackendFailed, match="answers cuMemAlloc_v2 with CUDA_ERROR_X")
    with refused, device.current():
        device.allocate(1)
    assert calls[-1] == "cuCtxPopCurrent_v2"
