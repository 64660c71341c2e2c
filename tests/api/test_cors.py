"""What browsers are told about pages of other origins (Fetch standard, CORS protocol)."""

import pytest

from inferd.api.access import KeyRing
from inferd.http.access import Access

PAGE = "https://page.example"
NAMED = {"cors_origins": frozenset((PAGE, "http://localhost:3000"))}
ANY = {"cors_origins": frozenset("*")}
ALLOW = "access-control-allow-origin"
EXPOSED = "Inference-Header-Content-Length, Retry-After"


def request(path, *lines, method="GET"):
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()


def preflight(path, *lines, origin=PAGE, verb="POST"):
    asked = (f"Origin: {origin}", f"Access-Control-Request-Method: {verb}")
    return request(path, *asked, *lines, method="OPTIONS")


def told(answer):
    """What an answer says about CORS; names without their common beginning."""
    start = "access-control-"
    return {
        name.removeprefix(start): value
        for name, value in answer.headers.items()
        if name.startswith(start)
    }


async def test_without_the_option_nothing_is_told(serving):
    async with serving() as site:
        answer = await site.ask(request("/v2", f"Origin: {PAGE}"))
        assert answer.status == 200
        assert told(answer) == {} and "vary" not in answer.headers
        assert (await site.ask(preflight("/v2"))).status == 405


async def test_a_page_of_a_named_origin_may_read_the_answer(serving, infer):
    async with serving(**NAMED) as site:
        for sent in (request("/v2", f"Origin: {PAGE}"), infer([1.5], f"Origin: {PAGE}")):
            answer = await site.ask(sent)
            assert answer.status == 200
            assert answer.headers["vary"] == "Origin"
            assert told(answer) == {
                "allow-origin": PAGE,
                "allow-credentials": "true",
                "expose-headers": EXPOSED,
            }


@pytest.mark.parametrize("status", [401, 404, 405])
async def test_a_page_may_read_errors_too(serving, status):
    path = {401: "/v2", 404: "/nowhere", 405: "/v2/health/live"}[status]
    access = Access(keys=KeyRing({}), keyless=frozenset(("health",)))
    async with serving(**NAMED, access=access) as site:
        method = "DELETE" if status == 405 else "GET"
        answer = await site.ask(request(path, f"Origin: {PAGE}", method=method))
        assert answer.status == status and answer.error
        assert answer.headers[ALLOW] == PAGE


async def test_a_page_may_read_that_its_body_is_not_wanted(serving):
    async with serving(**NAMED, access=Access(keys=KeyRing({}))) as site:
        lines = (f"Origin: {PAGE}", "Content-Length: 1000000")
        answer = await site.ask(request("/v2/models/id/infer", *lines, method="POST"))
        assert answer.status == 401
        assert answer.headers[ALLOW] == PAGE


@pytest.mark.parametrize(
    ("status", "line"),
    [(413, f"Content-Length: {1 << 40}"), (417, "Expect: 200-ok"), (400, "Content-Length: x")],
)
async def test_a_page_may_read_what_is_wrong_with_the_head_itself(serving, status, line):
    async with serving(**NAMED) as site:
        for origin, allowed in ((PAGE, PAGE), ("https://other.example", None)):
            lines = (line, f"origin: {origin} ")
            answer = await site.ask(request("/v2/models/id/infer", *lines, method="POST"))
            assert answer.status == status and answer.error
            assert answer.headers.get(ALLOW) == allowed


@pytest.mark.parametrize(
    "origin",
    [
        *("https://page.example.evil", "http://page.example", "https://page.example:8443", "null"),
        *("https://sub.page.example", "https://PAGE.example", f"{PAGE}, {PAGE}", "*"),
    ],
)
async def test_pages_of_other_origins_are_told_nothing(serving, origin):
    async with serving(**NAMED) as site:
        answer = await site.ask(request("/v2", f"Origin: {origin}"))
        assert answer.status == 200
        assert told(answer) == {}
        assert answer.headers["vary"] == "Origin"
        refused = await site.ask(preflight("/v2/models/id/infer", origin=origin))
        assert refused.status == 403 and refused.error
        assert told(refused) == {}


async def test_who_is_no_browser_is_answered_and_caches_are_told(serving):
    async with serving(**NAMED) as site:
        answer = await site.ask(request("/v2"))
        assert (answer.status, told(answer), answer.headers["vary"]) == (200, {}, "Origin")


async def test_any_page_may_ask_without_credentials(serving):
    async with serving(**ANY) as site:
        answer = await site.ask(request("/v2", f"Origin: {PAGE}"))
        assert told(answer) == {
            "allow-origin": "*",
            "expose-headers": EXPOSED,
        }
        assert "vary" not in answer.headers


async def test_a_preflight_is_told_verbs_and_headers(serving):
    wanted = "content-type,inference-header-content-length,x-api-key"
    async with serving(**NAMED) as site:
        client = await site.connect()
        asked = preflight("/v2/models/id/infer", f"Access-Control-Request-Headers: {wanted}")
        answer = await client.ask(asked)
        assert (answer.status, answer.body) == (200, b"")
        assert told(answer) == {
            "allow-origin": PAGE,
            "allow-credentials": "true",
            "allow-methods": "POST",
            "allow-headers": wanted,
            "max-age": "600",
            "expose-headers": EXPOSED,
        }
        assert (await client.ask(preflight("/v2"))).headers["access-control-allow-methods"] == (
            "GET, HEAD"
        )


async def test_a_preflight_needs_no_key(serving):
    async with serving(**NAMED, access=Access(keys=KeyRing({}))) as site:
        assert (await site.ask(preflight("/v2"))).status == 200
        assert (await site.ask(request("/v2", f"Origin: {PAGE}"))).status == 401


async def test_a_preflight_for_nothing_is_404(serving):
    async with serving(**NAMED) as site:
        answer = await site.ask(preflight("/v2/nothing"))
        assert answer.status == 404 and answer.error


@pytest.mark.parametrize("wanted", ["x" * 2000, "x: y", "é", '"'])
async def test_header_names_that_are_none_are_not_repeated(serving, wanted):
    async with serving(**ANY) as site:
        answer = await site.ask(preflight("/v2", f"Access-Control-Request-Headers: {wanted}"))
        assert answer.status == 200
        assert "allow-headers" not in told(answer)


async def test_options_that_is_no_preflight_is_405(serving):
    async with serving(**NAMED) as site:
        for lines in ((), (f"Origin: {PAGE}",), ("Access-Control-Request-Method: GET",)):
            answer = await site.ask(request("/v2", *lines, method="OPTIONS"))
            assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
