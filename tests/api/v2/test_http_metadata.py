"""What the server tells of itself and its models, over real sockets."""

import pytest

import inferd


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


@pytest.mark.parametrize("path", ["/v2", "/v2/", "/v2?", "/v2/?a", "http://there:80/v2", "/%76%32"])
async def test_the_server_tells_about_itself(serving, path):
    async with serving() as site:
        answer = await site.ask(request("GET", path))
        assert answer.status == 200
        assert answer.json["name"] == "inferd"
        assert answer.json["version"] == inferd.__version__


async def test_models_are_listed(serving):
    async with serving() as site:
        answer = await site.ask(request("GET", "/v2/models"))
        assert answer.json == {"models": ["a/b c", "crashing", "failing", "held", "id"]}


@pytest.mark.parametrize(
    ("path", "versions"),
    [
        ("/v2/models/id", ["1", "3"]),
        ("/v2/models/%69d", ["1", "3"]),
        ("/v2/models/id/", ["1", "3"]),
        ("/v2/models/id?version=7", ["1", "3"]),
        ("https://there/v2/models/id", ["1", "3"]),
        ("/v2/models/id/versions/3", ["3"]),
        ("/v2/models/id/versions/v1", ["1"]),
        ("/v2/models/id/versions/01", ["1"]),
    ],
)
async def test_models_tell_about_themselves(serving, path, versions):
    async with serving() as site:
        answer = await site.ask(request("GET", path))
        assert answer.status == 200
        assert answer.json["name"] == "id"
        assert answer.json["versions"] == versions
        assert answer.json["inputs"] == [{"name": "T", "datatype": "FP32", "shape": [-1]}]


@pytest.mark.parametrize("path", ["/v2/models/a%2Fb%20c", "/v2/models/a%2fb%20c/"])
async def test_an_escaped_slash_stays_in_its_name(serving, path):
    async with serving() as site:
        assert (await site.ask(request("GET", path))).json["name"] == "a/b c"


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
