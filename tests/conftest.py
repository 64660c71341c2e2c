"""POSIX shared memory for tests of several folders."""

import itertools
import mmap
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path("/dev/shm")
_numbers = itertools.count()


class SharedObject:
    """An object of shared memory as a client has it: `key` is its name, `memory` its bytes."""

    def __init__(self, size):
        self.key = f"/test_inferd_{os.getpid()}_{next(_numbers)}"
        self.path = FOLDER / self.key[1:]
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self.resize(size)
        self.memory = mmap.mmap(self._fd, size)

    def resize(self, size):
        """Make it shorter or longer; of `memory` touch only what is left."""
        os.ftruncate(self._fd, size)

    def write(self, array, offset=0):
        """Put the bytes of `array` there."""
        self.memory[offset : offset + array.nbytes] = array.tobytes()

    def read(self, dtype, count, offset=0):
        """Return a copy of what is there."""
        return np.frombuffer(self.memory, dtype, count, offset).copy()

    def remove(self):
        """Take its name away."""
        self.path.unlink()

    def close(self):
        """Leave nothing behind."""
        with suppress(FileNotFoundError):
            self.remove()
        self.memory.close()
        os.close(self._fd)


@pytest.fixture
def shared():
    """shared(size) makes an object of shared memory; at the end all are gone."""
    made = []

    def make(size=4096):
        made.append(SharedObject(size))
        return made[-1]

    yield make
    for each in made:
        each.close()
    assert not list(FOLDER.glob(f"test_inferd_{os.getpid()}_*"))
