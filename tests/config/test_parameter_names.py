"""The names of parameters: one for each meaning, and told of in the docs if users set it."""

import re
from pathlib import Path

import pytest

from inferd.config import parameter_names

PAGES = sorted((Path(__file__).parents[2] / "docs/guide").glob("*.md"))
NAMES = {name: value for name, value in vars(parameter_names).items() if name.isupper()}
NOT_SET_BY_USERS = {"FOUND_OUTPUTS", "VERSION_NAME"}
"""What inferd writes into configurations that it makes itself."""


def test_each_has_its_own_name():
    assert len(set(NAMES.values())) == len(NAMES) > 10
    assert all(name.startswith("inferd_") for name in NAMES.values())


@pytest.mark.parametrize("name", sorted(NAMES.keys() - NOT_SET_BY_USERS))
def test_the_guide_tells_of_what_users_may_set(name):
    assert any(re.search(rf"\b{NAMES[name]}\b", page.read_text()) for page in PAGES)
