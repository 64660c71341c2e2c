"""Mapping: a POSIX shared memory object, opened, and mapped as long as it is used."""

import errno
import mmap
import os
import stat
import sys
from typing import Any

import numpy as np

from inferd.errors import InferdError, InvalidRequest, RegionFailed, Unavailable
from inferd.shm.guard import GuardedRange, guard

RESERVED = ("inferd_", "triton_python_backend_shm_region_", "sem.")
"""Refused prefixes: objects of this server and of Triton's Python backend, and semaphores."""

MAX_KEY_BYTES = 255
"""The system's limit on names."""

_FOLDER = "/dev/shm"  # where Linux keeps the objects of shm_open
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Mapping(mmap.mmap):
    """A guarded mapping; every view of it keeps it alive and its file open."""

    fd = -1  # until the memory is mapped; from then on the mapping closes the file
    watch: GuardedRange
    memory: tuple[int, ...]
    skipped: int  # bytes before the region: mappings begin at page boundaries

    def __del__(self) -> None:
        """Stop guarding it and close its file."""
        if self.fd < 0:
            return
        # Before the memory is unmapped: then another mapping may get its addresses.
        guard().forget(self.watch)
        os.close(self.fd)


def check_key(key: str) -> None:
    """Check that `key` is a valid name and not reserved. Raises InvalidRequest."""
    name = key.lstrip("/")  # as shm_open does
    if name in ("", ".", "..") or "/" in name or "\0" in name or not _fits(name):
        msg = (
            f"'{key[:MAX_KEY_BYTES]}' is no key of a shared memory object, expected a name of "
            f"at most {MAX_KEY_BYTES} bytes with no slash but the leading one"
        )
        raise InvalidRequest(msg)
    if name.startswith(RESERVED):
        msg = f"key '{key}' is reserved: no client's object begins with {', '.join(RESERVED)}"
        raise InvalidRequest(msg)


def _fits(name: str) -> bool:
    try:
        return len(os.fsencode(name)) <= MAX_KEY_BYTES
    except UnicodeEncodeError:
        return False


def open_mapping(key: str, offset: int, size_bytes: int) -> Mapping:
    """Map `size_bytes` from `offset` of the object `key`, which has been checked.

    Raises RegionFailed if there is no such object, InvalidRequest if it is too small, Unavailable
    if the process has no file descriptors or memory left.
    """
    # NOFOLLOW: a link in /dev/shm could lead to any file the server may write. NONBLOCK: opening a
    # FIFO would wait for its other end.
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(f"{_FOLDER}/{key.lstrip('/')}", flags)
    except OSError as error:
        raise _cannot_open(key, error) from None
    try:
        return _mapped(fd, key, offset, size_bytes)
    except BaseException:
        os.close(fd)
        raise


def _mapped(fd: int, key: str, offset: int, size_bytes: int) -> Mapping:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise _cannot_open(key)
    needed = offset + size_bytes
    if needed > status.st_size:
        msg = (
            f"Invalid shared memory region: '{key}' has {status.st_size} bytes, offset {offset} "
            f"and byte_size {size_bytes} ask for {needed}"
        )
        raise InvalidRequest(msg)
    skipped = offset % mmap.ALLOCATIONGRANULARITY
    options: dict[str, Any] = {"offset": offset - skipped}
    if sys.version_info >= (3, 13):
        options["trackfd"] = False  # or it would duplicate the file descriptor
    try:
        mapping = Mapping(fd, skipped + size_bytes, **options)
    except (OSError, ValueError) as error:  # ValueError: it shrank since the fstat
        raise _cannot_open(key, error) from None
    start = np.frombuffer(mapping, np.uint8).ctypes.data
    mapping.watch = guard().watch(start, skipped + size_bytes)
    # Last, so that until here the caller closes the file, and from here on the mapping.
    mapping.fd = fd
    mapping.memory = (status.st_dev, status.st_ino)
    mapping.skipped = skipped
    return mapping


def _cannot_open(key: str, error: Exception | None = None) -> InferdError:
    # The same text whether it is missing or not ours: clients are not told which names exist.
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return Unavailable("the server has no room for another shared memory region")
    return RegionFailed(
        f"Unable to open shared memory region: '{key}' is no shared memory object, "
        f"or this server may not read and write it"
    )
