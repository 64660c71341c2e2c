import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from inferd.ui.figures.sampler import ProcessMeter

TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


def write(proc, name, *, cpu_ticks=0, pages=0):
    folder = proc / name
    folder.mkdir(exist_ok=True)
    fields = ["S", *["0"] * 10, str(cpu_ticks // 2), str(cpu_ticks - cpu_ticks // 2)]
    fields += [*["0"] * 8, str(pages)]
    (folder / "stat").write_text(f"1 (a ) (b) {' '.join(fields)} 0 0")


class Clock:
    def __init__(self):
        self.now = 5.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_memory_is_that_of_the_process_and_its_workers(tmp_path, clock):
    write(tmp_path, "self", pages=100)
    write(tmp_path, "7", pages=20)
    write(tmp_path, "8", pages=3)
    machine = ProcessMeter(tmp_path, clock)
    assert machine.memory == 100 * PAGE
    machine.look([7, 8, 9, 0])
    assert machine.memory == 123 * PAGE
    assert (machine.memory_of(7), machine.memory_of(9)) == (20 * PAGE, 0)


def test_cpu_is_what_was_used_since_the_last_look(tmp_path, clock):
    write(tmp_path, "7", cpu_ticks=50)
    machine = ProcessMeter(tmp_path, clock)
    machine.look([7])
    clock.now += 2.0
    write(tmp_path, "7", cpu_ticks=50 + 3 * TICKS)
    own_s = time.process_time()
    machine.look([7])
    assert machine.cpu == pytest.approx(1.5, abs=time.process_time() - own_s + 0.1)
    clock.now += 1.0
    machine.look([])
    assert machine.cpu < 1.0
    machine.look([])  # no time has passed
    assert machine.cpu == 0.0


def test_without_proc_only_cpu_is_known(tmp_path, clock):
    machine = ProcessMeter(tmp_path / "none", clock)
    clock.now += 0.5
    machine.look([1])
    assert machine.memory == 0
    assert machine.cpu > 0


def test_a_real_worker_is_seen(clock):
    program = "import sys\nx = bytearray(50 << 20)\nprint('ready', flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        machine = ProcessMeter(Path("/proc"), clock)
        alone = machine.memory
        clock.now += 100.0  # so that what this test takes itself is next to nothing
        machine.look([child.pid])
        assert machine.memory - alone > 40 << 20
        child.stdin.close()
