"""The calls of V2's logging: HTTP over a real socket, gRPC by bytes alone."""

import asyncio

import pytest
from tritonclient.grpc import service_pb2 as pb

from inferd.api.call import V2_SERVICE, grpc_handlers
from inferd.api.v2.calls import CALLS
from inferd.config.options.log import LogSettings
from inferd.engine.engine import Engine
from inferd.errors import InvalidRequest, Unsupported
from inferd.observe.log import Log, close_log

SECTION = [call for call in CALLS if call.section == "logging"]

DEFAULTS = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}


@pytest.fixture(autouse=True)
def _clean():
    yield
    close_log()


async def test_the_settings_are_told_and_changed(serving, post):
    async with serving() as site:
        site.engine.log.open()
        assert (await site.ask(b"GET /v2/logging HTTP/1.1\r\n\r\n")).json == DEFAULTS
        body = b'{"log_verbose_level":1,"log_format":"ISO8601","log_info":null,"log_x":1}'
        answer = await site.ask(post("/v2/logging", body))
        changed = DEFAULTS | {"log_verbose_level": 1, "log_format": "ISO8601"}
        assert (answer.status, answer.json) == (200, changed)
        assert (await site.ask(b"GET /v2/logging HTTP/1.1\r\n\r\n")).json == changed


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"", 400, "failed to parse the request JSON"),
        (b"[]", 400, "expected a JSON object"),
        (b'{"log_info":"yes"}', 400, "log_info"),
        (b'{"log_format":"x"}', 400, "log_format, got: x"),
        (b'{"log_file":"/etc/passwd"}', 501, "log file location can not be updated"),
    ],
)
async def test_what_is_wrong_is_said_and_changes_nothing(serving, post, body, status, text):
    async with serving() as site:
        site.engine.log.open()
        answer = await site.ask(post("/v2/logging", body))
        assert answer.status == status
        assert text in answer.error
        assert (await site.ask(b"GET /v2/logging HTTP/1.1\r\n\r\n")).json == DEFAULTS


async def test_another_verb_is_not_allowed(serving):
    async with serving() as site:
        answer = await site.ask(b"PUT /v2/logging HTTP/1.1\r\n\r\n")
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, POST")


async def test_a_server_inside_another_program_leaves_its_log_alone(serving, post):
    async with serving() as site:
        answer = await site.ask(post("/v2/logging", b'{"log_error":false}'))
        assert answer.status == 501
        assert "belongs to the program" in answer.error


# --- over gRPC ---


@pytest.fixture
def log():
    log = Log(LogSettings())
    log.open()
    yield log
    close_log()


def called(log, **settings):
    request = pb.LogSettingsRequest()
    for name, (kind, value) in settings.items():
        setattr(request.settings[name], kind, value)
    method = grpc_handlers(SECTION, Engine(log=log), {})[f"/{V2_SERVICE}/LogSettings"]
    answer = asyncio.run(method.handler(request.SerializeToString(), None))
    return pb.LogSettingsResponse.FromString(b"".join(answer)).settings


def test_an_empty_request_tells_all_six(log):
    told = called(log)
    assert len(told) == 6
    assert told["log_info"].bool_param
    assert told["log_format"].string_param == "default"


def test_settings_are_changed(log):
    told = called(log, log_info=("bool_param", False), log_verbose_level=("uint32_param", 2))
    assert (told["log_info"].bool_param, told["log_verbose_level"].uint32_param) == (False, 2)
    assert log.settings == LogSettings(info=False, verbose=2)


def test_the_wrong_type_and_the_file_are_refused(log):
    with pytest.raises(InvalidRequest, match="log_info"):
        called(log, log_info=("string_param", "no"))
    with pytest.raises(Unsupported, match="log file"):
        called(log, log_file=("string_param", "/tmp/x"))
