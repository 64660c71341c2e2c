"""The CPU time of a server on this machine: of the processes that listen on its port.

Linux only; elsewhere, and for a server on another machine or in another container, nothing is
known.
"""

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
# TCP_LISTEN of the kernel's tcp_states.h, in hex as /proc/net/tcp has it.
_LISTENS = "0A"
_SOCKET = re.compile(r"socket:\[(\d+)\]")


def processes_at(host: str, port: int) -> list[int]:
    """Return the processes that listen on a port of this machine, and their descendants.

    There are none if `host` is another machine, or they are not to be seen.
    """
    if not is_here(host):
        return []
    inodes = set(_listening(port))
    if not inodes:
        return []
    parents: dict[int, int] = {}
    found = set()
    for pid in _pids():
        parents[pid] = _parent(pid)
        if inodes & set(_sockets(pid)):
            found.add(pid)
    # Parents may have larger numbers than their children, so one pass is not enough.
    size = -1
    while size != len(found):  # until no further descendant is found
        size = len(found)
        found |= {pid for pid, parent in parents.items() if parent in found}
    return sorted(found)


def cpu_seconds(pids: list[int]) -> float:
    """Return the CPU time that processes have used, those of their children that ended included."""
    return sum(map(_cpu_seconds, pids))


def is_here(host: str) -> bool:
    """Return whether `host` is this machine: a socket can be bound there."""
    try:
        places = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    for family, kind, protocol, _, address in places:
        try:
            with socket.socket(family, kind, protocol) as one:
                # The system itself says whether an address is one of this machine's; no traffic is
                # sent.
                one.bind(address)
        except OSError:
            continue
        return True
    return False


def _listening(port: int) -> Iterator[str]:
    """Yield the inodes of the sockets that listen on a port."""
    for name in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _pids() -> Iterator[int]:
    try:
        names = os.listdir(PROC)
    except OSError:
        return
    yield from (int(name) for name in names if name.isdecimal())


def _sockets(pid: int) -> Iterator[str]:
    """Yield the inodes of a process's sockets; of another user's process none are to be seen."""
    folder = PROC / str(pid) / "fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            found = _SOCKET.match(os.readlink(folder / name))
        except OSError:
            continue
        if found:
            yield found[1]


def _fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which may have any characters."""
    try:
        return (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _parent(pid: int) -> int:
    fields = _fields(pid)
    return int(fields[1]) if fields else 0


def _cpu_seconds(pid: int) -> float:
    fields = _fields(pid)
    if not fields:
        return 0.0
    # utime, stime, cutime and cstime (proc(5)), counted from the field after the name.
    ticks = sum(int(one) for one in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")
