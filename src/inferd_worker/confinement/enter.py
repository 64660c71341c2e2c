"""Enter: confines this process, then becomes the program that is to be confined."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from typing import Any

from . import landlock, seccomp
from .landlock import checked

_SET_NO_NEW_PRIVS = 38
_CAPABILITIES = struct.pack("=Ii", 0x20080522, 0)  # their third version, of this process
_DAC_OVERRIDE = 1 << 1


def main(arguments: list[str]) -> None:
    """Confine this process and run a command in its place.

    `arguments` are the number of paths that it may write, these paths, and the command. If that
    cannot be, the process ends with code 1 and says why.
    """
    count = int(arguments[0])
    writable, command = arguments[1 : 1 + count], arguments[1 + count :]
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        checked(libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        landlock.restrict(libc, writable)
        _drop_capabilities(libc)
        seccomp.restrict(libc, os.uname().machine)
    except OSError as error:
        sys.exit(f"the process cannot be confined: {error}")
    try:
        os.execv(command[0], command)
    except OSError as error:
        sys.exit(f"{os.path.basename(command[0])} cannot be started: {error.strerror}")


def _drop_capabilities(libc: Any) -> None:
    """Leave root no more than that the modes of files do not bind it."""
    given = ctypes.create_string_buffer(24)
    checked(libc.capget(_CAPABILITIES, given))
    left = struct.unpack_from("=6I", given)[1] & _DAC_OVERRIDE  # of those that are permitted
    checked(libc.capset(_CAPABILITIES, struct.pack("=6I", left, left, 0, 0, 0, 0)))
