"""CrashRecord: the file that tells what ran in the server's process when it ended.

The file is mapped, so what is written there outlives the process without any system call; only a
machine that loses power loses it, too. It has a header, and for each mark an entry that says whose
it is, with its note. It contains names of models and ids of requests, nothing else of them.

A note is an array of wide characters: ctypes copies a text into one in a single step, where a slice
of the file takes bytes, which have to be made first. The text of a mark that is idle is random, so
no client can send it as an id.
"""

import contextlib
import ctypes
import mmap
import os
import secrets
import stat
import sys
import threading
import time
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from inferd.observe.crash.mark import ID_CHARS, RunMark, RunMarks

# The number at the end is that of the layout: a server of another layout does not guess.
_MAGIC = b"inferd-runs-2"
_HEADER = Struct("<16sB7xQQ36s8s")  # magic, state, start and last beat in ns, boot, idle text
_ENTRY = Struct("<QB23s256s")  # thread, whether it loads, version, model
_NOTE = ctypes.c_wchar * (ID_CHARS + 1)  # a shorter text ends with NUL
_NOTE_BYTES = ctypes.sizeof(_NOTE)
# wchar_t has four bytes on Linux and macOS, two on Windows.
_WIDE = f"utf-{8 * ctypes.sizeof(ctypes.c_wchar)}-{sys.byteorder[0]}e"
# A page, so that the header's beat does not share one with notes.
_ENTRIES_AT = 4096
_ENTRY_SIZE = _ENTRY.size + _NOTE_BYTES
_STATE_AT = 16
_BEAT = Struct("<Q")
_BEAT_AT = 32

MARK_COUNT = 1024
"""More threads than that share the last mark."""

SIZE = _ENTRIES_AT + MARK_COUNT * _ENTRY_SIZE

RUNS, STOPS = 1, 2
"""The states of a server: it was asked to stop, or not."""

_BEYOND = "one of many other models"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class MarkedRun(NamedTuple):
    """What a thread did when its process ended: it ran `model`, or loaded it."""

    model: str
    version: str
    ids: str
    is_load: bool
    thread: int


class LastRun(NamedTuple):
    """The record of a process that did not end by itself; times are seconds since the epoch."""

    is_stopping: bool
    is_same_boot: bool
    started_s: float
    seen_s: float
    runs: tuple[MarkedRun, ...]


class CrashRecord(RunMarks):
    """The record of this process, in the file `descriptor`, which is locked and emptied here."""

    def __init__(self, descriptor: int) -> None:
        # Emptied first, so that nothing of the record before is left in the new one.
        os.ftruncate(descriptor, 0)
        # Without room for a page, a write to mapped memory would end the process.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, SIZE)
        os.ftruncate(descriptor, SIZE)
        self._memory = mmap.mmap(descriptor, SIZE)
        # Eight characters cost as much to write as one, and no client can guess them.
        self._idle = secrets.token_hex(4)
        # Popped from the end, so the lowest numbers are used first, and the mapped pages that are
        # touched stay few.
        self._free = list(range(MARK_COUNT - 2, -1, -1))
        # Threads of instances start and end at any time; a run itself takes no lock.
        self._lock = threading.Lock()
        self._loop_thread = threading.get_ident()
        last = self._mark(MARK_COUNT - 1)
        last.note.value = last.idle
        self._write_entry(MARK_COUNT - 1, _BEYOND, "", 0, is_load=False)
        now_ns = time.time_ns()
        idle = self._idle.encode()
        _HEADER.pack_into(self._memory, 0, _MAGIC, RUNS, now_ns, now_ns, boot_id(), idle)

    def claim(self, model: str, version: str, thread: int = 0, *, is_load: bool = False) -> RunMark:
        """See RunMarks.claim. Any thread may call it."""
        with self._lock:
            number = self._free.pop() if self._free else MARK_COUNT - 1
            mark = self._mark(number)
            # The last mark is shared by all that came too late, so nothing about one of them is
            # written.
            if number < MARK_COUNT - 1:
                mark.note.value = mark.idle
                thread = thread or self._loop_thread
                self._write_entry(number, model, version, thread, is_load=is_load)
        return mark

    def release(self, mark: RunMark) -> None:
        """See RunMarks.release. Any thread may call it."""
        with self._lock:
            if mark.number < MARK_COUNT - 1:
                mark.note.value = mark.idle
                self._free.append(mark.number)

    def beat(self) -> None:
        """Note that the process is alive now."""
        _BEAT.pack_into(self._memory, _BEAT_AT, time.time_ns())

    def note_stopping(self) -> None:
        """Note that the server was asked to stop: what ends it now is no crash."""
        self._memory[_STATE_AT] = STOPS

    def _mark(self, number: int) -> RunMark:
        note_at = _ENTRIES_AT + number * _ENTRY_SIZE + _ENTRY.size
        return RunMark(_NOTE.from_buffer(self._memory, note_at), self._idle, number)

    def _write_entry(
        self, number: int, model: str, version: str, thread: int, *, is_load: bool
    ) -> None:
        # Lone surrogates; `pack` cuts what is too long for the entry.
        texts = [text.encode("utf-8", "replace") for text in (version, model)]
        at = _ENTRIES_AT + number * _ENTRY_SIZE
        _ENTRY.pack_into(self._memory, at, thread, is_load, *texts)


def read_record(descriptor: int) -> LastRun | None:
    """Return what an earlier process left in a file, None if it is empty.

    Raises ValueError for a file that is no record.
    """
    size = os.fstat(descriptor).st_size
    if not size:
        return None
    data = os.pread(descriptor, SIZE, 0)
    magic = data[:_STATE_AT].rstrip(b"\0")
    # An older layout has the same beginning: said by name, since an operator has changed versions.
    if magic != _MAGIC and magic.startswith(_MAGIC[:-1]):
        raise ValueError("another version of inferd wrote it")
    if len(data) != SIZE or size != SIZE:
        raise ValueError(f"it has {size} bytes, not {SIZE}")
    _, state, started_ns, seen_ns, boot, idle = _HEADER.unpack_from(data)
    if magic != _MAGIC or state not in (RUNS, STOPS):
        raise ValueError("it does not begin as a record does")
    # With the NUL, or an id that begins with the idle text would pass for it.
    idle_note = (idle.decode(errors="replace") + "\0").encode(_WIDE)
    found = (_run_of(data, number, idle_note) for number in range(MARK_COUNT))
    runs = tuple(run for run in found if run is not None)
    is_same_boot = boot == boot_id().ljust(len(boot), b"\0")
    return LastRun(state == STOPS, is_same_boot, started_ns / 1e9, seen_ns / 1e9, runs)


def _run_of(data: bytes, number: int, idle_note: bytes) -> MarkedRun | None:
    """Return what the owner of a mark did, None if that was nothing, or it never had an owner."""
    at = _ENTRIES_AT + number * _ENTRY_SIZE
    note_at, end = at + _ENTRY.size, at + _ENTRY_SIZE
    thread, is_load, *names = _ENTRY.unpack_from(data, at)
    version, model = (name.rstrip(b"\0").decode(errors="replace") for name in names)
    if not model or data.startswith(idle_note, note_at):
        return None
    note = data[note_at:end].decode(_WIDE, "replace").partition("\0")[0]
    return MarkedRun(model, version, note[:ID_CHARS], bool(is_load), thread)


def open_private(path: Path) -> int:
    """Open a file that only this user may read or write, made if need be; return its descriptor.

    Raises OSError, also for what is no regular file of this user's.
    """
    # The folder may be /tmp, where others can put links and pipes under our name.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    try:
        # Of the descriptor: the path may be exchanged between a look at it and the opening.
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise OSError(f"{path.name} is no regular file of this user's")
        # A file from before, or an unusual umask, may let others read it.
        os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def boot_id() -> bytes:
    """Return what tells one run of the machine's system from the next, where the system does."""
    with contextlib.suppress(OSError):
        # A UUID, whose length is the field's.
        return _BOOT.read_bytes().strip()[:36]
    return b""
