"""Guard: memory that goes away under a mapping costs its request, never the process.

Any client may truncate a shared memory object while the server reads or writes its mapping. The
next touch of a page that is gone raises SIGBUS, whose default ends the process, and no check
beforehand can rule that out. So the signal is caught: zeros are mapped in place of the whole
range, the touch is repeated and finds them, and the range is marked as lost for whoever looks
afterwards. Wayland's servers keep their clients' buffers at bay in the same way.

The handler is Python, called in the thread that faulted. That is sound where a handler for a
signal from outside would not be: the fault lies in an instruction that reads or writes tensor
bytes, so no allocator's lock and no half-changed object is involved. Its one condition: the thread
must be able to take the interpreter lock, so nobody may wait for another thread's work on a tensor
while holding it. The frameworks let go of it while they compute.
"""

import ctypes
import functools
import mmap
import signal
import sys

_BUS_ADRERR = 2  # si_code: "nonexistent physical address", a page beyond the object's end
_SI_CODE, _SI_ADDR = 8, 16  # offsets in siginfo_t of 64-bit Linux
_SA_SIGINFO = 4
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000

_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    """struct sigaction, as glibc and musl lay it out on 64-bit Linux."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class Watch:
    """A mapped range of addresses; `is_lost` once its memory has gone and zeros stand there."""

    __slots__ = ("end", "is_lost", "start")

    def __init__(self, start: int, size_bytes: int) -> None:
        self.start = start
        self.end = start + size_bytes
        self.is_lost = False


IS_SUPPORTED = sys.platform == "linux" and sys.maxsize > 2**32
"""Whether this is a system whose signals are told as this module reads them."""


class Guard:
    """Watches ranges of this process's memory. There is one: `guard()`."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._map = self._libc.mmap
        self._map.restype = ctypes.c_void_p
        self._map.argtypes = (
            *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
            *(ctypes.c_int, ctypes.c_int, ctypes.c_long),
        )
        self._watched: dict[int, Watch] = {}
        self._handler = _Handler(self._on_fault)  # must live as long as the process
        self._address = ctypes.cast(self._handler, ctypes.c_void_p).value
        self._before = _Action()
        self._has_passed_on = False

    def watch(self, start: int, size_bytes: int) -> Watch:
        """Guard the mapping at the address `start` until `forget`."""
        self._install()
        watch = Watch(start, size_bytes)
        self._watched[start] = watch
        return watch

    def forget(self, watch: Watch) -> None:
        """Stop guarding; to be called before the range is unmapped. From any thread."""
        self._watched.pop(watch.start, None)

    def _install(self) -> None:
        """Become the action of SIGBUS, unless we are; others may have replaced us meanwhile."""
        now = _Action()
        self._libc.sigaction(signal.SIGBUS, None, ctypes.byref(now))
        if now.handler != self._address:
            self._before = now
            ours = _Action(handler=self._address, flags=_SA_SIGINFO)
            self._libc.sigaction(signal.SIGBUS, ctypes.byref(ours), None)

    def _on_fault(self, _signal: int, info: int, _context: int) -> None:
        code = ctypes.c_int.from_address(info + _SI_CODE).value
        address = ctypes.c_void_p.from_address(info + _SI_ADDR).value or 0
        if code == _BUS_ADRERR:
            for watch in list(self._watched.values()):
                if watch.start <= address < watch.end and self._replace(watch):
                    return
        self._pass_on(code)

    def _replace(self, watch: Watch) -> bool:
        """Map zeros over the whole range; what is written there from now on is nobody's."""
        kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED | _MAP_NORESERVE
        access = mmap.PROT_READ | mmap.PROT_WRITE
        watch.is_lost = True  # before it is: a thread that sees zeros must see this as well
        mapped = self._map(watch.start, watch.end - watch.start, access, kind, -1, 0)
        return bool(mapped == watch.start)

    def _pass_on(self, code: int) -> None:
        """Leave a fault that is not ours to whoever had the signal before; at last to the system.

        An instruction that faulted is repeated after this, and faults again.
        """
        action = _Action() if self._has_passed_on else self._before
        self._has_passed_on = True
        self._libc.sigaction(signal.SIGBUS, ctypes.byref(action), None)
        if code <= 0:  # sent by a process: nothing will repeat it
            signal.raise_signal(signal.SIGBUS)


@functools.cache
def guard() -> Guard:
    """Return the guard of this process: a signal has one action, whatever servers live here."""
    return Guard()
