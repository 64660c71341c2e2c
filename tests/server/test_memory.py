import subprocess
import sys

import pytest

PROGRAM = """
import resource
from inferd.server.memory import keep_freed_memory
if {keeps}:
    keep_freed_memory({environ})
def take():
    return [bytearray(4 << 20) for _ in range(4)]
for _ in range(4):
    take()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    take()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES = 4 * 4 * 1024
"""What the four rounds that are counted take."""


def faults(*, keeps, environ=""):
    program = PROGRAM.format(keeps=keeps, environ=environ)
    reported = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    return int(reported)


@pytest.mark.slow
def test_memory_that_was_given_back_is_taken_again_without_a_fault():
    assert faults(keeps=False) > PAGES // 2
    assert faults(keeps=True) < PAGES // 100


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_who_has_settings_of_their_own_keeps_them(name):
    assert faults(keeps=True, environ={name: "1"}) > PAGES // 2
