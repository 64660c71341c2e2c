"""The URLs of V2 over real sockets: paths, verbs, status codes."""

import re

import pytest

from inferd.api.access import KeyRing
from inferd.api.routes import HttpRoutes
from inferd.config.options.access import API_GROUPS
from inferd.engine.engine import Engine
from inferd.http.access import OPEN, Access
from inferd.wire.v2.rest.codec import JsonRules

DIGITS_20 = "99999999999999999999"


def request(method, path, *lines):
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()


# --- what is not there, and what is not allowed ---


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/v1", "/v2x", "/V2", "/v2/health", "/v2/health/", "/v2/health/Live", "/v2/nothing"),
        *("//v2", "/v2//", "/v2//models", "/v2/models//", "/v2/models//infer", "/v2/models/id//"),
        *("/v2/models/id/infer/now", "/v2/models/id/versions//infer", "/v2/models/id/versions/"),
        *("/v2/models/id/versions", "/v2/models/id/versions/1/2", "/v2/models/a/b%20c"),
        *("http://there", "http://there/", "/v2%2fmodels", "/v2/health/live%2F"),
        *("/v2/models/id/ready%3F", "/v2/models/none", "/v2/models/ID", "/v2/models/%00"),
        *("/v2/models/%", "/v2/models/%zz", "/v2/models/%FF", "/v2/models/{model}"),
        *("/v2/models/id/versions/2", "/v2/models/id/versions/0", "/v2/models/id/versions/-1"),
        *("/v2/models/id/versions/abc", f"/v2/models/id/versions/{DIGITS_20}"),
        *("/v2/models/id/versions/vv1", "/v2/models/id/versions/V1", "/v2/models/broken"),
    ],
)
async def test_what_is_not_there_is_404(serving, path):
    async with serving(loaded=False) as site:
        site.is_loaded(broken=True)
        client = await site.connect()
        answer = await client.ask(request("GET", path))
        assert answer.status == 404
        assert answer.error
        assert "connection" not in answer.headers
        assert (await client.ask(request("GET", "/v2"))).status == 200


@pytest.mark.parametrize("line", ["Content-Length: 1000000000", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("guarded", [False, True])
async def test_a_large_body_for_what_is_not_there_is_not_read(serving, line, guarded):
    access = Access(keys=KeyRing({})) if guarded else OPEN
    async with serving(access=access) as site:
        answer = await site.ask(request("POST", "/nowhere?x", line))
        assert (answer.status, answer.error) == (404, "Not Found: there is nothing at '/nowhere'")
        assert answer.headers["connection"] == "close"


@pytest.mark.parametrize("target", ["*", "there:80"])
async def test_targets_that_are_no_paths_are_404(serving, target):
    async with serving() as site:
        method = "OPTIONS" if target == "*" else "CONNECT"
        assert (await site.ask(request(method, target))).status == 404


@pytest.mark.parametrize("model", ["none", "broken", "id/versions/2", f"id/versions/{DIGITS_20}"])
async def test_models_that_are_not_there_cannot_infer(serving, infer, model):
    async with serving(loaded=False) as site:
        site.is_loaded(broken=True)
        answer = await site.ask(infer([1.5], model=model))
        assert answer.status == 404
        assert model.split("/")[0] in answer.error


def test_every_route_belongs_to_an_api_group():
    rules = JsonRules(half_floats=True, non_finite="tokens", max_json_bytes=2**20)
    table = HttpRoutes(Engine(), rules, not_ready_status=400).table
    assert {route.api for route in table} <= set(API_GROUPS)
    groups = {(route.path, route.api) for route in table}
    assert len(groups) == len({route.path for route in table})  # a path has one guard


VERBS = ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "GET", "HEAD"]


def wrong_verbs():
    """Each path of the table, a verb it does not have, and those it has."""
    found = {}
    rules = JsonRules(half_floats=True, non_finite="tokens", max_json_bytes=2**20)
    for route in HttpRoutes(Engine(), rules, not_ready_status=400).table:
        verbs = found.setdefault(route.path, set())
        verbs |= {route.verb, "HEAD"} if route.verb == "GET" else {route.verb}
    return [
        (path, verb, ", ".join(sorted(verbs)))
        for path, verbs in sorted(found.items())
        for verb in VERBS
        if verb not in verbs
    ]


@pytest.mark.parametrize(("pattern", "method", "allowed"), wrong_verbs())
async def test_other_verbs_are_405_with_those_allowed(serving, pattern, method, allowed):
    path = re.sub("{[a-z]+}", "1", pattern.replace("{model}", "id"))
    async with serving() as site:
        client = await site.connect()
        await client.send(request(method, path, "Content-Length: 0"))
        answer = await client.answer(has_body=method != "HEAD")
        assert answer.status == 405
        assert answer.headers["allow"] == allowed
        assert answer.headers["content-type"] == "application/json"
        if method != "HEAD":
            assert method in answer.error
        assert client.received == b""


async def test_errors_to_head_have_no_body(serving):
    async with serving() as site:
        client = await site.connect()
        await client.send(request("HEAD", "/nothing") + request("GET", "/v2"))
        assert (await client.answer(has_body=False)).status == 404
        assert (await client.answer()).status == 200
