"""The logging extension over REST and gRPC; what is changed is put back."""

import json
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from conformance.checks import check_ok, check_refused
from conformance.points import point
from conformance.rest import Rest
from conformance.rpc import Rpc
from tritonclient.grpc import service_pb2 as pb

KINDS = {
    "log_file": str,
    "log_info": bool,
    "log_warning": bool,
    "log_error": bool,
    "log_verbose_level": int,
    "log_format": str,
}
SETTINGS = point(116, "SHOULD", "GET /v2/logging: six keys; POST changes those it names")


def change(rest: Rest, **settings: Any) -> dict[str, Any]:
    """POST settings and return all as the answer tells them."""
    return check_ok(rest.request("POST", "/v2/logging", json.dumps(settings).encode()))


@pytest.fixture
def before(rest: Rest) -> Iterator[dict[str, Any]]:
    """The settings before the test, which get back."""
    settings = check_ok(rest.get("/v2/logging"))
    yield settings
    change(rest, log_verbose_level=settings.get("log_verbose_level"))


@SETTINGS
def test_the_log_settings_are_six(rest: Rest):
    settings = check_ok(rest.get("/v2/logging"))
    assert {name: type(value) for name, value in settings.items()} == KINDS


@SETTINGS
def test_a_log_setting_is_changed_and_the_others_stay(rest: Rest, before: dict[str, Any]):
    level = before["log_verbose_level"] + 1
    answer = change(rest, log_verbose_level=level, log_info=None, log_nothing=1)
    assert answer == before | {"log_verbose_level": level}
    assert check_ok(rest.get("/v2/logging")) == answer


@SETTINGS
def test_a_log_setting_of_the_wrong_type_is_refused(rest: Rest, before: dict[str, Any]):
    response = rest.request("POST", "/v2/logging", b'{"log_verbose_level":7,"log_info":"yes"}')
    check_refused(response, naming="log_info")
    assert check_ok(rest.get("/v2/logging")) == before


@SETTINGS
def test_the_log_goes_to_no_path_of_a_clients_choice(rest: Rest, before: dict[str, Any]):
    response = rest.request("POST", "/v2/logging", b'{"log_file":"/tmp/of-a-client"}')
    assert response.status in (400, 501), response
    assert check_ok(rest.get("/v2/logging")) == before


@SETTINGS
def test_log_settings_over_grpc(rest: Rest, rpc: Rpc, before: dict[str, Any]):
    request = pb.LogSettingsRequest()
    request.settings["log_verbose_level"].uint32_param = before["log_verbose_level"] + 1
    told = rpc.call("LogSettings", request).settings
    assert set(told) == set(KINDS)
    assert told["log_verbose_level"].uint32_param == before["log_verbose_level"] + 1
    assert told["log_info"].bool_param == before["log_info"]
    request.settings["log_info"].string_param = "yes"
    assert rpc.refusal("LogSettings", request).code() is grpc.StatusCode.INVALID_ARGUMENT
