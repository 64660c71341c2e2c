"""What config.pbtxt may say of where and how long a model runs."""

import pytest

from inferd.backends.worker.parameters import parameter, runs_in_server, timeout_s
from inferd.config.model import ModelConfig
from inferd.errors import InvalidConfig


def config_of(**parameters):
    return ModelConfig("m", parameters=parameters)


@pytest.mark.parametrize(
    ("parameters", "settings", "expected"),
    [
        ({}, {}, False),
        ({}, {"process": "server"}, True),
        ({"inferd_process": "worker"}, {"process": "server"}, False),
        ({"inferd_process": "server"}, {}, True),
    ],
)
def test_the_model_says_where_it_runs_and_else_its_backends_setting(parameters, settings, expected):
    assert runs_in_server(config_of(**parameters), settings) is expected


@pytest.mark.parametrize(
    ("parameters", "settings", "expected"),
    [
        ({"inferd_process": ""}, {}, "parameter inferd_process is '', expected server or worker"),
        ({}, {"process": "moon"}, "setting process of its backend is 'moon', expected server"),
    ],
)
def test_another_place_is_refused(parameters, settings, expected):
    with pytest.raises(InvalidConfig, match=expected):
        runs_in_server(config_of(**parameters), settings)


def test_numbers_are_read():
    config = config_of(inferd_execution_timeout_seconds="1.5", empty="")
    assert timeout_s(config) == 1.5
    assert parameter(config, "empty") == 0
    assert parameter(config, "missing") == 0


@pytest.mark.parametrize("text", ["-1", "soon", "nan", "inf", "1e300"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(InvalidConfig, match=f"x is '{text}', expected a number of 0 or more"):
        parameter(config_of(x=text), "x")
