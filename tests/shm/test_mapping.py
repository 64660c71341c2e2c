"""The guard, in this process and, where a fault is to be deadly, in another."""

import mmap
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from inferd.shm.mapping import guard

PAGE = mmap.PAGESIZE

DEADLY = """
import faulthandler, mmap, os, signal, tempfile
from inferd.shm.mapping import guard
file = tempfile.TemporaryFile()
file.truncate(8 * mmap.PAGESIZE)
memory = mmap.mmap(file.fileno(), 0)
guard().watch(1 << 20, 4096)
"""


@pytest.fixture
def watched(shared):
    """watched(size) is an object, its mapping as an array, and the watch over it."""
    watches = []

    def make(size):
        given = shared(size)
        array = np.frombuffer(given.memory, np.uint8)
        array[:] = 7
        watches.append(guard().watch(array.ctypes.data, size))
        return given, array, watches[-1]

    yield make
    for watch in watches:
        guard().forget(watch)


def test_what_is_gone_reads_as_zeros_and_is_marked(watched):
    given, array, watch = watched(4 * PAGE)
    given.resize(PAGE)
    assert array[:PAGE].sum() == 7 * PAGE
    assert not watch.is_lost
    assert array.sum() in (0, 7 * PAGE)  # what was read before the fault stays read
    assert watch.is_lost
    assert array.sum() == 0


def test_writing_to_what_is_gone_reaches_nobody(watched):
    given, array, watch = watched(2 * PAGE)
    given.resize(0)
    array[:] = 5
    assert watch.is_lost
    given.resize(2 * PAGE)
    assert given.path.read_bytes() == bytes(2 * PAGE)


def test_a_fault_costs_its_own_range_only(watched):
    given, array, watch = watched(PAGE)
    _, other_array, other = watched(PAGE)
    given.resize(0)
    assert array.sum() == 0
    assert (watch.is_lost, other.is_lost) == (True, False)
    assert other_array.sum() == 7 * PAGE


def test_threads_may_fault_at_the_same_time(watched):
    given, array, watch = watched(256 * PAGE)
    barrier = threading.Barrier(9)

    def work():
        barrier.wait()
        for _ in range(20):
            array.sum()  # without the interpreter's lock
            bytes(memoryview(given.memory))  # with it

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    barrier.wait()
    given.resize(PAGE)
    for thread in threads:
        thread.join()
    assert watch.is_lost


def test_a_range_is_forgotten(watched):
    _, _, watch = watched(PAGE)
    guard().forget(watch)
    guard().forget(watch)
    assert watch.start not in guard()._watched


def ended_by(code):
    return subprocess.run(
        [sys.executable, "-c", DEADLY + code], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    "code",
    [
        "file.truncate(0); memory[0]",
        "os.kill(os.getpid(), signal.SIGBUS)",
        "faulthandler.enable(); guard().watch(2 << 20, 4096); file.truncate(0); memory[0]",
    ],
    ids=["a fault elsewhere", "a signal from outside", "somebody else had the signal meanwhile"],
)
def test_what_is_not_ours_is_as_deadly_as_ever(code):
    assert ended_by(code).returncode == -signal.SIGBUS


def test_who_had_the_signal_before_still_gets_what_is_not_ours():
    code = DEADLY.replace("guard().watch", "faulthandler.enable(); guard().watch")
    ended = subprocess.run(
        [sys.executable, "-c", code + "file.truncate(0); memory[0]"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in ended.stderr


def test_a_range_survives_somebody_taking_the_signal_before_the_next_one_is_watched():
    code = """
import ctypes
def address(memory):
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
faulthandler.enable()
watch = guard().watch(address(memory), 8 * mmap.PAGESIZE)
file.truncate(0)
print(memory[0], watch.is_lost)
"""
    ended = ended_by(code)
    assert (ended.returncode, ended.stdout) == (0, "0 True\n"), ended.stderr
