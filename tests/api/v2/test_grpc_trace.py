"""The gRPC method of the trace extension: bytes in, buffers or an error out."""

import asyncio

import pytest
from tritonclient.grpc import service_pb2 as pb

from inferd.api.v2.grpc_trace import TraceMethods
from inferd.core.metadata import ModelState
from inferd.engine.engine import Engine
from inferd.errors import InvalidRequest, Unsupported


@pytest.fixture
def engine():
    engine = Engine()
    engine.set_state("m", 1, ModelState.LOADING)
    return engine


def called(engine, model="", **settings):
    request = pb.TraceSettingRequest(model_name=model)
    for name, values in settings.items():
        request.settings[name].value.extend(values)
    method = TraceMethods(engine).methods()["TraceSetting"]
    answer = asyncio.run(method.handler(request.SerializeToString(), None))
    told = pb.TraceSettingResponse.FromString(b"".join(answer)).settings
    return {name: list(value.value) for name, value in told.items()}


def test_an_empty_request_tells_all(engine):
    told = called(engine)
    assert len(told) == 6
    assert (told["trace_level"], told["trace_rate"]) == (["OFF"], ["1000"])


def test_settings_of_all_models_and_of_one_are_changed(engine):
    assert called(engine, trace_rate=["12"])["trace_rate"] == ["12"]
    assert called(engine, "m", trace_count=["3"])["trace_count"] == ["3"]
    assert called(engine, "m")["trace_rate"] == ["12"]
    assert called(engine)["trace_count"] == ["-1"]


@pytest.mark.parametrize(
    ("model", "settings", "error", "text"),
    [
        ("nope", {}, InvalidRequest, "Request for unknown model : nope"),
        ("", {"trace_rate": ["1", "2"]}, InvalidRequest, "expect only 1 value"),
        ("", {"trace_rate": ["1.5"]}, InvalidRequest, "expected a whole number"),
        ("", {"trace_rate": ["-1"]}, InvalidRequest, "expected a whole number"),
        ("", {"trace_file": ["/x"]}, Unsupported, "trace file location can not be updated"),
    ],
)
def test_what_is_wrong_is_refused(engine, model, settings, error, text):
    with pytest.raises(error, match=text):
        called(engine, model, **settings)
