"""Runs inferd as if this machine had another operating system: python run.py macos|windows ARGS...

What that system lacks is taken away before inferd is imported: functions, constants, modules, and
by an audit hook, also for code written in C, files and sockets. What the standard library and the
frameworks need of it is loaded first. It cannot show what such a system does differently, only
that inferd does without what is not there.
"""

import asyncio
import ctypes
import errno
import logging.handlers
import multiprocessing.shared_memory
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime

LOADED_FIRST = (ctypes, logging.handlers, multiprocessing.shared_memory, np, onnxruntime, ssl)
LOADED_FIRST += (subprocess, tempfile)

ONLY_LINUX = {
    os: (
        *("eventfd", "memfd_create", "pidfd_open", "posix_fallocate", "sched_getaffinity"),
        *("sched_setaffinity", "splice", "MFD_ALLOW_SEALING", "MFD_CLOEXEC"),
    ),
    select: ("epoll",),
    signal: ("pidfd_send_signal",),
    socket: ("SOCK_SEQPACKET", "SO_PEERCRED", "SO_INCOMING_CPU"),
}
ONLY_POSIX = {
    os: (
        *("fchmod", "fork", "forkpty", "getegid", "geteuid", "getgid", "getgroups", "getpgid"),
        *("getuid", "killpg", "mkfifo", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "pread"),
        *("preadv", "pwrite", "pwritev", "sendfile", "setsid", "sysconf", "uname", "waitid"),
    ),
    select: ("poll",),
    signal: ("SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "pthread_sigmask"),
    socket: ("AF_UNIX", "SO_RCVLOWAT", "SO_REUSEPORT", "recv_fds", "send_fds"),
    socket.socket: ("recvmsg", "recvmsg_into", "sendmsg"),
}
POSIX_MODULES = ("fcntl", "grp", "pwd", "resource", "termios", "uvloop")
NO_FOLDERS = ("/proc/", "/sys/", "/dev/shm/", "/run/")
LINUX_CALLS = ("mallopt", "prctl", "timerfd_create", "timerfd_settime")
SEQPACKET = 5


def pretend(system: str) -> None:
    """Take away what `system` does not have."""
    is_windows = system == "windows"
    for table in (ONLY_LINUX, ONLY_POSIX) if is_windows else (ONLY_LINUX,):
        for owner, names in table.items():
            for name in names:
                if name in vars(owner):
                    delattr(owner, name)
                elif owner is socket.socket and hasattr(owner, name):
                    setattr(owner, name, property(_missing))
    os.process_cpu_count = os.cpu_count  # where threads cannot be told their processors
    if is_windows:
        for name in POSIX_MODULES:
            sys.modules[name] = None
        asyncio.SelectorEventLoop.add_signal_handler = _not_implemented
        socket.socketpair = _tcp_pair
    ctypes.CDLL = WindowsLibrary if is_windows else MacLibrary
    sys.platform = "win32" if is_windows else "darwin"
    sys.addaudithook(_refuse)


class MacLibrary(ctypes.CDLL):
    """A library of C; the system's own lacks what only Linux has."""

    def __getattr__(self, name: str) -> object:
        if name in LINUX_CALLS:
            raise AttributeError(name)
        return super().__getattr__(name)


class WindowsLibrary(ctypes.CDLL):
    """A library of C; there is no name for the one that the program has loaded."""

    def __init__(self, name: str | None, *args: object, **options: object) -> None:
        if name is None:
            msg = "argument of type 'NoneType' is not iterable"
            raise TypeError(msg)
        super().__init__(name, *args, **options)


def _missing(one: object) -> None:
    msg = "this system does not have it"
    raise AttributeError(msg)


def _tcp_pair(*_: object) -> tuple[socket.socket, socket.socket]:
    """As the standard library makes pairs of sockets on Windows."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    return one, other


def _not_implemented(*_: object) -> None:
    raise NotImplementedError


def _refuse(event: str, args: tuple) -> None:
    if event in ("open", "os.listdir", "os.scandir"):
        path = args[0]
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if isinstance(path, str) and f"{path}/".startswith(NO_FOLDERS):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    elif event == "socket.__new__" and args[2] == SEQPACKET:
        raise OSError(errno.EPROTONOSUPPORT, os.strerror(errno.EPROTONOSUPPORT))


if __name__ == "__main__":
    pretend(sys.argv[1])
    from inferd.cli.main import main

    sys.argv[0] = "inferd"
    sys.exit(main(sys.argv[2:]))
