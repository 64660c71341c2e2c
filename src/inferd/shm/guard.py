"""MemoryGuard: memory that disappears under a mapping fails its request, never the process.

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
import functools
import mmap
import signal
import sys

from inferd import system

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

    __slots__ = ("end", "is_lost", "start")

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
