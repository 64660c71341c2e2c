"""The URL of the logging extension, over a real socket."""

import pytest

from inferd.observe.log import close_log

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
