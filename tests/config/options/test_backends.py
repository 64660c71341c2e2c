"""What models run with: settings of backends, processors, resources, limits of GPUs, delays."""

import pytest

from inferd.config.contradictions import check_server_config
from inferd.config.options.backends import (
    NO_DELAY,
    DelayedStart,
    HostPolicy,
    read_delayed_start,
    read_gpu_limits,
    read_host_policies,
    read_resources,
    settings_of,
)
from inferd.config.server import ServerConfig
from inferd.errors import InvalidConfig


def test_a_backend_has_its_own_settings_and_those_of_all_the_last_of_a_name():
    given = ["a=1", "one,a=2", "two,a=3", "one,b=x,y=z", "c="]
    assert settings_of("one", given) == {"a": "2", "b": "x,y=z", "c": ""}
    assert settings_of("three", given) == {"a": "1", "c": ""}


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


def test_each_gpu_has_its_share_and_the_last_word_counts():
    assert read_gpu_limits(["0:0.9", "1:.5", "0:1", "2:0"]) == {0: 1.0, 1: 0.5, 2: 0.0}
    assert read_gpu_limits([]) == {}


@pytest.mark.parametrize(
    "text", ["", "0", "0:", ":0.5", "0:1.1", "0:-1", "0:90%", "a:0.5", "0:.", "0:nan", "0:1e-1"]
)
def test_anything_else_is_refused_at_the_start(text):
    with pytest.raises(InvalidConfig, match=f"limit is '{text}', expected DEVICE:FRACTION"):
        check_server_config(ServerConfig(model_load_gpu_limit=("0:0.5", text)))


def test_without_the_variables_nothing_is_delayed():
    assert read_delayed_start({}) == DelayedStart(0, 0)
    assert read_delayed_start({"TRITONSERVER_DELAY_SCHEDULER": "", "OTHER": "5"}) == NO_DELAY


def test_each_variable_has_its_number():
    assert read_delayed_start({"TRITONSERVER_DELAY_SCHEDULER": "3"}) == DelayedStart(3, 0)
    assert read_delayed_start({"TRITONSERVER_BACKLOG_DELAY_SCHEDULER": "2"}) == DelayedStart(0, 2)


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "٣", "9" * 10, " "])
def test_what_is_no_number_of_requests_is_reported(text):
    with pytest.raises(InvalidConfig, match="TRITONSERVER_DELAY_SCHEDULER is"):
        read_delayed_start({"TRITONSERVER_DELAY_SCHEDULER": text})
