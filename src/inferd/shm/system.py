"""SystemRegion: a range of a POSIX shared memory object, mapped once, read and written in place."""

import errno
import mmap
import os
import stat
import sys
from typing import Any

import numpy as np

from inferd.core.metadata import SystemRegionStatus
from inferd.core.moment import Moment
from inferd.errors import InferdError, InvalidRequest, RegionFailed, Unavailable
from inferd.shm.guard import Watch, guard

RESERVED = ("inferd_", "triton_python_backend_shm_region_", "sem.")
"""No key begins so: objects of this server and of Triton's Python backend, and semaphores."""

MAX_KEY_BYTES = 255
"""What the system allows a name."""

MAX_REMEMBERED = 64
"""So many spans of a region are kept: clients use the same places again and again."""

_FOLDER = "/dev/shm"  # where Linux keeps what shm_open makes
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class SystemRegion:
    """`size_bytes` from `offset` of the object `key`, under the client's name for it.

    In a round of `moment` the object is looked at once, whatever number of requests use it.
    Raises InvalidRequest for a key or range that cannot be, RegionFailed when there is no such
    object or it is too small, and Unavailable when the process has no files or memory left.
    """

    def __init__(
        self, name: str, key: str, offset: int, size_bytes: int, moment: Moment | None = None
    ) -> None:
        check_key(key)
        self.status = SystemRegionStatus(name, key, offset, size_bytes)
        mapping = _open_mapping(key, offset, size_bytes)
        mapping.moment = moment or Moment()
        self._mapping: _Mapping | None = mapping
        self.spans: dict[tuple[int, int], SystemSpan] = {}
        """Those made lately, by offset and size: requests may share one."""

    def span(self, offset: int, size_bytes: int) -> "SystemSpan":
        """Return that piece, which lies inside the region, and is none of `spans`.

        Raises InvalidRequest when the region has been closed.
        """
        mapping = self._mapping
        if mapping is None:  # unregistered this very moment, by another thread
            msg = f"shared memory region '{self.status.name}' is no longer registered"
            raise InvalidRequest(msg)
        span = SystemSpan(mapping, self.status, offset, size_bytes)
        if len(self.spans) >= MAX_REMEMBERED:
            self.spans.clear()
        self.spans[offset, size_bytes] = span
        return span

    def close(self) -> None:
        """Let go of the memory; it is unmapped when no request uses it any more."""
        self._mapping = None
        self.spans = {}


class SystemSpan:
    """See Span: `view` is the shared memory itself."""

    __slots__ = ("_name", "extent", "region", "view")

    is_copy = False

    def __init__(
        self, mapping: "_Mapping", status: SystemRegionStatus, offset: int, size_bytes: int
    ) -> None:
        at = mapping.skipped + offset
        self.view = memoryview(mapping)[at : at + size_bytes]
        start = status.offset + offset
        self.extent = (mapping.memory, start, start + size_bytes)
        self.region = mapping
        self._name = status.name

    def look(self) -> None:
        """See Span.look."""
        self.region.check(self._name)

    def fetch(self) -> None:
        """See Span.fetch: nothing to do."""

    def flush(self, size_bytes: int) -> None:
        """See Span.flush: nothing to do."""

    def check(self) -> None:
        """See Span.check."""
        if self.region.watch.is_lost:
            raise _lost(self._name)


class _Mapping(mmap.mmap):
    """A guarded mapping; every view of it keeps it alive, and its file open."""

    fd = -1  # until the memory is mapped, and whoever opened the file need not close it
    watch: Watch
    memory: tuple[int, ...]
    skipped: int  # bytes between the mapping's first and the region's, mappings begin at pages
    needed: int  # the size the object must have
    moment: Moment
    looked_in = 0  # the last round in which all was well

    def check(self, name: str) -> None:
        """Raise InvalidRequest when the object of region `name` was removed, or shrank."""
        if self.watch.is_lost:
            raise _lost(name)
        round_number = self.moment.number
        if round_number and round_number == self.looked_in:
            return
        now = os.fstat(self.fd)
        if now.st_nlink == 0:
            msg = (
                f"the object of shared memory region '{name}' has been removed; "
                f"unregister the region and register a new one"
            )
            raise InvalidRequest(msg)
        if now.st_size < self.needed:
            msg = (
                f"the object of shared memory region '{name}' has shrunk to {now.st_size} "
                f"bytes, the region ends at byte {self.needed}"
            )
            raise InvalidRequest(msg)
        self.looked_in = round_number

    def __del__(self) -> None:
        if self.fd < 0:
            return
        # Before the memory is unmapped: its addresses may then become another mapping's.
        guard().forget(self.watch)
        os.close(self.fd)


def check_key(key: str) -> None:
    """Check that `key` names an object, and none of the server's own. Raises InvalidRequest."""
    name = key.lstrip("/")  # as shm_open takes it
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


def _open_mapping(key: str, offset: int, size_bytes: int) -> _Mapping:
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


def _mapped(fd: int, key: str, offset: int, size_bytes: int) -> _Mapping:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise _cannot_open(key)
    needed = offset + size_bytes
    if needed > status.st_size:
        msg = (
            f"shared memory object '{key}' has {status.st_size} bytes, offset {offset} and "
            f"byte_size {size_bytes} ask for {needed}"
        )
        raise RegionFailed(msg)
    skipped = offset % mmap.ALLOCATIONGRANULARITY
    options: dict[str, Any] = {"offset": offset - skipped}
    if sys.version_info >= (3, 13):
        options["trackfd"] = False  # or it would open the file a second time
    try:
        mapping = _Mapping(fd, skipped + size_bytes, **options)
    except (OSError, ValueError) as error:  # ValueError: it shrank since we looked
        raise _cannot_open(key, error) from None
    start = np.frombuffer(mapping, np.uint8).ctypes.data
    mapping.watch = guard().watch(start, skipped + size_bytes)
    mapping.fd = fd
    mapping.memory = (status.st_dev, status.st_ino)
    mapping.skipped = skipped
    mapping.needed = needed
    return mapping


def _cannot_open(key: str, error: Exception | None = None) -> InferdError:
    # One text for what is not there and what is not ours: clients are not told which names exist.
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return Unavailable("the server has no room for another shared memory region")
    return RegionFailed(
        f"shared memory object '{key}' cannot be opened: there is none, "
        f"or this server may not read and write it"
    )


def _lost(name: str) -> InvalidRequest:
    return InvalidRequest(
        f"the object of shared memory region '{name}' shrank while the region was in use, or the "
        f"system had no memory for it; unregister the region and register a new one"
    )
