"""What config.pbtxt may say of where and how long a model runs."""

import pytest

from inferd.backends.worker.parameters import check_in_server, runs_in_server, setting, timeout_s
from inferd.config.model import ModelConfig
from inferd.core.interfaces import BackendContext
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
        ({"inferd_execution_timeout_seconds": "5"}, {"process": "server"}, False),
        ({"inferd_memory_limit_bytes": "5e9"}, {"process": "server"}, False),
        ({"inferd_retry_lost_requests": "true"}, {"process": "server"}, False),
        ({"inferd_execution_timeout_seconds": "0"}, {"process": "server"}, True),
        ({"inferd_retry_lost_requests": "False"}, {"process": "server"}, True),
        ({"inferd_execution_timeout_seconds": "5", "inferd_process": "server"}, {}, True),
    ],
)
def test_the_model_says_where_it_runs_and_else_its_backends_setting(parameters, settings, expected):
    context = BackendContext(settings=settings)
    assert runs_in_server(config_of(**parameters), context) is expected


@pytest.mark.parametrize(
    ("parameters", "settings", "expected"),
    [
        ({"inferd_process": ""}, {}, "parameter inferd_process is '', expected server or worker"),
        ({}, {"process": "moon"}, "setting process of its backend is 'moon', expected server"),
    ],
)
def test_another_place_is_refused(parameters, settings, expected):
    with pytest.raises(InvalidConfig, match=expected):
        runs_in_server(config_of(**parameters), BackendContext(settings=settings))


def test_what_needs_a_process_of_its_own_is_refused_in_the_server():
    check_in_server(config_of(inferd_execution_timeout_seconds="0"))
    expected = "parameter inferd_execution_timeout_seconds needs a process of its own"
    with pytest.raises(InvalidConfig, match=expected):
        check_in_server(config_of(inferd_execution_timeout_seconds="5"))
    with pytest.raises(InvalidConfig, match="its environment needs a process of its own"):
        check_in_server(config_of(), "environment")


def test_numbers_are_read():
    assert timeout_s(config_of(inferd_execution_timeout_seconds="1.5")) == 1.5
    assert timeout_s(config_of()) == 0
    settings = {"x": "2.5", "empty": ""}
    assert setting(config_of(), settings, "x") == 2.5
    assert setting(config_of(), settings, "empty") == 0
    assert setting(config_of(), settings, "missing") == 0


@pytest.mark.parametrize("text", ["-1", "soon", "nan", "inf", "1e300"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(InvalidConfig, match=f"setting x of its backend is '{text}', expected a n"):
        setting(config_of(), {"x": text}, "x")
