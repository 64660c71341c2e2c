"""Crashes: what ended the server's last process, and what is to be done about it.

A process that serves keeps a CrashRecord, in a file of this user's that is named for its ports and
repositories and locked while it lives. Its end in good order removes the file, so one that is still
there, and not locked, is of a process that crashed or was killed. Fatal signals leave Python's
traceback beside it, which tells the thread.
"""

import asyncio
import contextlib
import faulthandler
import logging
import os
import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TextIO

from inferd import system
from inferd.config.server import ServerConfig
from inferd.observe.crash.history import Crash, History, ModelVersion, read_history, write_history
from inferd.observe.crash.mark import RunMarks
from inferd.observe.crash.record import CrashRecord, LastRun, MarkedRun, open_private, read_record
from inferd.observe.log import printable
from inferd.server.folder import name_of, private_folder

log = logging.getLogger("inferd")

OFF = "off"
BEAT_S = 1.0
MAX_SERVERS = 1024
"""The most processes with the same ports and repositories that have records of their own."""

FORGET_S = 7 * 86400.0
"""After this time nobody looks at the record of a server that was not started again."""

MAX_SHOWN = 8
"""The most runs of an ended process that the log names."""

_TRACE_BYTES = 64 << 10
_FATAL = re.compile(r"Fatal Python error: ([^\n]{1,80})")
# How faulthandler names the thread that got the signal.
_CURRENT = re.compile(r"^Current thread 0x([0-9a-f]{1,16}) ", re.MULTILINE)


class Crashes:
    """The record of this process, and the history of those before it.

    `marks` are given to the threads that run models. `isolated` are the versions that crashed
    often enough to be run in workers.
    """

    def __init__(self) -> None:
        # Marks that nobody reads, until there is a record.
        self.marks = RunMarks()
        self.history = History()
        self.isolated: frozenset[ModelVersion] = frozenset()
        self._record: CrashRecord | None = None
        self._paths: tuple[Path, ...] = ()
        self._descriptor = -1
        self._history_path: Path | None = None  # where others may isolate more
        self._history_ns = 0
        self._trace: TextIO | None = None
        self._beat: asyncio.TimerHandle | None = None

    def open(self, config: ServerConfig, environ: Mapping[str, str] = os.environ) -> None:
        """Say in the log what ended the last process, and begin the record of this one.

        A folder or file that cannot be used is a warning: the server works without.
        """
        if config.crash_record == OFF or system.IS_WINDOWS:
            return
        try:
            folder = folder_of(config, environ)
            self._open(folder, name_of(config), isolates=config.isolate_crashed)
        except (OSError, ValueError) as error:
            log.warning(
                "there is no record of what runs, so a crash would not be explained: %s; "
                "--crash-record chooses another folder",
                printable(str(error)),
            )

    def _open(self, folder: Path, name: str, *, isolates: bool) -> None:
        forget_old(folder, time.time() - FORGET_S)
        path, descriptor = _locked(folder, name)
        self._descriptor = descriptor
        trace_path = path.with_suffix(".trace")
        self._paths = path, trace_path
        # Opened now: when a signal comes it is too late to open anything.
        trace_descriptor = open_private(trace_path)
        last = _last_of(descriptor, path)
        trace = os.pread(trace_descriptor, _TRACE_BYTES, 0).decode(errors="replace")
        # So that what is there after the next crash is of that.
        os.ftruncate(trace_descriptor, 0)
        history_path = folder / f"{name}.history"
        self.history = self._continued(history_path, last, trace)
        if isolates:
            self.isolated = self.history.isolated()
            self._history_path = history_path
        # Last: it empties the file that `_last_of` has read.
        self.marks = self._record = CrashRecord(descriptor)
        if faulthandler.is_enabled():  # somebody wants the traceback elsewhere
            os.close(trace_descriptor)
        else:
            self._trace = os.fdopen(trace_descriptor, "w")
            faulthandler.enable(self._trace)

    def _continued(self, path: Path, last: LastRun | None, trace: str) -> History:
        """Return the history in the file `path`, to which the last process's crash is added."""
        if last is None and not path.exists():
            return History()
        descriptor = open_private(path)
        try:
            # Several processes of a server may start at the same time and add what each has found.
            _lock(descriptor, waits=True)
            try:
                history = read_history(descriptor)
            except ValueError as error:
                log.warning("the history of crashes in %s is ignored: %s", path.name, error)
                history = History()
            crash = tell(last, trace) if last is not None else None
            if crash is not None:
                history.add(crash)
                write_history(descriptor, history)
            return history
        finally:
            os.close(descriptor)

    def newly_isolated(self) -> frozenset[ModelVersion]:
        """Return the versions that are isolated because other processes of the server ended.

        A change of the history is told once. Without one it costs a look at the file.
        """
        try:
            path = self._history_path
            # One stat() a second, as nearly always nothing has happened.
            if path is None or path.stat().st_mtime_ns == self._history_ns:
                return frozenset()
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                changed_ns = os.fstat(descriptor).st_mtime_ns
                isolated = read_history(descriptor).isolated()
            finally:
                os.close(descriptor)
        except (OSError, ValueError):  # there is none, or it is being written
            return frozenset()
        self._history_ns = changed_ns
        return isolated - self.isolated

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Note from now on, once a second, that the process is alive."""
        if self._record is not None:
            # So that the next start can say when this process was alive last.
            self._record.beat()
            self._beat = loop.call_later(BEAT_S, self.start, loop)

    def note_stopping(self) -> None:
        """Note that the server was asked to stop."""
        if self._record is not None:
            self._record.note_stopping()

    def close(self) -> None:
        """Remove the record: this process ends in good order."""
        if self._beat is not None:
            self._beat.cancel()
        if self._record is None:
            return
        self._record = None
        if self._trace is not None:
            faulthandler.disable()
            self._trace.close()
        for path in self._paths:
            with contextlib.suppress(OSError):
                path.unlink()
        os.close(self._descriptor)


def folder_of(config: ServerConfig, environ: Mapping[str, str]) -> Path:
    """Return the folder for records, made if need be. Raises OSError unless it is this user's."""
    if config.crash_record:
        folder = Path(config.crash_record)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder
    return private_folder(environ)


def _locked(folder: Path, name: str) -> tuple[Path, int]:
    """Return a record that no living process has, and its descriptor, locked.

    Those that are there come first: of processes that crashed, whose places may be beyond a free
    one, as after all processes of a server were replaced.
    """
    left = sorted(folder.glob(f"{name}.[0-9]*.record"))
    fresh = (folder / f"{name}.{number}.record" for number in range(MAX_SERVERS))
    for path in chain(left, fresh):
        descriptor = open_private(path)
        # A process that has just ended may have removed the file that is open here.
        if _lock(descriptor) and _is_there(path, descriptor):
            return path, descriptor
        os.close(descriptor)
    msg = f"{MAX_SERVERS} servers with these ports and repositories have records in {folder}"
    raise OSError(msg)


def forget_old(folder: Path, before_s: float) -> None:
    """Remove the records of ended processes that have not changed since `before_s`."""
    for path in folder.glob("*.record"):
        with contextlib.suppress(OSError):
            # Links are not followed: they would not be this server's.
            if path.lstat().st_mtime >= before_s:
                continue
            descriptor = open_private(path)
            # Locked: a process that lives, however old its record is.
            if _lock(descriptor):
                path.unlink()
                path.with_suffix(".trace").unlink(missing_ok=True)
            os.close(descriptor)


def _is_there(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _lock(descriptor: int, *, waits: bool = False) -> bool:
    try:
        system.lock_file(descriptor, waits=waits)
    except BlockingIOError:
        return False
    return True


def _last_of(descriptor: int, path: Path) -> LastRun | None:
    try:
        return read_record(descriptor)
    except ValueError as error:
        log.warning("the record of runs in %s is ignored: %s", path.name, error)
        return None


def tell(last: LastRun, trace: str) -> Crash | None:
    """Log how the last process ended, and return that if it was a crash.

    A model is suspected if it ran in the thread that got the signal. If none did, whatever ran is:
    frameworks have threads of their own, and memory spoilt by one thread may end another.
    """
    when = datetime.fromtimestamp(last.seen_s, UTC).isoformat(sep=" ", timespec="seconds")
    if last.is_stopping:
        log.warning("the last process was asked to stop and did not do so in time, at %s", when)
        return None
    # A machine that went down ended everything: no model did.
    if not last.is_same_boot:
        log.warning("the machine has restarted since the last process, which ended at %s", when)
        return None
    found = _FATAL.search(trace)
    kind = printable(found[1]) if found else "no signal: it was killed, or something in it exited"
    runs = _suspects(last.runs, trace)
    log.error("the last process ended at %s (%s) while %s", when, kind, _shown(runs))
    if found:
        log.error("the traceback of its end:\n%s", trace.strip(), extra={"keeps_lines": True})
    models = list(dict.fromkeys((run.model, run.version) for run in runs))[:MAX_SHOWN]
    return Crash(last.seen_s, kind, models)


def _suspects(runs: Sequence[MarkedRun], trace: str) -> Sequence[MarkedRun]:
    current = _CURRENT.search(trace)
    if current is None:
        return runs
    thread = int(current[1], 16)
    # The thread is none of ours: whatever ran is suspected.
    return [run for run in runs if run.thread == thread] or runs


def _shown(runs: Sequence[MarkedRun]) -> str:
    if not runs:
        return "no model ran"
    texts = []
    for run in runs[:MAX_SHOWN]:
        text = f"model '{printable(run.model)}' version {printable(run.version)} "
        text += "was loaded" if run.is_load else "ran"
        texts.append(text + (f" request '{printable(run.ids)}'" if run.ids else ""))
    if len(runs) > MAX_SHOWN:
        texts.append(f"{len(runs) - MAX_SHOWN} more ran")
    return " and ".join(texts)
