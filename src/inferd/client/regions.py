"""SharedRegion: shared memory of this machine, which a server reads and writes in place."""

import itertools
import mmap
import os
from contextlib import suppress
from math import prod
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from inferd.core.request import Span
from inferd.errors import InvalidRequest, Unsupported
from inferd.tensor.array import Array

# A cache line, and the widest vector registers: as numpy and ONNX Runtime like their buffers.
_ALIGNED: Final = 64
_numbers = itertools.count()


class Registration(NamedTuple):
    """A region as a server knows it: `key` names the POSIX object."""

    name: str
    key: str
    size_bytes: int


class SharedRegion:
    """A new object of shared memory; arrays are laid out in it one after the other."""

    def __init__(self, size_bytes: int) -> None:
        # Unique among processes, and not guessable: other users of the machine see the names in
        # /dev/shm.
        name = f"v2_client_{os.getpid()}_{next(_numbers)}_{os.urandom(4).hex()}"
        self.registration = Registration(name, f"/{name}", size_bytes)
        self._memory = _make(self.registration)
        # An array keeps the mapping alive as long as any array that views it.
        self._bytes = np.frombuffer(self._memory, np.uint8)
        self._start = self._bytes.ctypes.data
        self._used = 0

    def array(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return a new array, of zeros, in the region. Raises InvalidRequest if it is full."""
        kind = np.dtype(dtype)
        # Objects are pointers, which mean nothing to another process.
        if kind.hasobject:
            msg = f"elements of {kind} cannot lie in shared memory; bytes (uint8) can"
            raise InvalidRequest(msg)
        shape = (shape,) if isinstance(shape, int) else shape
        start = -(-self._used // _ALIGNED) * _ALIGNED
        end = start + prod(shape) * kind.itemsize
        if end > self.registration.size_bytes:
            raise InvalidRequest(
                f"an array of {end - start} bytes does not fit into what is left of the region of "
                f"{self.registration.size_bytes} bytes"
            )
        self._used = end
        return np.ndarray(shape, kind, self._bytes.data, start)

    def span_of(self, array: Array) -> Span | None:
        """Return where `array` is in the region, None if it is not there as a whole."""
        offset = array.ctypes.data - self._start
        end = offset + array.nbytes
        if not (0 <= offset <= end <= self.registration.size_bytes and array.flags.c_contiguous):
            return None
        # A place among ours, for which a server's table of regions has a key.
        return Span(self._bytes.data[offset:end], ((), offset, end), self.registration.name)

    def close(self) -> None:
        """Remove the object; its memory is freed when no array of it is left."""
        # Somebody may have cleaned up /dev/shm.
        with suppress(FileNotFoundError):
            _unlink(self.registration.key)


def _make(registration: Registration) -> mmap.mmap:
    """Return the memory of a new object. Raises Unsupported, InvalidRequest."""
    try:
        # The module under multiprocessing.shared_memory, whose class registers each object with a
        # tracker process that removes it at the wrong time.
        from _posixshmem import shm_open
    except ImportError:
        raise Unsupported("this system has no shared memory of POSIX") from None
    if registration.size_bytes <= 0:
        raise InvalidRequest(f"a region of {registration.size_bytes} bytes is none")
    # Never an object that somebody else has made under this name; readable for this user alone.
    descriptor = shm_open(registration.key, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode=0o600)
    try:
        os.ftruncate(descriptor, registration.size_bytes)
        return mmap.mmap(descriptor, registration.size_bytes)
    except (OSError, ValueError, OverflowError) as error:
        _unlink(registration.key)
        msg = f"shared memory of {registration.size_bytes} bytes cannot be made: {error}"
        raise InvalidRequest(msg) from error
    finally:
        # The mapping keeps the memory by itself.
        os.close(descriptor)


def _unlink(key: str) -> None:
    from _posixshmem import shm_unlink

    shm_unlink(key)


def span_in(regions: list[SharedRegion], array: Array) -> Span | None:
    """Return where `array` is in one of `regions`, None if it is elsewhere."""
    for region in regions:
        if (span := region.span_of(array)) is not None:
            return span
    return None
