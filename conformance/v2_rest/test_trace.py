"""The trace extension over REST and gRPC; what is changed is put back."""

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

PATH = "/v2/trace/setting"
OF_MODEL = "/v2/models/m/trace/setting"
SETTINGS = point(115, "SHOULD", 'POST /v2/trace/setting {"trace_rate":"500"}: echoed')


def change(rest: Rest, path: str = PATH, **settings: Any) -> dict[str, Any]:
    """POST settings and return all as the answer tells them."""
    return check_ok(rest.request("POST", path, json.dumps(settings).encode()))


@pytest.fixture
def before(rest: Rest) -> Iterator[dict[str, Any]]:
    """The settings before the test, which get back."""
    yield check_ok(rest.get(PATH))
    change(rest, OF_MODEL, trace_rate=None)
    change(rest, trace_rate=None)


@SETTINGS
def test_a_trace_setting_is_echoed_and_told(rest: Rest, before: dict[str, Any]):
    assert {"trace_level", "trace_rate", "trace_count", "trace_mode"} <= before.keys()
    assert isinstance(before["trace_level"], list)
    answer = change(rest, trace_rate="500", trace_nothing="1")
    assert answer == before | {"trace_rate": "500"}
    assert check_ok(rest.get(PATH)) == answer


@SETTINGS
def test_a_model_has_settings_of_its_own_until_they_are_cleared(rest: Rest, before: dict[str, Any]):
    assert check_ok(rest.get(OF_MODEL)) == before
    assert change(rest, OF_MODEL, trace_rate="7")["trace_rate"] == "7"
    assert change(rest, trace_rate="500")["trace_rate"] == "500"
    assert change(rest, OF_MODEL, trace_rate=None)["trace_rate"] == "500"
    assert change(rest, trace_rate=None) == before


@SETTINGS
@pytest.mark.parametrize(
    ("body", "naming"),
    [
        (b"", ""),
        (b'{"trace_rate":500}', "trace_rate"),
        (b'{"trace_level":"OFF"}', "trace_level"),
        (b'{"trace_level":["OFF","TENSORS"]}', "trace_level"),
    ],
)
def test_a_wrong_trace_setting_is_refused(
    rest: Rest, before: dict[str, Any], body: bytes, naming: str
):
    check_refused(rest.request("POST", PATH, body), naming=naming)
    assert check_ok(rest.get(PATH)) == before


@SETTINGS
def test_traces_go_to_no_path_of_a_clients_choice(rest: Rest, before: dict[str, Any]):
    response = rest.request("POST", PATH, b'{"trace_file":"/tmp/of-a-client"}')
    assert response.status in (400, 501), response
    assert check_ok(rest.get(PATH)) == before


@SETTINGS
def test_the_trace_settings_of_an_unknown_model_are_refused(rest: Rest):
    check_refused(rest.get("/v2/models/nope/trace/setting"), naming="nope")


@SETTINGS
def test_trace_settings_over_grpc(rpc: Rpc, before: dict[str, Any]):
    request = pb.TraceSettingRequest(model_name="m")
    request.settings["trace_rate"].value.append("12")
    told = rpc.call("TraceSetting", request).settings
    assert list(told["trace_rate"].value) == ["12"]
    assert list(told["trace_level"].value) == before["trace_level"]
    request.settings["trace_rate"].value.append("13")
    assert rpc.refusal("TraceSetting", request).code() is grpc.StatusCode.INVALID_ARGUMENT
    del request.settings["trace_rate"].value[:]
    told = rpc.call("TraceSetting", request).settings
    assert list(told["trace_rate"].value) == [before["trace_rate"]]
