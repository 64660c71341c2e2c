"""Dashboards on the test's own loop, asked with raw bytes: see tests/support/http_site.py."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from http_site import certificate, infer, models, pytest_pyfunc_call, serving  # noqa: F401  these are fixtures, and the hook that runs coroutines

from inferd.api.v2.calls import Apis
from inferd.errors import ModelNotFound
from inferd.http.access import OPEN
from inferd.ui.dashboard import Dashboard
from inferd.ui.hosts import Hosts
from inferd.ui.streams import Hub
from inferd.ui.tokens import own_tokens
from inferd.ui.topics import Event

PAGE = b"<!doctype html><title>inferd</title>" + b"<p>all is well</p>" * 100


class Looks:
    """Topics that count how often they are asked to look, and tell that number."""

    def __init__(self):
        self.count = 0
        self.asked = []
        self.failure = None
        self.is_silent = False

    async def refresh(self, subjects):
        self.asked.append(set(subjects))
        if self.failure is not None:
            raise self.failure
        if not self.is_silent:
            self.count += 1

    def feed(self, subject):
        if subject.model == "nowhere":
            msg = "there is no model 'nowhere'"
            raise ModelNotFound(msg)
        return _Feed(self, subject)


class _Feed:
    def __init__(self, looks, subject):
        self._looks = looks
        self._subject = subject
        self._told = -1

    def news(self):
        if self._told == self._looks.count:
            return []
        self._told = self._looks.count
        text = "/".join(part for part in self._subject if part)
        return [Event(self._subject.topic, b'{"%b":%d}' % (text.encode(), self._told))]


class Seconds:
    """What a hub waits for, and its clock: seconds pass when the test says so."""

    def __init__(self):
        self.now = 1000.0
        self._passed = asyncio.Semaphore(0)

    def clock(self):
        return self.now

    async def pause(self):
        await self._passed.acquire()

    def pass_one(self):
        self.now += 1.0
        self._passed.release()


@pytest.fixture
def seconds():
    return Seconds()


@pytest.fixture
def looks():
    return Looks()


@pytest.fixture
def hub(looks, seconds):
    return Hub(looks, seconds.pause, seconds.clock)


@pytest.fixture
def page(tmp_path):
    """A folder with the files of a page."""
    folder = Path(tmp_path) / "static"
    (folder / "vendor").mkdir(parents=True)
    (folder / "index.html").write_bytes(PAGE)
    (folder / "app.js").write_bytes(b"export const ten = 10;\n" * 10)
    (folder / "vendor" / "plot.css").write_bytes(b"p{}")
    (folder / "vendor" / "notes.md").write_bytes(b"not for browsers")
    return folder


@pytest.fixture
def showing(serving, models, hub, page):  # noqa: F811
    """`async with showing(...) as site` runs a server with a dashboard.

    `site.dashboard` is that, `site.said` the tokens it would print. Without `full` it only shows.
    """

    @asynccontextmanager
    async def show(*, full=True, hosts=(), access=OPEN, **options):
        engine, _ = models()
        tokens = own_tokens() if full else None
        said = []
        dashboard = Dashboard(
            engine,
            hub,
            Hosts(hosts, "box.example.org", lambda: "box.lan.example.org"),
            tokens,
            lambda: said.append(tokens.token()),
            page,
        )
        apis = Apis(mounts=(dashboard,))
        async with serving(engine=engine, apis=apis, access=access, **options) as site:
            site.dashboard, site.said, site.tokens = dashboard, said, tokens
            try:
                yield site
            finally:
                dashboard.close()

    return show


@pytest.fixture
def get():
    """get(path, *header lines) is the bytes of a request to a server at 127.0.0.1."""

    def request(path, *lines, host="127.0.0.1:8000", method="GET", body=b""):
        head = [f"{method} {path} HTTP/1.1", *([f"Host: {host}"] if host else []), *lines]
        if body:
            head.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*head, "", ""]).encode("latin-1") + body

    return request


@pytest.fixture
def post(get):
    """post(path, body, *header lines), likewise."""
    return lambda path, body, *lines, **how: get(path, *lines, method="POST", body=body, **how)
