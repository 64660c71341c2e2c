"""Seccomp: the filter of system calls, a program for the kernel's BPF machine (seccomp(2))."""

from __future__ import annotations

import ctypes
import errno
import struct
from typing import Any

from .landlock import checked
from .system_calls import MACHINES, NEWEST, Rule, Word, rules_of

_AUDIT_ARCH = dict(zip(MACHINES, (0xC000003E, 0xC00000B7)))
_SET_SECCOMP, _FILTER = 22, 2  # of prctl
_LOAD, _AND, _IF_EQUAL, _IF_GREATER, _RETURN = 0x20, 0x54, 0x15, 0x25, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000

Step = tuple[int, int, int, int]
"""An instruction: its code, the steps to skip if it is true, if it is false, and its operand."""


def program(machine: str) -> list[Step]:
    """Return the filter for one of MACHINES.

    The calls of another architecture, which this processor may also run, are "not there".
    """
    not_there = (_RETURN, 0, 0, _ERROR | errno.ENOSYS)
    steps: list[Step] = [
        (_LOAD, 0, 0, _ARCH),
        (_IF_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        not_there,
        (_LOAD, 0, 0, _NUMBER),
        (_IF_GREATER, 0, 1, NEWEST),
        not_there,
    ]
    for number, rule in rules_of(machine):
        body = _body(rule)
        steps += [(_IF_EQUAL, 0, len(body), number), *body]
    return [*steps, (_RETURN, 0, 0, _ALLOW)]


def _body(rule: Rule) -> list[Step]:
    steps: list[Step] = []
    for words in rule.unless:
        steps += _allowed_if(words)
    return [*steps, (_RETURN, 0, 0, _ERROR | rule.error)]


def _allowed_if(words: tuple[Word, ...]) -> list[Step]:
    steps: list[Step] = [(_RETURN, 0, 0, _ALLOW)]
    for word in reversed(words):
        low = _ARGUMENTS + 8 * word.argument  # both machines are little-endian
        steps = [
            (_LOAD, 0, 0, low + 4 * word.is_high),
            (_AND, 0, 0, word.masked),
            (_IF_EQUAL, 0, len(steps), word.value),
            *steps,
        ]
    return steps


def restrict(libc: Any, machine: str) -> None:
    """Filter the calls of this thread and of what it starts. It needs no_new_privs.

    Raises OSError.
    """
    steps = program(machine)
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    memory = ctypes.create_string_buffer(code, len(code))
    filtering = struct.pack("@HP", len(steps), ctypes.addressof(memory))
    checked(libc.prctl(_SET_SECCOMP, _FILTER, filtering, 0, 0))
