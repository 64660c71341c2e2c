"""The repository's URLs over real sockets."""

import pytest


def get(path):
    return f"GET {path} HTTP/1.1\r\nHost: there\r\n\r\n".encode()


INDEX = "/v2/repository/index"


@pytest.mark.parametrize("path", [INDEX, f"{INDEX}/", "/v2/repository/any/index"])
async def test_the_index_has_a_row_for_each_version(serving, post, path):
    async with serving(loaded=False) as site:
        site.is_loaded(broken=True)
        answer = await site.ask(post(path))
        assert answer.status == 200
        rows = {(row["name"], row["version"]): row for row in answer.json}
        assert rows["id", "1"] == {"name": "id", "version": "1", "state": "READY"}
        assert ("id", "3") in rows
        assert rows["broken", "1"] == {
            "name": "broken",
            "version": "1",
            "state": "UNAVAILABLE",
            "reason": "no good file",
        }


async def test_the_index_may_be_of_ready_models_only(serving, post):
    async with serving(loaded=False) as site:
        site.is_loaded(broken=True)
        everything = (await site.ask(post(INDEX, b'{"ready": false}'))).json
        ready = (await site.ask(post(INDEX, b'{"ready": true}'))).json
        assert [row for row in everything if row["state"] == "READY"] == ready
        assert len(everything) == len(ready) + 1


@pytest.mark.parametrize("body", [b'{"ready": 1}', b"[]", b"{", b" " * 70_000])
async def test_an_index_request_of_another_shape_is_refused(serving, post, body):
    async with serving() as site:
        answer = await site.ask(post(INDEX, body))
        assert answer.status == 400
        assert answer.error


async def test_the_index_is_posted(serving):
    async with serving() as site:
        answer = await site.ask(get(INDEX))
        assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    "path",
    ["/v2/models/id/config", "/v2/models/id/versions/1/config", "/v2/models/a%2Fb%20c/config"],
)
async def test_a_model_tells_its_configuration(serving, path):
    async with serving() as site:
        answer = await site.ask(get(path))
        assert answer.status == 200
        assert answer.json["name"] in ("id", "a/b c")
        [tensor] = answer.json["input"]
        assert (tensor["name"], tensor["data_type"], tensor["dims"]) == ("T", "TYPE_FP32", [-1])
        assert answer.json["max_batch_size"] == 0


@pytest.mark.parametrize(
    "path", ["/v2/models/nobody/config", "/v2/models/id/versions/2/config", "/v2/models/ID/config"]
)
async def test_the_configuration_of_what_is_not_there_is_404(serving, path):
    async with serving() as site:
        answer = await site.ask(get(path))
        assert answer.status == 404
        assert answer.error
