"""The filter, run as the kernel runs it, for both kinds of machines: one of them is elsewhere."""

import errno
import struct

import pytest

from inferd_worker.confinement.seccomp import MACHINES, NEWEST, program

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOWED = -1
NUMBERS = {  # on x86_64, on aarch64; from the kernel's tables
    "read": (0, 63),
    "openat": (257, 56),
    "execve": (59, 221),
    "sendmsg": (46, 211),
    "recvmsg": (47, 212),
    "futex": (202, 98),
    "socket": (41, 198),
    "connect": (42, 203),
    "sendto": (44, 206),
    "socketpair": (53, 199),
    "clone": (56, 220),
    "clone3": (435, 435),
    "prlimit64": (302, 261),
    "setpriority": (141, 140),
    "sched_setaffinity": (203, 122),
    "fchmodat": (268, 53),
    "utimensat": (280, 88),
    "fsetxattr": (190, 7),
    "io_uring_setup": (425, 425),
}
HIGH = 1 << 32
CASES = [
    *((name, (1 << 40, 2, 3, 0, 5, 6), ALLOWED) for name in ("read", "openat", "execve", "futex")),
    *((name, (3, HIGH, 0, 0, 0, 0), ALLOWED) for name in ("sendmsg", "recvmsg")),
    *(("socket", (family, 1, 0), errno.EPERM) for family in (1, 2, 10, 16, 38, 40)),
    ("connect", (3, HIGH, 16), errno.EPERM),
    ("sendto", (3, HIGH, 4, 0, 0, 0), ALLOWED),
    ("sendto", (3, HIGH, 4, 0, 1, 16), errno.EPERM),
    ("sendto", (3, HIGH, 4, 0, HIGH, 16), errno.EPERM),
    ("socketpair", (1, 1 | 0x80800, 0, HIGH), ALLOWED),
    ("socketpair", (1, 5 | 0x80000, 0, HIGH), ALLOWED),
    ("socketpair", (1, 2, 0, HIGH), errno.EPERM),
    ("socketpair", (1, 3, 0, HIGH), errno.EPERM),
    ("socketpair", (2, 1, 0, HIGH), errno.EPERM),
    ("clone", (0x3D0F00, 0, 0, 0, 0), ALLOWED),
    ("clone", (0x10000000 | 17, 0, 0, 0, 0), errno.EPERM),
    ("clone", (0x40000000 | 17, 0, 0, 0, 0), errno.EPERM),
    ("clone3", (HIGH, 88), errno.ENOSYS),
    ("prlimit64", (0, 7, HIGH, 0), ALLOWED),
    ("prlimit64", (4242, 7, 0, HIGH), ALLOWED),
    ("prlimit64", (4242, 7, HIGH, 0), errno.EPERM),
    ("prlimit64", (4242, 7, 1, 0), errno.EPERM),
    ("setpriority", (0, 0, 5), ALLOWED),
    ("setpriority", (0, 4242, 5), errno.EPERM),
    ("setpriority", (2, 0, 5), errno.EPERM),
    ("sched_setaffinity", (0, 8, HIGH), ALLOWED),
    ("sched_setaffinity", (4242, 8, HIGH), 0),
    ("fchmodat", (3, HIGH, 0o777), 0),
    ("utimensat", (3, HIGH, 0, 0), 0),
    ("fsetxattr", (3, HIGH, 0, 0, 0), errno.EOPNOTSUPP),
    ("io_uring_setup", (1, HIGH), errno.ENOSYS),
]


def verdict(machine, number, arguments=(), architecture=None):
    """Run the filter on a call; return its error, or ALLOWED."""
    steps = program(machine)
    padded = [*arguments, *[0] * (6 - len(arguments))]
    architecture = architecture or ARCHITECTURES[machine]
    data = struct.pack("<iIQ6Q", number, architecture, 0, *padded)
    accumulator = place = 0
    while True:
        code, if_true, if_false, operand = steps[place]
        place += 1
        if code == 0x20:
            [accumulator] = struct.unpack_from("<I", data, operand)
        elif code == 0x54:
            accumulator &= operand
        elif code in (0x15, 0x25):
            holds = accumulator == operand if code == 0x15 else accumulator > operand
            place += if_true if holds else if_false
        else:
            assert code == 0x06
            return ALLOWED if operand == 0x7FFF0000 else operand & 0xFFFF


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("name", "arguments", "expected"), CASES)
def test_each_call_is_allowed_or_not(machine, name, arguments, expected):
    assert verdict(machine, NUMBERS[name][MACHINES.index(machine)], arguments) == expected


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_not_known_is_not_there(machine):
    assert verdict(machine, NEWEST) == ALLOWED
    assert verdict(machine, NEWEST + 1) == errno.ENOSYS
    assert verdict(machine, 0x40000000 + 41) == errno.ENOSYS, "the other ABI of x86-64"


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("architecture", [0x40000003, 0x40000028], ids=["i386", "arm"])
def test_calls_of_the_older_processor_are_not_there(machine, architecture):
    assert verdict(machine, 3, (), architecture) == errno.ENOSYS
