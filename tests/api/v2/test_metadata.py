"""What the server tells of itself and its models, over real sockets."""

import pytest

import inferd


def request(method, path, *lines):
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()


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
