import pytest

from inferd.observe.devices import Cpu, Devices
from inferd.observe.family import Family

MEMORY = "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  400 kB\n"


class Clock:
    """Seconds that pass when somebody says so."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


class Meter:
    """A device that tells how often it was asked; with `uuids` it stands for the GPUs."""

    def __init__(self, uuids=()):
        self.requested = 0
        self._uuids = list(uuids)

    def families(self):
        self.requested += 1
        return [Family("asked", "gauge", "How often", [("", self.requested)])]

    def uuids(self):
        return self._uuids


@pytest.fixture
def proc(tmp_path):
    """proc(busy, idle) writes what Linux tells, and returns where."""

    def write(busy, idle):
        (tmp_path / "stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 0 7 7\ncpu0 1 2\n")
        (tmp_path / "meminfo").write_text(MEMORY)
        return tmp_path

    return write


def values(families):
    return {family.name: family.samples[0][1] for family in families}


def test_the_processors_are_as_busy_as_since_the_last_measurement(proc):
    cpu = Cpu(proc(100, 100))
    proc(130, 110)
    assert values(cpu.families())["nv_cpu_utilization"] == 0.75
    proc(130, 210)
    assert values(cpu.families())["nv_cpu_utilization"] == 0.0


def test_measured_again_at_once_they_are_as_busy_as_before(proc):
    cpu = Cpu(proc(100, 100))
    proc(150, 150)
    assert [values(cpu.families())["nv_cpu_utilization"] for _ in range(2)] == [0.5, 0.5]


def test_used_memory_is_what_programs_cannot_have(proc):
    found = values(Cpu(proc(1, 1)).families())
    assert found["nv_cpu_memory_total_bytes"] == 1000 * 1024
    assert found["nv_cpu_memory_used_bytes"] == 600 * 1024


def test_this_machine_has_processors_and_memory():
    found = values(Cpu().families())
    assert 0 <= found["nv_cpu_utilization"] <= 1
    assert 0 < found["nv_cpu_memory_used_bytes"] < found["nv_cpu_memory_total_bytes"]


@pytest.mark.parametrize("name", ["stat", "meminfo"])
def test_a_system_that_tells_nothing_has_no_metrics(proc, name):
    folder = proc(1, 1)
    (folder / name).write_text("nonsense\n")
    assert Cpu(folder).families() == []


def test_devices_are_measured_again_when_the_interval_has_passed():
    clock, meter = Clock(), Meter()
    devices = Devices(meter, None, 2.0, clock)
    reported = []
    for _ in range(4):
        reported.append(values(devices.families())["asked"])
        clock.now_s += 1.0
    assert reported == [1, 1, 2, 2]


def test_devices_without_an_option_are_not_measured():
    assert Devices(None, None, 1.0).families() == []


@pytest.mark.parametrize(
    ("uuids", "known"), [([], ""), (["GPU-1"], "GPU-1"), (["GPU-1", "GPU-2"], "")]
)
def test_the_gpu_of_models_is_known_where_there_is_one(uuids, known):
    devices = Devices(None, Meter(uuids), 1.0)
    assert devices.gpu_uuid == ""
    devices.families()
    assert devices.gpu_uuid == known
