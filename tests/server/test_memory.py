import subprocess
import sys

import pytest

PROGRAM = """
import resource
from inferd.server.process import keep_freed_memory
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


SPARED = """
import gc
from inferd.server.process import spare_loaded_objects
class Cycle:
    ended = 0
    def __init__(self):
        self.itself = self
    def __del__(self):
        Cycle.ended += 1
kept = [[] for _ in range(1000)]
Cycle()
spare_loaded_objects()
looked_at = {id(one) for one in gc.get_objects()}
print(Cycle.ended, sum(id(one) in looked_at for one in kept))
Cycle()
gc.collect()
print(Cycle.ended)
"""


def test_loaded_objects_are_spared_by_collections_and_garbage_is_not():
    command = [sys.executable, "-c", SPARED]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert found.stdout.split() == ["1", "0", "2"]
