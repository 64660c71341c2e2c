"""Descendants: the processes that a worker has started, and what these have, wherever they are.

Those that lead a session or a group of their own are not killed with the worker's, and when it has
ended nothing leads from it to them any more. So each worker has a mark among its environment
variables, which all inherit that do not leave their environment behind.
"""

import os
import select
import signal
from contextlib import suppress
from pathlib import Path

VARIABLE = "INFERD_WORKER"
"""The environment variable with the mark of a worker."""

_PROCESSES = Path("/proc")
_END_MS = 1000
_ROUNDS = 20  # of looks, for those that start others meanwhile


def end_descendants(mark: str) -> int:
    """Kill every process that has `mark`; return how many there were."""
    wanted = f"{VARIABLE}={mark}".encode()
    ended_count = 0
    for _ in range(_ROUNDS):
        found = sum(_end(int(name), wanted) for name in os.listdir(_PROCESSES) if name.isdigit())
        if not found:
            break
        ended_count += found
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


def _is_marked(pid: int, wanted: bytes) -> bool:
    try:
        variables = (_PROCESSES / str(pid) / "environ").read_bytes()
    except OSError:  # another user's, or it has ended
        return False
    return wanted in variables.split(b"\0")
