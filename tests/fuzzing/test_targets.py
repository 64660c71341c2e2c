"""Each target of fuzz/ understands its seeds, and takes damaged ones: `make fuzz` begins there."""

import importlib
import random
from pathlib import Path

import pytest

TARGETS = sorted(path.stem for path in (Path(__file__).parents[2] / "fuzz/targets").glob("*.py"))
REFUSED = {
    "environment_archive": 2,  # those that would write outside
    "forests": 1,  # a model without trees
    "v2_json": 1,  # shared memory, which a codec by itself has none of
}
"""How many seeds of a target are there to be refused."""


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_understands_its_seeds(name):
    module = importlib.import_module(f"targets.{name}")
    assert len(module.SEEDS) > 1
    understood = [module.target(seed) for seed in module.SEEDS]
    assert understood.count(False) == REFUSED.get(name, 0), understood


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_says_in_its_first_line_what_is_read(name):
    module = importlib.import_module(f"targets.{name}")
    first, _, rest = module.__doc__.partition("\n")
    assert first.endswith(".") or rest


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_damaged_seeds_are_taken_too(name):
    module = importlib.import_module(f"targets.{name}")
    chance = random.Random(name)
    module.target(b"")
    for seed in module.SEEDS:
        for _ in range(20):
            damaged = bytearray(seed)
            at = chance.randrange(len(damaged))
            damaged[at : at + chance.randrange(4)] = chance.randbytes(chance.randrange(4))
            module.target(bytes(damaged))
