import pytest

from inferd.config.options.rate_limit import read_resources
from inferd.errors import InvalidConfig


def test_a_resource_has_a_count_for_all_devices_or_one():
    limits = read_resources(["R:4", "R:2:1", "other thing:0", "Q:3:-1"])
    assert limits == {("R", None): 4, ("R", 1): 2, ("other thing", None): 0, ("Q", None): 3}


@pytest.mark.parametrize(
    "text",
    ["", "R", "R:", ":1", "R:x", "R:-1", "R:1:", "R:1:2:3", "R:1:-2", "R:1:-1:-1", "R:1e9", "R:²"],
)
def test_what_is_no_resource_is_refused(text):
    with pytest.raises(InvalidConfig, match=r"--rate-limit-resource is '.*', expected NAME:COUNT"):
        read_resources([text])


def test_a_count_has_a_limit():
    with pytest.raises(InvalidConfig):
        read_resources(["R:" + "9" * 5000])
