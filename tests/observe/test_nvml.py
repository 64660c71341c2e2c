"""GPUs by a library that stands in for the driver's: it is called as that one is, by pointers."""

import ctypes
import logging

import pytest

from inferd.observe.devices import LIBRARY, GpuReading, Gpus

OK, NOT_SUPPORTED = 0, 3


class Driver:
    """Functions of NVML over two GPUs; those named in `missing` the library does not have."""

    def __init__(self, missing=(), init=OK, energy=OK):
        self.loaded = []
        self._missing = missing
        self._init = init
        self._energy = energy

    def __call__(self, name):
        self.loaded.append(name)
        return self

    def __getattr__(self, name):
        if not name.startswith("nvml") or name in self._missing:
            raise AttributeError(name)
        return getattr(self, f"_{name}")

    def _nvmlInit_v2(self):  # noqa: N802
        return self._init

    def _nvmlDeviceGetCount_v2(self, count):  # noqa: N802
        count._obj.value = 2
        return OK

    def _nvmlDeviceGetHandleByIndex_v2(self, index, handle):  # noqa: N802
        handle._obj.value = 0x1000 + index.value
        return OK

    def _nvmlDeviceGetUUID(self, handle, text, size):  # noqa: N802
        assert size.value == ctypes.sizeof(text)
        text.value = f"GPU-{handle.value:x}".encode()
        return OK

    def _nvmlDeviceGetName(self, handle, text, size):  # noqa: N802
        assert size.value == ctypes.sizeof(text)
        text.value = b"NVIDIA H100"
        return OK

    def _nvmlDeviceGetUtilizationRates(self, handle, rates):  # noqa: N802
        rates._obj.gpu, rates._obj.memory = handle.value - 0x1000 + 40, 99
        return OK

    def _nvmlDeviceGetMemoryInfo(self, handle, memory):  # noqa: N802
        memory._obj.total, memory._obj.free, memory._obj.used = 2**36, 2**35, 2**34
        return OK

    def _nvmlDeviceGetPowerUsage(self, handle, milliwatts):  # noqa: N802
        milliwatts._obj.value = 70_500
        return OK

    def _nvmlDeviceGetEnforcedPowerLimit(self, handle, milliwatts):  # noqa: N802
        milliwatts._obj.value = 700_000
        return OK

    def _nvmlDeviceGetTotalEnergyConsumption(self, handle, millijoules):  # noqa: N802
        millijoules._obj.value = 2**40
        return self._energy


def reported(gpus):
    return {family.name: (family.kind, family.samples) for family in gpus.families()}


def both(first, second):
    return [('gpu_uuid="GPU-1000"', first), ('gpu_uuid="GPU-1001"', second)]


def test_each_gpu_tells_all_six_metrics():
    assert reported(Gpus(Driver())) == {
        "nv_gpu_utilization": ("gauge", both(0.4, 0.41)),
        "nv_gpu_memory_total_bytes": ("gauge", both(2**36, 2**36)),
        "nv_gpu_memory_used_bytes": ("gauge", both(2**34, 2**34)),
        "nv_gpu_power_usage": ("gauge", both(70.5, 70.5)),
        "nv_gpu_power_limit": ("gauge", both(700.0, 700.0)),
        "nv_energy_consumption": ("counter", both(2**40 / 1000, 2**40 / 1000)),
    }


def test_the_library_is_opened_once_when_the_gpus_are_first_measured():
    driver = Driver()
    gpus = Gpus(driver)
    assert driver.loaded == []
    assert gpus.uuids() == ["GPU-1000", "GPU-1001"]
    gpus.families()
    assert driver.loaded == [LIBRARY]


@pytest.mark.parametrize(
    "driver",
    [
        Driver(energy=NOT_SUPPORTED),
        Driver(missing=["nvmlDeviceGetTotalEnergyConsumption"]),
    ],
)
def test_a_meter_a_gpu_does_not_have_is_left_out(driver):
    names = set(reported(Gpus(driver)))
    assert "nv_energy_consumption" not in names
    assert len(names) == 5


def test_a_machine_without_the_driver_has_no_gpus(caplog):
    def load(name):
        raise OSError(name)

    gpus = Gpus(load)
    assert (gpus.uuids(), gpus.families()) == ([], [])
    assert caplog.records == []


@pytest.mark.parametrize("driver", [Driver(init=9), Driver(missing=["nvmlInit_v2"])])
def test_a_driver_that_does_not_work_is_reported_once(driver, caplog):
    caplog.set_level(logging.INFO)
    gpus = Gpus(driver)
    assert gpus.families() == gpus.families() == []
    [record] = caplog.records
    assert "nvmlInit_v2" in record.getMessage()


def test_the_real_library_is_looked_for_where_the_system_has_them():
    assert all(family.name.startswith("nv_") for family in Gpus().families())


def test_the_share_of_memory_in_use_is_reported_each_gpu():
    gpus = Gpus(Driver())
    assert [gpus.memory_use(index) for index in (0, 1, 2, -1)] == [0.25, 0.25, None, None]
    assert Gpus(Driver(missing=["nvmlDeviceGetMemoryInfo"])).memory_use(0) is None


def test_what_each_gpu_does_now_can_be_read():
    one, other = Gpus(Driver()).readings()
    assert one == GpuReading("NVIDIA H100", 0.4, 2**34, 2**36)
    assert other.utilization == 0.41
    missing = ["nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUtilizationRates"]
    assert Gpus(Driver(missing=missing)).readings() == [GpuReading("GPU", None, None, None)] * 2
    assert Gpus(Driver(init=9)).readings() == []
