"""Whether the server and its models are live and ready, over real sockets."""

import pytest


def request(method, path, *lines):
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/live/", "/v2/health/live?a=b"])
async def test_live_says_so(serving, path):
    async with serving() as site:
        answer = await site.ask(request("GET", path))
        assert (answer.status, answer.json) == (200, {"live": True})


async def test_a_server_that_loads_is_live_and_not_ready(serving):
    async with serving(loaded=False) as site:
        assert (await site.ask(request("GET", "/v2/health/live"))).status == 200
        answer = await site.ask(request("GET", "/v2/health/ready"))
        assert answer.status == 400
        assert (answer.json["live"], answer.json["ready"]) == (False, False)
        assert "not ready" in answer.json["error"]
        site.is_loaded()
        answer = await site.ask(request("GET", "/v2/health/ready"))
        assert (answer.status, answer.json) == (200, {"live": True, "ready": True})
        site.engine.drain()
        assert (await site.ask(request("GET", "/v2/health/ready"))).status == 400


async def test_what_not_ready_is_called_may_be_chosen(serving):
    async with serving(loaded=False, not_ready_status=503) as site:
        site.is_loaded(broken=True)
        assert (await site.ask(request("GET", "/v2/health/ready"))).status == 503
        assert (await site.ask(request("GET", "/v2/models/broken/ready"))).status == 503


@pytest.mark.parametrize("path", ["/v2/models/id/ready", "/v2/models/id/versions/v3/ready/"])
async def test_a_model_that_is_ready_says_so(serving, path):
    async with serving() as site:
        answer = await site.ask(request("GET", path))
        assert (answer.status, answer.json) == (200, {"name": "id", "ready": True})


@pytest.mark.parametrize(
    ("model", "status"),
    [
        ("broken", 400),
        ("broken/versions/1", 400),
        ("none", 404),
        ("id/versions/9", 404),
        ("id/versions/x", 404),
        ("id/versions/" + "9" * 20, 404),
    ],
)
async def test_a_model_that_is_not_ready_says_so(serving, model, status):
    async with serving(loaded=False) as site:
        site.is_loaded(broken=True)
        answer = await site.ask(request("GET", f"/v2/models/{model}/ready"))
        assert answer.status == status
        assert answer.json["name"] == model.split("/")[0]
        assert answer.json["ready"] is False
        assert answer.json["error"]
