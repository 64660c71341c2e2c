import pytest

from inferd.config.options.host_policy import HostPolicy, read_host_policies
from inferd.errors import InvalidConfig


def test_policies_are_known_by_name():
    assert read_host_policies(["a,cpu-cores=0-2,8", "b,numa-node=1", "a,numa-node=0"]) == {
        "a": HostPolicy(frozenset({0, 1, 2, 8}), 0),
        "b": HostPolicy(frozenset(), 1),
    }
    assert read_host_policies([]) == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a,",
        ",cpu-cores=1",
        "a,cores=1",
        "a,cpu-cores",
        "a,cpu-cores=",
        "a,cpu-cores=3-1",
        "a,cpu-cores=1,,2",
        "a,cpu-cores=-1",
        "a,cpu-cores=99999",
        "a,cpu-cores=0-99999999999",
        "a,cpu-cores=٣",
        "a,numa-node=",
        "a,numa-node=x",
        "a,numa-node=1-2",
        "a,numa-node=9999999",
    ],
)
def test_what_makes_no_sense_is_reported(text):
    with pytest.raises(InvalidConfig, match="--host-policy is"):
        read_host_policies([text])
