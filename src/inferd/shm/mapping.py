"""Mapping: a POSIX shared memory object, opened, mapped as long as it is used, and guarded.

Memory that disappears under a mapping fails its request, never the process.

Any client may truncate a shared memory object while the server reads or writes its mapping. The
next access to a page that is gone raises SIGBUS, whose default action ends the process, and no
check beforehand can rule that out. So the signal is caught: zeros are mapped in place of the whole
range, the access is repeated and finds them, and the range is marked as lost, to be checked
afterwards. Wayland servers protect themselves from their clients' buffers in the same way.

The handler is Python, called in the thread that faulted. That is sound where a handler for an
asynchronous signal would not be: the faulting instruction reads or writes tensor bytes, so no
allocator lock and no half-changed object is involved. It has one condition: the thread must be able
to take the interpreter lock, so nobody may hold that lock while waiting for another thread's work
on a tensor. The frameworks release it while they compute.
"""

import ctypes
import errno
import functools
import mmap
import os
import signal
import stat
import sys
from typing import Any

import numpy as np

from inferd import system
from inferd.errors import InferdError, InvalidRequest, RegionFailed, Unavailable

_BUS_ADRERR = 2  # si_code: "nonexistent physical address", a page beyond the object's end
_SI_CODE, _SI_ADDR = 8, 16  # offsets in siginfo_t of 64-bit Linux
_SA_SIGINFO = 4
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000

_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    """struct sigaction in the layout of glibc and musl on 64-bit Linux."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class GuardedRange:
    """A mapped range of addresses; `is_lost` once its memory is gone and zeros took its place."""

    def __init__(self, start: int, size_bytes: int) -> None:
        self.start = start
        self.end = start + size_bytes
        self.is_lost = False


IS_SUPPORTED = system.SHM_FOLDER is not None and sys.maxsize > 2**32
"""Whether the signal structures of this system are those this module assumes."""


class MemoryGuard:
    """Watches ranges of this process's memory. There is only one: `guard()`."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._map = self._libc.mmap
        self._map.restype = ctypes.c_void_p
        self._map.argtypes = (
            *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
            *(ctypes.c_int, ctypes.c_int, ctypes.c_long),
        )
        self._watched: dict[int, GuardedRange] = {}
        self._handler = _Handler(self._on_fault)  # must live as long as the process
        self._address = ctypes.cast(self._handler, ctypes.c_void_p).value
        self._before = _Action()
        self._has_passed_on = False

    def watch(self, start: int, size_bytes: int) -> GuardedRange:
        """Guard the mapping at the address `start` until `forget`."""
        self._install()
        watch = GuardedRange(start, size_bytes)
        # A plain assignment: any lock could be held by the very thread that faults.
        self._watched[start] = watch
        return watch

    def forget(self, watch: GuardedRange) -> None:
        """Stop guarding; call this before the range is unmapped. Any thread may call it."""
        self._watched.pop(watch.start, None)

    def _install(self) -> None:
        """Install our SIGBUS handler, unless it is installed; others may have replaced it."""
        now = _Action()
        self._libc.sigaction(signal.SIGBUS, None, ctypes.byref(now))
        # faulthandler, for example, installs a handler of its own when it is enabled.
        if now.handler != self._address:
            self._before = now
            ours = _Action(handler=self._address, flags=_SA_SIGINFO)
            self._libc.sigaction(signal.SIGBUS, ctypes.byref(ours), None)

    def _on_fault(self, _signal: int, info: int, _context: int) -> None:
        code = ctypes.c_int.from_address(info + _SI_CODE).value
        address = ctypes.c_void_p.from_address(info + _SI_ADDR).value or 0
        if code == _BUS_ADRERR:
            # A copy, as other threads may register regions meanwhile.
            for watch in list(self._watched.values()):
                if watch.start <= address < watch.end and self._replace(watch):
                    return
        self._pass_on(code)

    def _replace(self, watch: GuardedRange) -> bool:
        """Map zeros over the whole range; whatever is written there from now on is lost."""
        kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED | _MAP_NORESERVE
        access = mmap.PROT_READ | mmap.PROT_WRITE
        watch.is_lost = True  # set first: a thread that sees zeros must see this as well
        # MAP_NORESERVE: the range may be large, and nobody is going to use it.
        mapped = self._map(watch.start, watch.end - watch.start, access, kind, -1, 0)
        return bool(mapped == watch.start)

    def _pass_on(self, code: int) -> None:
        """Leave a fault that is not ours to the previous action, the next time to the default one.

        The faulting instruction is repeated after this, and faults again.
        """
        action = _Action() if self._has_passed_on else self._before
        self._has_passed_on = True
        self._libc.sigaction(signal.SIGBUS, ctypes.byref(action), None)
        if code <= 0:  # sent by a process, so no instruction will repeat it
            signal.raise_signal(signal.SIGBUS)


@functools.cache
def guard() -> MemoryGuard:
    """Return the guard of this process: a signal has one action, however many servers there are."""
    return MemoryGuard()


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
        raise InvalidRequest(
            f"'{key[:MAX_KEY_BYTES]}' is no key of a shared memory object, expected a name of "
            f"at most {MAX_KEY_BYTES} bytes with no slash but the leading one"
        )
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
        raise InvalidRequest(
            f"Invalid shared memory region: '{key}' has {status.st_size} bytes, offset {offset} "
            f"and byte_size {size_bytes} ask for {needed}"
        )
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
