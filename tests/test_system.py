import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from inferd import system

ALL = """
import json, sys
from inferd import system
json.dump({name: bool(value) for name, value in vars(system).items() if name.isupper()}, sys.stdout)
"""


def found(program, without=""):
    """What `program` prints where INFERD_WITHOUT is `without`."""
    environ = os.environ | {"INFERD_WITHOUT": without}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout


NAMES = {
    "uvloop": {"UVLOOP"},
    "low-water": {"LOW_WATER"},
    "unix-sockets": {"UNIX_SOCKETS", "WORKERS"},
    "seqpacket": {"SEQPACKET", "SEVERAL"},
    "memfd": {"MEMFD"},
    "pidfd": {"PIDFD"},
    "poll": {"POLL", "WORKERS"},
    "users": {"USERS"},
    "affinity": {"AFFINITY"},
    "dev-shm": {"SHM_FOLDER"},
    "groups": {"GROUPS", "WORKERS"},
}


@pytest.mark.parametrize("name", NAMES)
def test_each_thing_can_be_done_without(name):
    whole, less = json.loads(found(ALL)), json.loads(found(ALL, name))
    assert {one for one in whole if whole[one] and not less[one]} == NAMES[name]


def test_everything_that_can_be_done_without_is_tested_here():
    source = Path(system.__file__).read_text(encoding="utf-8")
    assert set(re.findall(r'_has\("([a-z-]+)"', source)) == {
        *NAMES,
        "landlock",
    }  # see test_confined.py


@pytest.mark.parametrize("without", ["", "memfd"])
def test_a_file_without_a_path_can_grow(without):
    program = """
import os
from inferd.system import anonymous_file
one = anonymous_file("n" * 300, 4096)
os.ftruncate(one, 8192)
print(os.fstat(one).st_size, os.get_inheritable(one))
"""
    assert found(program, without) == "8192 False\n"


@pytest.mark.parametrize("without", ["", "pidfd"])
def test_the_end_of_a_process_is_an_event(without):
    program = """
import os, select, subprocess, sys
from inferd.system import end_of
process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
end = end_of(process)
poll = select.poll()
poll.register(end, select.POLLIN)
print(poll.poll(0))
process.stdin.close()
print(len(poll.poll(30_000)), process.wait())
os.close(end)
"""
    assert found(program, without) == "[]\n1 1\n"


def test_a_lock_is_there_until_the_file_is_closed(tmp_path):
    path = tmp_path / "file"
    path.touch()
    one, other = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)
    system.lock_file(one, is_shared=True)
    system.lock_file(other, is_shared=True)
    with pytest.raises(BlockingIOError):
        system.lock_file(other)
    os.close(one)
    system.lock_file(other)
    os.close(other)


def test_a_file_of_this_user_is_private_unless_others_may_write_it(tmp_path):
    for mode, is_private in ((0o700, True), (0o755, True), (0o770, False), (0o702, False)):
        tmp_path.chmod(mode)
        assert system.is_private(tmp_path.stat()) == is_private
    assert not system.is_private(os.stat_result((0o700, 0, 0, 0, os.geteuid() + 1, 0, 0, 0, 0, 0)))


def test_the_most_memory_is_more_than_python_needs_and_less_than_the_machine_has():
    assert 5 << 20 < system.peak_memory_bytes() < 1 << 45


def test_how_a_process_ended_is_told_by_its_exit_code():
    assert [system.how_ended(code) for code in (0, 3, -9, -77)] == [
        *("exit code 0", "exit code 3", "SIGKILL", "signal 77")
    ]
