"""What this operating system gives: here alone it is asked which system it is and what it lacks.

Linux has everything named here. Where another system lacks something there is a way without it, or
a text that says what is missing (docs/guide/systems.md). The environment variable INFERD_WITHOUT,
such as `uvloop,pidfd`, takes things away, so that these ways can be tested on Linux.
"""

import mmap
import os
import select
import signal
import socket
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Final

from inferd_worker.confinement import landlock, seccomp

if TYPE_CHECKING:
    import subprocess

WITHOUT: Final = frozenset(filter(None, os.environ.get("INFERD_WITHOUT", "").split(",")))

IS_LINUX: Final = sys.platform == "linux"
IS_WINDOWS: Final = sys.platform == "win32"


def _has(name: str, *attributes: tuple[object, str]) -> bool:
    return name not in WITHOUT and all(hasattr(owner, attribute) for owner, attribute in attributes)


UVLOOP: Final = _has("uvloop")
"""uvloop may be imported, if it is installed; else the event loop is asyncio's own."""

LOW_WATER: Final[int | None] = getattr(socket, "SO_RCVLOWAT", None) if _has("low-water") else None
"""The socket option that says how much must arrive before a socket is readable."""

UNIX_SOCKETS: Final = _has("unix-sockets", (socket, "AF_UNIX"))

SEQPACKET: Final = IS_LINUX and _has("seqpacket", (socket, "SOCK_SEQPACKET"))
"""Pairs of sockets that keep the boundaries of messages and tell of the other's end."""

MEMFD: Final = _has("memfd", (os, "memfd_create"))
"""Files in memory, without a name, that can be kept from shrinking."""

PIDFD: Final = _has("pidfd", (os, "pidfd_open"), (signal, "pidfd_send_signal"))
"""Descriptors of processes: to wait for their end beside other things, and to signal no other."""

POLL: Final = _has("poll", (select, "poll"))

USERS: Final = _has("users", (os, "geteuid"))
"""Files and processes belong to users with numbers, and modes tell who may use them."""

AFFINITY: Final = _has("affinity", (os, "sched_setaffinity"))
"""Threads can be told on which processors to run."""

SHM_FOLDER: Final = "/dev/shm" if IS_LINUX and _has("dev-shm") else None
"""Where POSIX shared memory objects are files; elsewhere they are opened by shm_open."""

GROUPS: Final = _has("groups", (os, "killpg"), (os, "setsid"))
"""Processes have groups and sessions, which can be signalled as a whole."""


CLOCK_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PAGE_BYTES: Final = mmap.PAGESIZE


WORKERS: Final = UNIX_SOCKETS and GROUPS and POLL
"""Models can have processes of their own, which inherit sockets and files."""

SEVERAL: Final = IS_LINUX and SEQPACKET
"""A server can be several processes, to which connections are passed."""


def user_id() -> int:
    """Return the number of the user whom this process acts for, 0 where users have none."""
    return os.geteuid() if USERS else 0


def is_private(status: os.stat_result, others: int = 0o022) -> bool:
    """Return whether a file or folder is this user's, and none of the mode bits `others` is set.

    Where users have no numbers, the folders of a user are closed to others by the system.
    """
    return not USERS or (status.st_uid == os.geteuid() and not status.st_mode & others)


def anonymous_file(name: str, size: int) -> int:
    """Return the descriptor of a file of `size` bytes that has no path.

    `name` is for tools that list open files. It can grow but, in memory (MEMFD), not shrink, so
    that no access to a mapping of it can fail. Raises OSError.
    """
    if not MEMFD:
        with tempfile.TemporaryFile(prefix="inferd-") as file:
            file.truncate(size)
            return os.dup(file.fileno())
    import fcntl

    descriptor = os.memfd_create(name[:200], os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return descriptor


def end_of(process: "subprocess.Popen[bytes]") -> int:
    """Return a descriptor that poll() finds readable once a child of this process has ended.

    Without PIDFD a thread waits for it. The caller closes the descriptor.
    """
    if PIDFD:
        return os.pidfd_open(process.pid)
    descriptor, other = os.pipe()

    def wait() -> None:
        process.wait()
        os.close(other)

    threading.Thread(target=wait, name="end-of-process", daemon=True).start()
    return descriptor


def lock_file(descriptor: int, *, is_shared: bool = False, waits: bool = False) -> None:
    """Lock an open file until it is closed; without `waits`, raise BlockingIOError if another has.

    Windows has no such locks, and nothing that needs them.
    """
    import fcntl

    how = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    fcntl.flock(descriptor, how if waits else how | fcntl.LOCK_NB)


def missing_for_confinement() -> str:
    """Return why worker processes cannot be confined here, "" if they can."""
    if not IS_LINUX:
        return f"this is {sys.platform}"
    machine = os.uname().machine
    if machine not in seccomp.MACHINES:
        return f"this machine is {machine}, expected {' or '.join(seccomp.MACHINES)}"
    version = landlock.version() if _has("landlock") else 0
    if not version:
        return "this kernel has none, or it is turned off"
    if version < landlock.NEEDED:
        return f"this kernel has version {version} of it, expected {landlock.NEEDED} or newer"
    return ""


def peak_memory_bytes() -> int:
    """Return the most memory that this process or one of its children has had; 0 if unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = max(
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return int(most) * (1024 if IS_LINUX else 1)  # macOS counts bytes


def how_ended(code: int) -> str:
    """Return how a process ended that has this exit code: "exit code 1", or "SIGKILL"."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
