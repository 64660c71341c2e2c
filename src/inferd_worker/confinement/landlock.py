"""Landlock: what a process may write, and whom it may signal, from now on and with all it starts.

The rules and the numbers are those of Linux's landlock(7) and linux/landlock.h.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from typing import Any

NEEDED = 6
"""The version of Landlock's interface that is needed; Linux 6.12 has it.

From 2 on files cannot be moved out of where they may be written, from 3 on not be cut elsewhere,
from 5 on devices take no ioctl, from 6 on signals reach none but confined processes.
"""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all machines
_ASK_VERSION = 1
_PATH_BENEATH = 1

_WRITE_FILE, _REFER, _TRUNCATE, _IOCTL_DEV = (1 << bit for bit in (1, 13, 14, 15))
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))  # folders, files, devices, links, sockets
_OF_FILES = _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
_OF_FOLDERS = _OF_FILES | _REFER | _REMOVE_AND_MAKE
_TCP = 3  # to bind and to connect
_SCOPES = 3  # abstract sockets and signals


def version() -> int:
    """Return the version of the kernel's interface, 0 if there is none."""
    found: int = ctypes.CDLL(None).syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)
    return max(found, 0)


def restrict(libc: Any, writable: list[str]) -> None:
    """Let this thread and what it starts write only `writable`, files, and folders as a whole.

    It needs no_new_privs. Raises OSError, also if one of them is not there.
    """
    handled = struct.pack("=QQQ", _OF_FOLDERS, _TCP, _SCOPES)
    ruleset = checked(libc.syscall(_CREATE_RULESET, handled, len(handled), 0))
    for path in writable:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
        is_folder = stat.S_ISDIR(os.fstat(beneath).st_mode)
        rule = struct.pack("=Qi", _OF_FOLDERS if is_folder else _OF_FILES, beneath)
        checked(libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0))
        os.close(beneath)
    checked(libc.syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def checked(result: int) -> int:
    """Return the `result` of a system call. Raises OSError if it failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
