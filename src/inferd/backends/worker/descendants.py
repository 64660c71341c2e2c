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
_PAUSES = 5  # for those that have no variables yet
_PAUSE_S = 0.01


def end_descendants(mark: str, pause: Callable[[float], object] = time.sleep) -> int:
    """Kill every process that has `mark`; return how many there were.

    One that is just becoming another program shows no variables, but has them: those who show none
    are looked at again, some `pause`s later.
    """
    wanted = f"{VARIABLE}={mark}".encode()
    ended_count = pause_count = 0
    for _ in range(_ROUNDS):
        pids = [int(name) for name in os.listdir(_PROCESSES) if name.isdigit()]
        found = sum(_end(pid, wanted) for pid in pids)
        ended_count += found
        if found:
            continue
        if pause_count == _PAUSES or not any(map(_shows_none, pids)):
            break
        pause_count += 1
        pause(_PAUSE_S)
    return ended_count


def _end(pid: int, wanted: bytes) -> bool:
    """Kill the process `pid` if it is one of ours, and alive."""
    if not _is_marked(pid, wanted):
        return False
    try:
        process = os.pidfd_open(pid)
    except OSError:  # it has ended meanwhile
        return False
    try:
        # The number may be another's by now: what is asked of it now is this one's, or nobody's.
        if not _is_marked(pid, wanted):
            return False
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
        end = select.poll()
        end.register(process, select.POLLIN)
        end.poll(_END_MS)
        return True
    finally:
        os.close(process)


def _shows_none(pid: int) -> bool:
    """Tell whether `pid` shows no variables, though it has memory: the system's own have none."""
    folder = _PROCESSES / str(pid)
    try:
        has_memory = not (folder / "statm").read_text().startswith("0 ")
        return has_memory and not (folder / "environ").read_bytes()
    except OSError:
        return False


def _is_marked(pid: int, wanted: bytes) -> bool:
    try:
        variables = (_PROCESSES / str(pid) / "environ").read_bytes()
    except OSError:  # another user's, or it has ended
        return False
    return wanted in variables.split(b"\0")
