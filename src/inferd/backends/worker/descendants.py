"""Descendants: the processes that a worker has started, directly or indirectly.

Those with a session or group of their own are not killed with the worker's group, and once the
worker has ended, nothing links them to it. So each worker has a mark among its environment
variables, which all descendants inherit unless they clear their environment.
"""

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from inferd import system

VARIABLE = "INFERD_WORKER"
"""The environment variable with the mark of a worker."""

_PROCESSES = Path("/proc")
_END_MS = 1000
_ROUNDS = 20  # of scans, for processes that start others meanwhile
_PAUSES = 5  # for processes without variables
_EXEC_PAUSES = 300  # for processes amid an exec, which may take long on a busy machine
_PAUSE_S = 0.01
_ENV_START = 47  # index among the fields of `stat` after the name; field 50 in proc(5)


def end_descendants(
    mark: str, pause: Callable[[float], object] = time.sleep, processes: Path = _PROCESSES
) -> int:
    """Kill every process that has `mark`; return how many there were.

    A process amid an exec shows no variables although it has them, so processes that show none
    are checked again after some `pause`s. `processes` is a folder such as /proc; where there is
    none, 0 are found.
    """
    if not (system.PIDFD and processes.is_dir()):
        return 0
    wanted = f"{VARIABLE}={mark}".encode()
    ended_count = pause_count = round_count = 0
    # Until a scan finds none: a process may have forked between the listing and its end.
    while round_count < _ROUNDS:
        folders = [processes / name for name in os.listdir(processes) if name.isdigit()]
        found = sum(_end(folder, wanted) for folder in folders)
        ended_count += found
        if found:
            round_count += 1
            continue
        if pause_count >= max(map(_pauses, folders), default=0):
            break
        pause_count += 1
        pause(_PAUSE_S)
    return ended_count


def _end(folder: Path, wanted: bytes) -> bool:
    """Kill the process of `folder` if it is one of ours and alive; return whether it was."""
    if not _is_marked(folder, wanted):
        return False
    try:
        process = os.pidfd_open(int(folder.name))
    except OSError:  # it has already ended
        return False
    try:
        # The pid may have been reused: check again, now that the pidfd pins the process.
        if not _is_marked(folder, wanted):
            return False
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
        end = select.poll()
        end.register(process, select.POLLIN)
        # Its variables are there until it is gone; the next scan would count it once more.
        end.poll(_END_MS)
        return True
    finally:
        os.close(process)


def _pauses(folder: Path) -> int:
    """Return how many pauses a process may take until it shows variables.

    0 for processes that show some, and for kernel threads, which have no memory. A process with
    memory but no address for its variables is amid an exec.
    """
    try:
        has_memory = not (folder / "statm").read_text().startswith("0 ")
        if not has_memory or (folder / "environ").read_bytes():
            return 0
        # Behind the last ")": the name of a process stands in parentheses,
        # and may contain some, and spaces.
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return _PAUSES if int(fields[_ENV_START]) else _EXEC_PAUSES


def _is_marked(folder: Path, wanted: bytes) -> bool:
    try:
        variables = (folder / "environ").read_bytes()
    except OSError:  # it is another user's, or has ended
        return False
    return wanted in variables.split(b"\0")
