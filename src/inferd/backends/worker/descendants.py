"""Descendants: the processes that a worker has started, and what these have, wherever they are.

Those that lead a session or a group of their own are not killed with the worker's, and when it has
ended nothing leads from it to them any more. So each worker has a mark among its environment
variables, which all inherit that do not leave their environment behind.
"""

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

VARIABLE = "INFERD_WORKER"
"""The environment variable with the mark of a worker."""

_PROCESSES = Path("/proc")
_END_MS = 1000
_ROUNDS = 20  # of looks, for those that start others meanwhile
_PAUSES = 5  # for those that have no variables
_EXEC_PAUSES = 300  # for those amid an exec, which takes as long as the machine lets them wait
_PAUSE_S = 0.01
_ENV_START = 47  # of the fields of `stat` behind the name; proc(5) counts from the number: 50


def end_descendants(
    mark: str, pause: Callable[[float], object] = time.sleep, processes: Path = _PROCESSES
) -> int:
    """Kill every process that has `mark`; return how many there were.

    One that is just becoming another program shows no variables, but has them: those who show none
    are looked at again, some `pause`s later. `processes` is a folder such as /proc.
    """
    wanted = f"{VARIABLE}={mark}".encode()
    ended_count = pause_count = round_count = 0
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
    """Kill the process of `folder` if it is one of ours, and alive."""
    if not _is_marked(folder, wanted):
        return False
    try:
        process = os.pidfd_open(int(folder.name))
    except OSError:  # it has ended meanwhile
        return False
    try:
        # The number may be another's by now: what is asked of it now is this one's, or nobody's.
        if not _is_marked(folder, wanted):
            return False
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
        end = select.poll()
        end.register(process, select.POLLIN)
        end.poll(_END_MS)
        return True
    finally:
        os.close(process)


def _pauses(folder: Path) -> int:
    """Return how many pauses a process may take until it shows variables.

    None for those that show some, and for the system's own, which have no memory. One with
    memory, and nowhere in it a place for variables, is amid an exec.
    """
    try:
        has_memory = not (folder / "statm").read_text().startswith("0 ")
        if not has_memory or (folder / "environ").read_bytes():
            return 0
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return _PAUSES if int(fields[_ENV_START]) else _EXEC_PAUSES


def _is_marked(folder: Path, wanted: bytes) -> bool:
    try:
        variables = (folder / "environ").read_bytes()
    except OSError:  # another user's, or it has ended
        return False
    return wanted in variables.split(b"\0")
