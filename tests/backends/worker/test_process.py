"""Worker processes that cannot be started; those that can are played in test_host and others."""

import contextlib
import gc
import os
import resource
from pathlib import Path

import pytest

from inferd.backends.worker.environment import Environment
from inferd.backends.worker.process import Process, Sizes
from inferd.errors import BackendFailed

SMALL = Sizes(arena=1 << 16, most=1 << 16)


def ignore(_line, _is_error):
    pass


def test_a_python_that_is_not_there_has_ended_at_once():
    process = Process("m", Environment(Path("/no/such/python")), SMALL, ignore)
    with pytest.raises(BackendFailed, match="model 'm': python cannot be started: No such file"):
        process.start()
    assert process.has_ended.is_set()


def test_a_process_that_finds_no_descriptors_takes_none():
    gc.collect()  # what other tests have left is not to be closed in the midst of this
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(highest + 8, soft), hard))
    taken = list(descriptors())
    try:
        for _ in range(3):  # room for the socket pair, and for one of the two memories
            os.close(taken.pop())
        with pytest.raises(OSError, match="Too many open files"):
            Process("m", Environment(), SMALL, ignore)
        left = list(descriptors())
        taken += left
        assert len(left) == 3
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


def descriptors():
    """Yield new descriptors until there are no more."""
    with contextlib.suppress(OSError):
        while True:
            yield os.dup(0)
