"""Log settings as tritonclient reads and changes them; each test puts back what it changed."""

import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

DEFAULTS = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}


@pytest.fixture
def over_http(server):
    with tritonclient.http.InferenceServerClient(server.http) as client:
        yield client
        client.update_log_settings(DEFAULTS)


@pytest.fixture
def over_grpc(server, over_http):
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        yield client


def test_what_http_has_read_it_may_send_back_changed(over_http):
    settings = over_http.get_log_settings()
    assert settings == DEFAULTS
    changed = settings | {"log_verbose_level": 2, "log_format": "ISO8601"}
    assert over_http.update_log_settings(changed) == changed
    assert over_http.get_log_settings() == changed


def test_grpc_reads_and_changes_them_too(over_grpc):
    told = over_grpc.get_log_settings(as_json=True)["settings"]
    assert told["log_format"] == {"string_param": "default"}
    change = {"log_info": False, "log_verbose_level": 1, "log_error": None}
    told = over_grpc.update_log_settings(change).settings
    assert (told["log_info"].bool_param, told["log_error"].bool_param) == (False, True)
    assert told["log_verbose_level"].uint32_param == 1


@pytest.mark.parametrize("client", ["over_http", "over_grpc"])
def test_the_log_file_is_the_operators(request, client):
    client = request.getfixturevalue(client)
    with pytest.raises(InferenceServerException, match="log file location can not be updated"):
        client.update_log_settings({"log_file": "/tmp/log"})
