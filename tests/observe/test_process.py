import os
import time

import pytest

from inferd.observe.devices import process_families


def test_the_process_tells_of_itself():
    found = {family.name: family for family in process_families()}
    values = {name: family.samples[0][1] for name, family in found.items()}
    assert values["process_cpu_seconds_total"] == pytest.approx(time.process_time(), abs=1)
    assert found["process_cpu_seconds_total"].kind == "counter"
    assert 0 < values["process_start_time_seconds"] <= time.time() + 1
    assert values["process_resident_memory_bytes"] > 10**6
    assert values["process_virtual_memory_bytes"] > values["process_resident_memory_bytes"]
    assert 3 <= values["process_open_fds"] <= len(os.listdir("/proc/self/fd")) + 5
    assert values["process_max_fds"] > 3


def write(folder, limit):
    own = folder / "self"
    (own / "fd").mkdir(parents=True)
    (own / "fd" / "0").touch()
    fields = ["S", *map(str, range(1, 51))]
    (own / "stat").write_text(f"7 (a (name) ) {' '.join(fields)}")
    (own / "limits").write_text(f"Limit   Soft Limit\nMax open files   {limit}   4096   files\n")
    (folder / "stat").write_text("cpu 1 2\nbtime 1000\n")
    return folder


@pytest.mark.parametrize(("limit", "reported"), [("1024", 1024), ("unlimited", float("inf"))])
def test_fields_are_found_behind_any_name(tmp_path, limit, reported):
    families = process_families(write(tmp_path, limit))
    values = {family.name: family.samples[0][1] for family in families}
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    assert values == {
        "process_cpu_seconds_total": (11 + 12) / ticks,
        "process_start_time_seconds": 1000 + 19 / ticks,
        "process_virtual_memory_bytes": 20,
        "process_resident_memory_bytes": 21 * page,
        "process_open_fds": 1,
        "process_max_fds": reported,
    }


def test_a_system_that_tells_nothing_has_no_metrics(tmp_path):
    assert process_families(tmp_path) == []
    (write(tmp_path, "1024") / "stat").write_text("cpu 1 2\n")
    assert process_families(tmp_path) == []
