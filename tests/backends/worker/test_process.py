"""Worker processes that cannot be started; those that can are played in test_host and others."""

import subprocess
import sys
from pathlib import Path

import pytest

from inferd.backends.worker.environments.environment import Environment
from inferd.backends.worker.process import ON_PATH, Sizes, WorkerProcess
from inferd.errors import BackendFailed

SMALL = Sizes(arena=1 << 16, most=1 << 16)


def ignore(_line, _is_error):
    pass


def test_a_python_that_is_not_there_has_ended_at_once():
    process = WorkerProcess("m", Environment(Path("/no/such/python")), SMALL, ignore)
    with pytest.raises(BackendFailed, match="model 'm': python cannot be started: No such file"):
        process.start()
    assert process.has_ended.is_set()


ALONE = """
import contextlib, os, resource
from inferd.backends.worker.environments.environment import Environment
from inferd.backends.worker.process import WorkerProcess, Sizes

def descriptors():
    with contextlib.suppress(OSError):
        while True:
            yield os.dup(0)

resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
taken = list(descriptors())
for _ in range(3):  # room for the socket pair, and for one of the two memories
    os.close(taken.pop())
try:
    WorkerProcess("m", Environment(), Sizes(1 << 16), print)
except OSError as error:
    print(error.strerror)
print(len(list(descriptors())))
"""


def test_a_process_that_finds_no_descriptors_takes_none():
    """In a process of its own: no other thread here is to find none."""
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["Too many open files", "3"], done.stderr


IMPORTS = """
import sys
sys.path = [sys.argv[1]] + [one for one in sys.path if "site-packages" not in one]
import inferd_worker.packet
try:
    import inferd
except ModuleNotFoundError as error:
    print(error.name)
"""


def test_a_worker_finds_its_own_modules_and_no_others_that_are_installed_with_them():
    command = [sys.executable, "-S", "-c", IMPORTS, str(ON_PATH)]
    done = subprocess.run(command, capture_output=True, text=True, env={})
    assert done.stdout.splitlines() == ["inferd"], done.stderr
