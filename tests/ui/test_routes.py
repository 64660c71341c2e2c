"""The URLs of the dashboard, and each rule of who may have what, with raw bytes over sockets."""

import gzip
import json

import pytest

from inferd.api.access import KeyRing
from inferd.config.options.access import ApiKey, hash_key
from inferd.http.access import Access, Secret
from inferd.ui.dashboard import MOST_BODY_BYTES

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
SAFE = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
EVENTS = "/ui/events?topics={}&once=1"
EVERY_GET = ("/ui", "/ui/", "/ui/static/app.js", "/ui/about", EVENTS.format("overview"))
KEYS = KeyRing(
    {
        hash_key(b"all"): ApiKey("all"),
        hash_key(b"sees"): ApiKey("sees", frozenset(("statistics",))),
        hash_key(b"logs"): ApiKey("logs", frozenset(("statistics", "logging"))),
        hash_key(b"traces"): ApiKey("traces", frozenset(("statistics", "trace"))),
        hash_key(b"infers"): ApiKey("infers", frozenset(("inference",))),
    }
)
ACT = b'{"act":"trace","settings":{"trace_rate":"7"}}'


def unlocked(site):
    """Return the header with a session, as a page gets it."""
    return f"x-inferd-ui-session: {site.tokens.unlock(site.tokens.token())}"


def rate(site):
    """Return how many requests there are for each that is traced."""
    return site.engine.tracer.settings("").rate


# --- files ---


async def test_the_page_is_at_ui_with_a_slash(showing, get, page):
    async with showing() as site:
        for target in ("/ui/", "/ui/?x=1", "/ui/#y"):
            answer = await site.ask(get(target))
            assert answer.status == 200 and answer.body == (page / "index.html").read_bytes()
            assert answer.headers["content-type"] == "text/html; charset=utf-8"
            assert answer.headers["cache-control"] == "no-cache"


async def test_without_the_slash_it_is_told_where_it_is_wherever_the_server_is(showing, get):
    async with showing() as site:
        for target in ("/ui", "/ui?x=1"):
            answer = await site.ask(get(target))
            assert (answer.status, answer.headers["location"]) == (308, "ui/")


async def test_a_file_is_zipped_for_those_who_take_that(showing, get, page):
    async with showing() as site:
        plain = await site.ask(get("/ui/static/app.js"))
        zipped = await site.ask(get("/ui/static/app.js", "Accept-Encoding: br, gzip;q=0.8"))
        assert plain.body == gzip.decompress(zipped.body) == (page / "app.js").read_bytes()
        curls = await site.ask(get("/ui/static/app.js", "Accept-Encoding: deflate, gzip, br"))
        assert curls.body == zipped.body
        assert zipped.headers["content-encoding"] == "gzip"
        assert plain.headers["vary"] == zipped.headers["vary"] == "Accept-Encoding"
        assert plain.headers["etag"] != zipped.headers["etag"]
        assert "content-encoding" not in plain.headers
        refused = await site.ask(get("/ui/static/app.js", "Accept-Encoding: gzip;q=0"))
        assert refused.body == plain.body
        small = await site.ask(get("/ui/static/vendor/plot.css", "Accept-Encoding: gzip"))
        assert small.body == b"p{}" and "content-encoding" not in small.headers


async def test_a_file_that_a_browser_has_is_not_sent_again(showing, get):
    async with showing() as site:
        client = await site.connect()
        for how in ((), ("Accept-Encoding: gzip",)):
            first = await client.ask(get("/ui/static/app.js", *how))
            tag = first.headers["etag"]
            for condition in (tag, f'"other", W/{tag}', "*"):
                await client.send(get("/ui/static/app.js", *how, f"If-None-Match: {condition}"))
                again = await client.answer(has_body=False)
                assert again.status == 304 and again.headers["etag"] == tag
                assert again.headers["content-length"] in ("0", first.headers["content-length"])
        other = await client.ask(get("/ui/static/app.js", 'If-None-Match: "other"'))
        assert other.status == 200


@pytest.mark.parametrize(
    "target",
    [
        *("/ui/static/nowhere.js", "/ui/static/vendor/nowhere.css", "/ui/static", "/ui/static/"),
        *("/ui/static/vendor", "/ui/static/../dashboard.py", "/ui/static/..%2fdashboard.py"),
        *("/ui/static/%2e%2e/dashboard.py", "/ui/static//etc/passwd", "/ui/static/%2fetc%2fpasswd"),
        *("/ui/static/vendor/notes.md", "/ui/index.html", "/ui/nowhere", "/ui/static/app.js%00"),
        *("/ui/static/vendor%2fplot.css/", "/ui/STATIC/app.js", "/ui/static/vendor/../app.js"),
    ],
)
async def test_nothing_else_is_there(showing, get, target):
    async with showing() as site:
        answer = await site.ask(get(target))
        if target == "/ui/static/vendor%2fplot.css/":  # a name with a slash is that of a file
            assert answer.status == 200 and answer.body == b"p{}"
        else:
            assert answer.status == 404 and answer.error
        assert SAFE.items() <= answer.headers.items()


async def test_head_tells_of_a_file_without_it(showing, get):
    async with showing() as site:
        client = await site.connect()
        await client.send(get("/ui/", method="HEAD"))
        told = await client.answer(has_body=False)
        assert told.status == 200 and int(told.headers["content-length"]) > 1000


# --- who may ask ---


@pytest.mark.parametrize("target", EVERY_GET)
async def test_every_answer_has_the_headers_that_keep_browsers_safe(showing, get, target):
    async with showing() as site:
        answer = await site.ask(get(target))
        assert answer.status in (200, 308)
        assert SAFE.items() <= answer.headers.items()
        assert "set-cookie" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("target", [*EVERY_GET, "/ui/unlock", "/ui/act"])
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "", "localhost.evil.example"]
)
async def test_a_request_for_another_host_is_refused(showing, get, post, target, host):
    async with showing() as site:
        is_post = target in ("/ui/unlock", "/ui/act")
        token = json.dumps({"token": site.tokens.token()}).encode()
        sent = post(target, token, host=host) if is_post else get(target, host=host)
        answer = await site.ask(sent)
        assert answer.status == 403 and ("--ui-hosts" in answer.error or not host)
        assert SAFE.items() <= answer.headers.items()
        assert json.loads(token)["token"] == site.tokens.token()  # nothing has been used


@pytest.mark.parametrize(
    "host", ["ui.example.net", "x.example.com:1", "box.lan.example.org", "[::1]"]
)
async def test_the_names_of_this_server_may_be_used(showing, get, host):
    async with showing(hosts=("ui.example.net", "*.example.com")) as site:
        for target in EVERY_GET:
            assert (await site.ask(get(target, host=host))).status in (200, 308)


FOREIGN = [
    ["Origin: http://evil.example"],
    ["Origin: null"],
    ["Origin: http://127.0.0.1:3000"],
    ["Sec-Fetch-Site: cross-site"],
    ["Sec-Fetch-Site: same-site"],
    ["Sec-Fetch-Site: same-origin", "Origin: http://evil.example"],
    ["Sec-Fetch-Site: cross-site", "Origin: http://127.0.0.1:8000"],
]


@pytest.mark.parametrize("lines", FOREIGN)
async def test_pages_of_other_origins_may_neither_act_nor_read(showing, get, post, lines):
    async with showing() as site:
        session = unlocked(site)
        before = site.tokens.token()
        requests = [
            post("/ui/unlock", json.dumps({"token": before}).encode(), *lines),
            post("/ui/act", ACT, session, *lines),
            get(EVENTS.format("overview"), *lines),
            get("/ui/about", *lines),
        ]
        for sent in requests:
            answer = await site.ask(sent)
            assert answer.status == 403 and "pages of" in answer.error
        assert site.tokens.token() == before
        assert rate(site) != 7


async def test_links_of_other_pages_may_open_it(showing, get):
    lines = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
    async with showing() as site:
        assert (await site.ask(get("/ui/", *lines))).status == 200


async def test_pages_that_may_call_the_server_may_not_have_the_dashboard(showing, get):
    page = "https://page.example"
    for origins in ({"*"}, {page}):
        async with showing(cors_origins=frozenset(origins)) as site:
            asked = (f"Origin: {page}", "Access-Control-Request-Method: POST")
            requests = [
                get("/ui/act", *asked, method="OPTIONS"),
                get("/ui/events?topics=overview", f"Origin: {page}"),
                get("/ui/about", f"Origin: {page}"),
                get("/ui/", f"Origin: {page}"),
                get("/ui/nowhere", f"Origin: {page}"),
                get("/ui/act", f"Origin: {page}", "Content-Length: 9999999", method="POST"),
            ]
            for sent in requests:
                answer = await site.ask(sent)
                assert not [name for name in answer.headers if name.startswith("access-control")]
            answer = await site.ask(get("/v2", f"Origin: {page}"))
            assert answer.headers["access-control-allow-origin"] in (page, "*")


@pytest.mark.parametrize(
    ("target", "method", "allowed"),
    [
        ("/ui/", "POST", "GET, HEAD"),
        ("/ui/static/app.js", "PUT", "GET, HEAD"),
        ("/ui/about", "DELETE", "GET, HEAD"),
        ("/ui/events?topics=overview", "POST", "GET, HEAD"),
        ("/ui/unlock", "GET", "POST"),
        ("/ui/act", "GET", "POST"),
        ("/ui/act", "OPTIONS", "POST"),
    ],
)
async def test_other_methods_are_refused(showing, get, target, method, allowed):
    async with showing() as site:
        answer = await site.ask(get(target, method=method))
        assert (answer.status, answer.headers["allow"]) == (405, allowed)
        assert SAFE.items() <= answer.headers.items()


@pytest.mark.parametrize("target", ["/ui/unlock", "/ui/act", "/ui/about"])
async def test_a_large_body_is_refused_before_it_comes(showing, get, target):
    async with showing() as site:
        method = "GET" if target == "/ui/about" else "POST"
        for line in (f"Content-Length: {MOST_BODY_BYTES + 1}", "Transfer-Encoding: chunked"):
            answer = await site.ask(get(target, line, method=method))
            assert answer.status == 413 and str(MOST_BODY_BYTES) in answer.error
            assert site.engine.capacity.buffered_bytes == 0


async def test_a_body_of_the_largest_size_is_read(showing, post):
    async with showing() as site:
        body = json.dumps({"token": site.tokens.token()}).encode().ljust(MOST_BODY_BYTES)
        assert (await site.ask(post("/ui/unlock", body))).status == 200


@pytest.mark.parametrize("target", ["/ui/unlock", "/ui/act"])
async def test_a_body_nested_without_end_is_refused(showing, post, target):
    async with showing() as site:
        body = b'{"x":' + b"[" * (MOST_BODY_BYTES - 10)
        assert (await site.ask(post(target, body))).status == 400


# --- about ---


@pytest.mark.parametrize("full", [False, True])
async def test_about_tells_what_a_page_may(showing, get, full):
    async with showing(full=full) as site:
        about = (await site.ask(get("/ui/about"))).json
        mode = "full" if full else "read"
        assert about == {"mode": mode, "keys": False, "key_headers": [], "unlock": full}


async def test_about_and_the_page_are_for_those_without_a_key(showing, get):
    async with showing(access=Access(keys=KEYS)) as site:
        answer = await site.ask(get("/ui/about"))
        assert answer.status == 200
        assert answer.json["keys"] is True
        assert answer.json["key_headers"] == ["authorization", "x-api-key"]
        assert answer.headers["cache-control"] == "no-store"
        assert (await site.ask(get("/ui/"))).status == 200


# --- events ---


@pytest.mark.parametrize(
    ("key", "topics"),
    [
        ("all", {"overview", "models", "log", "requests"}),
        ("logs", {"overview", "models", "log"}),
        ("traces", {"overview", "models", "requests"}),
        ("sees", {"overview", "models"}),
        ("infers", set()),
        ("unknown", set()),
        (None, set()),
    ],
)
async def test_events_need_a_key_with_the_groups_of_their_topics(showing, get, key, topics):
    lines = [f"Authorization: Bearer {key}"] if key else []
    status = 403 if key in ("infers", "sees", "logs", "traces") else 401
    async with showing(access=Access(keys=KEYS)) as site:
        for topic in ("overview", "models", "log", "requests"):
            answer = await site.ask(get(EVENTS.format(topic), *lines))
            assert answer.status == (200 if topic in topics else status), topic
        both = await site.ask(get(EVENTS.format("overview,log"), *lines))
        assert both.status == (200 if "log" in topics else status)


async def test_events_of_a_restricted_api_need_its_header(showing, get):
    access = Access({"logging": Secret(b"admin", b"let me")})
    async with showing(access=access) as site:
        assert (await site.ask(get(EVENTS.format("overview")))).status == 200
        for lines in ((), ("admin: wrong",)):
            refused = await site.ask(get(EVENTS.format("log"), *lines))
            assert refused.status == 403 and "restricted" in refused.error
        assert (await site.ask(get(EVENTS.format("log"), "admin: let me"))).status == 200


@pytest.mark.parametrize(
    "query",
    [
        *("", "?", "?topics=", "?topics=overview,", "?topics=nothing", "?topics=Overview"),
        *("?topics=overview&x=1", "?topics=overview&topics=log", "?topics=model", "?x"),
        *("?topics=model&model=", "?topics=overview&&once=1", "?topics=%ff", "?topics=over%00view"),
    ],
)
async def test_a_query_that_asks_for_nothing_is_refused(showing, get, looks, query):
    async with showing() as site:
        answer = await site.ask(get(f"/ui/events{query}"))
        assert answer.status == 400 and answer.error
        assert not looks.asked


# --- unlocking ---


async def test_a_token_unlocks_once_and_the_next_one_is_said(showing, post):
    async with showing() as site:
        token = site.tokens.token()
        body = json.dumps({"token": token}).encode()
        answer = await site.ask(post("/ui/unlock", body, "Origin: http://127.0.0.1:8000"))
        assert answer.status == 200 and answer.headers["cache-control"] == "no-store"
        session = answer.json["session"]
        assert site.said == [site.tokens.token()] != [token]
        again = await site.ask(post("/ui/unlock", body))
        assert again.status == 401 and "has been used" in again.error
        assert len(site.said) == 1
        done = await site.ask(post("/ui/act", ACT, f"x-inferd-ui-session: {session}"))
        assert done.json == {"done": "requests are traced by the new settings"}
        assert rate(site) == 7


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b"{}", b'{"token":1}', b'{"token":null}', b"\xff", b"[" * 60000]
)
async def test_a_body_without_a_token_is_refused(showing, post, body):
    async with showing() as site:
        answer = await site.ask(post("/ui/unlock", body))
        assert answer.status == 400 and answer.error


async def test_guesses_are_refused(showing, post):
    async with showing() as site:
        for guess in ("", "x" * 32, "\u00e4" * 32, site.tokens.token()[:-1]):
            answer = await site.ask(post("/ui/unlock", json.dumps({"token": guess}).encode()))
            assert answer.status == 401
        assert not site.said


async def test_a_dashboard_that_only_shows_refuses_tokens_and_acts(showing, post):
    async with showing(full=False, access=Access(keys=KEYS)) as site:
        for target, body in (("/ui/unlock", b'{"token":"x"}'), ("/ui/act", ACT)):
            answer = await site.ask(post(target, body, "Authorization: Bearer all"))
            assert answer.status == 403 and "--ui=full" in answer.error
        assert rate(site) != 7


# --- acts ---


async def test_an_act_needs_a_session(showing, post):
    async with showing() as site:
        for lines in ((), ("x-inferd-ui-session: x",), ("x-inferd-ui-session:",)):
            answer = await site.ask(post("/ui/act", ACT, *lines))
            assert answer.status == 401 and "the server has printed" in answer.error
        assert rate(site) != 7


@pytest.mark.parametrize(
    ("key", "status"),
    [("all", 200), ("traces", 200), ("sees", 403), ("logs", 403), ("unknown", 401)],
)
async def test_a_key_with_the_group_of_an_act_may_act(showing, post, key, status):
    async with showing(access=Access(keys=KEYS)) as site:
        answer = await site.ask(post("/ui/act", ACT, f"x-api-key: {key}"))
        assert answer.status == status
        assert (rate(site) == 7) is (status == 200)


async def test_a_session_needs_no_key(showing, post):
    async with showing(access=Access(keys=KEYS)) as site:
        assert (await site.ask(post("/ui/act", ACT))).status == 401
        assert (await site.ask(post("/ui/act", ACT, unlocked(site)))).status == 200


async def test_acts_of_a_restricted_api_need_its_header_too(showing, post):
    access = Access({"trace": Secret(b"admin", b"let me")}, KEYS)
    async with showing(access=access) as site:
        for who in (unlocked(site), "x-api-key: all"):
            refused = await site.ask(post("/ui/act", ACT, who))
            assert refused.status == 403 and "restricted" in refused.error
            assert (await site.ask(post("/ui/act", ACT, who, "admin: let me"))).status == 200


async def test_an_unknown_act_is_refused_in_words(showing, post):
    async with showing() as site:
        session = unlocked(site)
        for body in (b"", b"{}", b'{"act":"delete"}', b'{"act":"load"}', b'{"act":"load","x":1}'):
            answer = await site.ask(post("/ui/act", body, session))
            assert answer.status == 400 and "the body is no act" in answer.error


async def test_why_an_act_is_not_possible_is_told(showing, post):
    async with showing() as site:
        answer = await site.ask(post("/ui/act", b'{"act":"load","model":"m"}', unlocked(site)))
        assert answer.status == 503 and "--model-control-mode=none here" in answer.error


# --- the rest of the server ---


async def test_errors_of_other_urls_have_no_headers_of_the_dashboard(showing, get):
    async with showing() as site:
        for target in ("/nowhere", "/uix", "/v2/nowhere", "/u"):
            answer = await site.ask(get(target))
            assert answer.status == 404 and not SAFE.keys() & answer.headers.keys()


async def test_other_calls_do_not_ask_for_the_host(showing, get):
    async with showing() as site:
        assert (await site.ask(get("/v2", host="evil.example"))).status == 200
        assert (await site.ask(get("/v2/health/live", host=""))).status == 200
