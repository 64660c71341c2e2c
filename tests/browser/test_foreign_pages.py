"""What pages of other origins can do with the dashboard in a real browser: nothing."""

import json
import os
import shutil
from contextlib import contextmanager
from urllib.request import Request, urlopen

import pytest
from real_site import real_site
from small_site import SmallSite
from visits import ARGUMENTS, PATIENCE_MS

FOREIGN = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 18\r\n\r\n<title>foreign"
FOREIGN += b"    "
ACT = {"act": "unload", "model": "digits"}
TRIES = """async ([url, token, session]) => {
    const act = JSON.stringify({ act: 'unload', model: 'digits' });
    const named = { 'x-inferd-ui-session': session, 'content-type': 'application/json' };
    const post = (path, body, more) => fetch(url + path, { method: 'POST', body, ...more });
    const tag = (name, more) => new Promise((resolve) => {
        const made = Object.assign(document.createElement(name), more);
        made.onload = () => resolve('loaded');
        made.onerror = () => resolve('refused');
        document.head.append(made);
    });
    const events = () => new Promise((resolve) => {
        const source = new EventSource(`${url}events?topics=overview`);
        source.onmessage = source.onopen = () => resolve('open');
        source.onerror = () => resolve('refused');
    });
    const tried = {
        about: fetch(`${url}about`).then((answer) => answer.text()),
        page: fetch(url).then((answer) => answer.text()),
        once: fetch(`${url}events?topics=log&once=1`).then((answer) => answer.text()),
        unlock: post('unlock', JSON.stringify({ token })),
        act: post('act', act, { headers: named }),
        plain: post('act', act, { headers: { 'content-type': 'text/plain' } }),
        hidden: post('unlock', JSON.stringify({ token }), { mode: 'no-cors' }),
    };
    const found = { script: await tag('script', { src: `${url}static/app/main.js` }) };
    found.style = await tag('link', { rel: 'stylesheet', href: `${url}static/app.css` });
    found.events = await events();
    for (const [name, promise] of Object.entries(tried)) {
        found[name] = await promise.then(() => 'answered', () => 'refused');
    }
    return found;
}"""
REFUSED = ("script", "style", "events", "about", "page", "once", "unlock", "act", "plain", "hidden")


@pytest.fixture(scope="module")
def servers(models):
    """A server whose models pages may change, and one that also answers pages of any origin."""
    explicit = ("--model-control-mode=explicit", "--load-model=digits")
    with (
        real_site(models, *explicit, full=True) as plain,
        real_site(models, *explicit, "--http-cors-origin=*", full=True) as shared,
    ):
        yield plain, shared


@pytest.fixture
def tab(browser):
    """A tab that nobody listens to: what is refused there, the browser tells in its console."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    yield context.new_page()
    context.close()


@contextmanager
def foreign_site(host):
    with SmallSite(FOREIGN) as site:
        yield f"http://{host}:{site.port}/"


def post(server, path, document, **headers):
    request = Request(f"{server.url}{path}", json.dumps(document).encode(), headers)
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)


def is_loaded(server):
    with urlopen(f"http://127.0.0.1:{server.port}/v2/models/digits/ready", timeout=30) as answer:
        return answer.status == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])  # another origin, and another site
@pytest.mark.parametrize("number", [0, 1])
def test_a_foreign_page_can_neither_read_nor_change_anything(tab, servers, host, number):
    server = servers[number]
    token = server.link.partition("#token=")[2] if not number else "x"
    with foreign_site(host) as url:
        tab.goto(url)
        found = tab.evaluate(TRIES, [server.url, token, "x"])
    assert found == dict.fromkeys(REFUSED, "refused")
    assert is_loaded(server)


def test_a_form_of_a_foreign_page_changes_nothing(tab, servers):
    server = servers[0]
    with foreign_site("localhost") as url:
        tab.goto(url)
        with tab.expect_navigation() as went:
            tab.evaluate(
                """([action, name]) => {
                    const form = document.createElement('form');
                    Object.assign(form, { method: 'post', action, enctype: 'text/plain' });
                    const input = Object.assign(document.createElement('input'), { name });
                    form.append(input);
                    document.body.append(form);
                    form.submit();
                }""",
                [f"{server.url}act", json.dumps(ACT)[:-1] + ',"x":"'],
            )
    assert went.value.status == 403
    assert is_loaded(server)


def test_a_foreign_page_cannot_frame_the_dashboard(tab, servers):
    with foreign_site("localhost") as url:
        tab.goto(url)
        with tab.expect_event(
            "framenavigated",
            lambda frame: frame.parent_frame and frame.url not in ("", "about:blank"),
        ) as went:
            tab.evaluate(
                """(src) => document.body.append(
                    Object.assign(document.createElement('iframe'), { src }))""",
                servers[0].url,
            )
        assert went.value.url == "chrome-error://chromewebdata/"


def test_a_name_that_was_made_to_lead_here_shows_nothing(browser, servers):
    server = servers[0]
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    rules = "--host-resolver-rules=MAP evil.example 127.0.0.1"
    chromium = browser.browser_type.launch(
        executable_path=program or shutil.which("google-chrome"), args=[*ARGUMENTS, rules]
    )
    try:
        page = chromium.new_page()
        answer = page.goto(f"http://evil.example:{server.port}/ui/")
        assert answer.status == 403 and "--ui-hosts" in answer.text()
        page.goto(f"http://evil.example:{server.port}/v2")  # a page with the origin of the server
        found = page.evaluate(
            """async (paths) => Promise.all(paths.map(async ([method, path, body]) =>
                (await fetch(path, { method, body })).status))""",
            [
                ["GET", "/ui/about", None],
                ["GET", "/ui/events?topics=overview&once=1", None],
                ["POST", "/ui/unlock", json.dumps({"token": "x"})],
                ["POST", "/ui/act", json.dumps(ACT)],
            ],
        )
        assert found == [403] * 4
    finally:
        chromium.close()


def test_the_link_is_good_after_all_that(servers):
    server = servers[0]
    session = post(server, "unlock", {"token": server.link.partition("#token=")[2]})["session"]
    done = post(server, "act", ACT, **{"x-inferd-ui-session": session})
    assert done == {"done": "digits is unloaded"}
