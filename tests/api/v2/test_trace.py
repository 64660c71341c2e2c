"""The calls of V2's trace: HTTP over a real socket, gRPC by bytes alone."""

import asyncio

import pytest
from tritonclient.grpc import service_pb2 as pb

from inferd.api.call import V2_SERVICE, grpc_handlers
from inferd.api.v2.calls import CALLS
from inferd.core.metadata import ModelState
from inferd.engine.engine import Engine
from inferd.errors import InvalidRequest, Unsupported

SECTION = [call for call in CALLS if call.section == "trace"]

OFF = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}
GET = b"GET /v2/trace/setting HTTP/1.1\r\n\r\n"
GET_MODEL = b"GET /v2/models/id/trace/setting HTTP/1.1\r\n\r\n"


async def test_settings_are_told_changed_and_cleared(serving, post):
    async with serving() as site:
        assert (await site.ask(GET)).json == OFF
        answer = await site.ask(post("/v2/trace/setting", b'{"trace_rate":"500","x":1}'))
        assert (answer.status, answer.json) == (200, OFF | {"trace_rate": "500"})
        own = OFF | {"trace_rate": "500", "trace_count": "7"}
        answer = await site.ask(post("/v2/models/id/trace/setting", b'{"trace_count":"7"}'))
        assert (answer.status, answer.json) == (200, own)
        assert (await site.ask(GET_MODEL)).json == own
        await site.ask(post("/v2/trace/setting", b'{"trace_rate":null}'))
        assert (await site.ask(GET_MODEL)).json == own | {"trace_rate": "1000"}
        assert (await site.ask(GET)).json == OFF


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("/v2/trace/setting", b"", 400, "failed to parse the request JSON"),
        ("/v2/trace/setting", b'{"trace_rate":5}', 400, "trace_rate is 5"),
        ("/v2/trace/setting", b'{"trace_level":["OFF","TENSORS"]}', 400, "OFF"),
        *(
            ("/v2/trace/setting", b'{"trace_rate":"%b"}' % text, 400, "expected a whole number")
            for text in (b"1.5", b" 5", b"-1", b"")
        ),
        ("/v2/trace/setting", b'{"trace_file":"x"}', 501, "trace file location can not be updated"),
        ("/v2/trace/setting", b'{"trace_mode":"opentelemetry"}', 501, "trace_mode cannot be"),
        ("/v2/models/nope/trace/setting", b"{}", 400, "Request for unknown model : nope"),
        ("/v2/models/id/versions/1/trace/setting", b"{}", 404, "there is nothing at"),
    ],
)
async def test_what_is_wrong_is_said_and_changes_nothing(serving, post, path, body, status, text):
    async with serving() as site:
        answer = await site.ask(post(path, body))
        assert answer.status == status
        assert text in answer.error
        assert (await site.ask(GET)).json == OFF


async def test_a_level_without_a_trace_file_is_taken_and_has_no_effect(serving, post, infer):
    async with serving() as site:
        answer = await site.ask(post("/v2/trace/setting", b'{"trace_level":["TIMESTAMPS"]}'))
        assert (answer.status, answer.json) == (200, OFF | {"trace_level": ["TIMESTAMPS"]})
        assert not site.engine.tracer.is_on
        assert (await site.ask(infer())).status == 200


async def test_the_settings_of_an_unknown_model_are_not_told(serving):
    async with serving() as site:
        answer = await site.ask(b"GET /v2/models/nope/trace/setting HTTP/1.1\r\n\r\n")
        assert answer.status == 400
        assert "Request for unknown model : nope" in answer.error


async def test_another_verb_is_not_allowed(serving):
    async with serving() as site:
        answer = await site.ask(b"PUT /v2/trace/setting HTTP/1.1\r\n\r\n")
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, POST")


# --- over gRPC ---


@pytest.fixture
def engine():
    engine = Engine()
    engine.catalog.set_state("m", 1, ModelState.LOADING)
    return engine


def called(engine, model="", **settings):
    request = pb.TraceSettingRequest(model_name=model)
    for name, values in settings.items():
        request.settings[name].value.extend(values)
    method = grpc_handlers(SECTION, engine, {})[f"/{V2_SERVICE}/TraceSetting"]
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
