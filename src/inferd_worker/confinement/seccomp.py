"""Seccomp: the filter of system calls, a program for the kernel's BPF machine (seccomp(2)).

Files that are opened are left to Landlock. Refused is what goes past it: sockets, rings, the
kernel's objects without a path, and what changes files or other processes without opening them.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from typing import Any, NamedTuple

from .landlock import checked

MACHINES = ("x86_64", "aarch64")
"""What os.uname() calls the machines whose numbers are known here."""

NEWEST = 462
"""The last number whose meaning is known here, mseal of Linux 6.10. Later ones are "not there"."""

_IGNORED = 0  # the caller is told that it was done


class Word(NamedTuple):
    """A test of an argument, of 32 bits of it: `masked` by that, it is `value`."""

    argument: int
    value: int
    masked: int = 0xFFFFFFFF
    is_high: bool = False


class Rule(NamedTuple):
    """A call is allowed if all words of one of `unless` hold; otherwise it has this `error`."""

    error: int
    unless: tuple[tuple[Word, ...], ...] = ()


_NUMBERS: dict[str, tuple[int, ...]] = {
    # In the order of MACHINES; those with one number have no such call on the second.
    "socket": (41, 198),
    "connect": (42, 203),
    "accept": (43, 202),
    "sendto": (44, 206),
    "bind": (49, 200),
    "listen": (50, 201),
    "socketpair": (53, 199),
    "accept4": (288, 242),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "unshare": (272, 97),
    "setns": (308, 268),
    "clone": (56, 220),
    "clone3": (435, 435),
    "prlimit64": (302, 261),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "utimensat": (280, 88),
    "chmod": (90,),
    "chown": (92,),
    "lchown": (94,),
    "utime": (132,),
    "utimes": (235,),
    "futimesat": (261,),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
}

_UNIX, _STREAM, _SEQPACKET, _TYPES = 1, 1, 5, 0xF
_NEW_NAMESPACES = 0x7E020000  # the flags CLONE_NEW* that clone() takes
_ONESELF = Word(0, 0)


def _null(argument: int) -> tuple[Word, ...]:
    return Word(argument, 0), Word(argument, 0, is_high=True)


_RULES: dict[str, Rule] = {
    # Whoever has a pair of datagram sockets may send to any name; those of the other kinds are
    # connected to each other for good.
    "socketpair": Rule(
        errno.EPERM,
        tuple((Word(0, _UNIX), Word(1, kind, _TYPES)) for kind in (_STREAM, _SEQPACKET)),
    ),
    "sendto": Rule(errno.EPERM, (_null(4),)),
    "clone": Rule(errno.EPERM, ((Word(0, 0, _NEW_NAMESPACES),),)),
    # Its flags are not among its arguments; libraries make it a clone() then.
    "clone3": Rule(errno.ENOSYS),
    "io_uring_setup": Rule(errno.ENOSYS),
    # Limits, priorities and processors of other processes, such as the server.
    "prlimit64": Rule(errno.EPERM, ((_ONESELF,), _null(2))),
    "setpriority": Rule(errno.EPERM, ((_ONESELF, Word(1, 0)),)),
    "ioprio_set": Rule(errno.EPERM, ((Word(0, 1), Word(1, 0)),)),
    "sched_setparam": Rule(errno.EPERM, ((_ONESELF,),)),
    "sched_setscheduler": Rule(errno.EPERM, ((_ONESELF,),)),
    "sched_setattr": Rule(errno.EPERM, ((_ONESELF,),)),
    # Libraries bind each of their threads to a processor by its number.
    "sched_setaffinity": Rule(_IGNORED, ((_ONESELF,),)),
    # Modes, owners and times of any file could be changed, wherever it lies. Whoever copies a file
    # copies these, too, and would fail.
    **dict.fromkeys(("chmod", "fchmod", "fchmodat", "fchmodat2"), Rule(_IGNORED)),
    **dict.fromkeys(("chown", "lchown", "fchown", "fchownat"), Rule(_IGNORED)),
    **dict.fromkeys(("utime", "utimes", "futimesat", "utimensat"), Rule(_IGNORED)),
    **dict.fromkeys(("setxattr", "lsetxattr", "fsetxattr"), Rule(errno.EOPNOTSUPP)),
    **dict.fromkeys(("removexattr", "lremovexattr", "fremovexattr"), Rule(errno.EOPNOTSUPP)),
}


def rules_of(machine: str) -> list[tuple[int, Rule]]:
    """Return the numbers on one of MACHINES, each with its rule."""
    column = MACHINES.index(machine)
    refused = Rule(errno.EPERM)
    return [
        (numbers[column], _RULES.get(name, refused))
        for name, numbers in _NUMBERS.items()
        if column < len(numbers)
    ]


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
        body = [step for words in rule.unless for step in _allowed_if(words)]
        body.append((_RETURN, 0, 0, _ERROR | rule.error))
        steps += [(_IF_EQUAL, 0, len(body), number), *body]
    return [*steps, (_RETURN, 0, 0, _ALLOW)]


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
