"""Trace settings as tritonclient reads and changes them, and the files that come of it."""

import json

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

DEFAULTS = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}
CLEAR = dict.fromkeys(["trace_level", "trace_rate", "trace_count", "log_frequency"])


@pytest.fixture
def over_http(server):
    with tritonclient.http.InferenceServerClient(server.http) as client:
        yield client
        client.update_trace_settings(settings=CLEAR)
        client.update_trace_settings("add_sub", CLEAR)


@pytest.fixture
def over_grpc(server, over_http):
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        yield client


def test_http_reads_changes_and_clears(over_http):
    assert over_http.get_trace_settings() == DEFAULTS
    change = {"trace_rate": "500", "trace_count": "3"}
    assert over_http.update_trace_settings(settings=change) == DEFAULTS | change
    own = over_http.update_trace_settings("add_sub", {"trace_rate": "1"})
    assert own == DEFAULTS | change | {"trace_rate": "1"}
    assert over_http.get_trace_settings("add_sub") == own
    assert over_http.update_trace_settings(settings=CLEAR) == DEFAULTS
    assert over_http.get_trace_settings("add_sub") == DEFAULTS | {"trace_rate": "1"}


def test_grpc_reads_changes_and_clears(over_grpc):
    told = over_grpc.update_trace_settings("add_sub", {"trace_rate": "5", "trace_count": "7"})
    assert told.settings["trace_rate"].value == ["5"]
    told = over_grpc.update_trace_settings("add_sub", {"trace_rate": None}).settings
    assert (told["trace_rate"].value, told["trace_count"].value) == (["1000"], ["7"])
    assert over_grpc.get_trace_settings(as_json=True)["settings"]["trace_level"] == {
        "value": ["OFF"]
    }


@pytest.mark.parametrize("client", ["over_http", "over_grpc"])
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"trace_file": "/tmp/x"}, "trace file location can not be updated"),
        ({"trace_level": ["OFF", "TENSORS"]}, "OFF"),
        ({"trace_rate": "x"}, "trace_rate"),
    ],
)
def test_what_is_wrong_is_refused(request, client, settings, text):
    client = request.getfixturevalue(client)
    with pytest.raises(InferenceServerException, match=text):
        client.update_trace_settings(settings=settings)


@pytest.mark.slow
def test_requests_of_both_protocols_are_in_the_trace_file(start, tmp_path):
    server = start(f"--trace-config=triton,file={tmp_path}/trace.json")
    array = np.arange(16, dtype=np.int32).reshape(1, 16)
    for kind in (tritonclient.http, tritonclient.grpc):
        inputs = [kind.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
        for one in inputs:
            one.set_data_from_numpy(array)
        address = server.http if kind is tritonclient.http else server.grpc
        with kind.InferenceServerClient(address) as client:
            on = {"trace_level": ["TIMESTAMPS", "TENSORS"], "trace_rate": "1"}
            client.update_trace_settings("add_sub", on)
            client.infer("add_sub", inputs, request_id=f"over {kind.__name__[-4:]}")
            client.infer("flat_INT32", [_flat(kind)])  # its settings are the global ones: OFF
    server.terminate()
    assert server.end() == 0
    objects = json.loads((tmp_path / "trace.json").read_text())
    traces = [one for one in objects if "model_name" in one]
    assert [(one["model_name"], one["model_version"], one["request_id"]) for one in traces] == [
        ("add_sub", 1, "over http"),
        ("add_sub", 1, "over grpc"),
    ]
    for trace, protocol in zip(traces, ("HTTP", "GRPC"), strict=True):
        own = [one for one in objects if one["id"] == trace["id"]]
        names = [one["timestamps"][0]["name"] for one in own if "timestamps" in one]
        assert len(names) == 12
        assert {"COMPUTE_INPUT_END", f"{protocol}_SEND_END"} <= set(names)
        tensors = [(one["activity"], one["tensor"]["name"]) for one in own if "tensor" in one]
        assert ("TENSOR_BACKEND_OUTPUT", "OUTPUT1") in tensors
        [total] = [one for one in own if one.get("tensor", {}).get("name") == "OUTPUT0"]
        assert total["tensor"] == {
            "name": "OUTPUT0",
            "data": ",".join(str(2 * i) for i in range(16)),
            "shape": "1,16",
            "dtype": "INT32",
        }


def _flat(kind):
    one = kind.InferInput("INPUT0", [1, 1], "INT32")
    one.set_data_from_numpy(np.zeros((1, 1), np.int32))
    return one
