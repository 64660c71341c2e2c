"""Which hosts are this server, and pages of which origins may ask: tests/ui/test_routes.py has the
same over sockets."""

import asyncio
import threading

import pytest

from inferd.errors import Forbidden
from inferd.http.message import HttpRequest
from inferd.ui.hosts import Hosts

OWN = "box.example.org"


def request(target=b"/ui/", **headers):
    named = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    return HttpRequest(b"GET", target, named, is_kept_alive=True, is_http_10=False)


def hosts(*names, lookup=lambda: OWN):
    return Hosts(names, "Box", lookup)


@pytest.mark.parametrize(
    "host",
    [
        *(b"127.0.0.1:8000", b"10.1.2.3", b"[::1]:8000", b"[2001:DB8::1]", b"localhost:8000"),
        *(b"LocalHost", b"localhost.:80", b"inferd.localhost:1", b"box:8000", b"BOX", b"box."),
        *(b"ui.example.net:443", b"a.b.example.com", b"cert.example.net"),
    ],
)
async def test_what_is_this_server_is_answered(host):
    known = hosts("ui.example.net", "*.example.com")
    known.certified = frozenset(("cert.example.net",))
    await known.check(request(host=host))


@pytest.mark.parametrize(
    "host",
    [
        *(b"evil.example", b"localhost.evil.example", b"127.0.0.1.evil.example", b"example.com"),
        *(b"xexample.com", b"notui.example.net", b"evil-localhost", b"box.evil.example", b""),
        *(b"127.0.0.1:8000, evil.example", b"evil.example@127.0.0.1", b"127.0.0.1/evil", b"::1"),
        *(b"[evil.example]", b"127.0.0.1:8000:1", b"bo\xe4x", b"*.example.com", b"[::1", b" box"),
    ],
)
async def test_what_is_not_this_server_is_refused(host):
    known = hosts("ui.example.net", "*.example.com")
    with pytest.raises(Forbidden, match=r"host|name"):
        await known.check(request(host=host))


async def test_a_request_without_a_host_is_refused():
    with pytest.raises(Forbidden, match="names no host"):
        await hosts().check(request())


async def test_a_target_in_absolute_form_names_the_host():
    with pytest.raises(Forbidden, match=r"'evil\.example'"):
        await hosts().check(request(b"http://evil.example/ui/", host=b"localhost"))
    await hosts().check(request(b"HTTP://localhost:8000/ui/", host=b"evil.example"))


async def test_the_full_name_of_the_machine_is_asked_for_once():
    asked = []

    def lookup():
        asked.append(1)
        return "Box.Example.Org"

    known = hosts(lookup=lookup)
    await known.check(request(host=b"localhost"))
    assert not asked
    for _ in range(2):
        await known.check(request(host=b"box.example.org:8000"))
    with pytest.raises(Forbidden):
        await known.check(request(host=b"evil.example"))
    assert len(asked) == 1


async def test_a_system_that_does_not_tell_the_full_name_holds_nobody_up(monkeypatch):
    monkeypatch.setattr("inferd.ui.hosts.LOOKUP_S", 0.0)
    told = threading.Event()
    known = hosts(lookup=lambda: (told.wait(), OWN)[1])
    with pytest.raises(Forbidden):
        await known.check(request(host=b"box.example.org"))
    told.set()
    while True:
        try:
            await known.check(request(host=b"box.example.org"))
        except Forbidden:
            await asyncio.sleep(0)
        else:
            break


async def test_a_machine_without_a_full_name_has_its_short_one():
    def lookup():
        raise OSError

    known = hosts(lookup=lookup)
    with pytest.raises(Forbidden):
        await known.check(request(host=b"box.example.org"))
    await known.check(request(host=b"box"))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec_fetch_site": b"same-origin"},
        {"sec_fetch_site": b"none"},
        {"origin": b"http://127.0.0.1:8000"},
        {"origin": b"https://127.0.0.1:8000"},
        {"origin": b"https://ui.example.net"},
        {"origin": b"http://127.0.0.1:8000", "sec_fetch_site": b"same-origin"},
    ],
)
def test_own_pages_and_programs_may_ask(headers):
    hosts("ui.example.net").check_origin(request(host=b"127.0.0.1:8000", **headers))


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": b"cross-site"},
        {"sec_fetch_site": b"same-site"},
        {"sec_fetch_site": b""},
        {"sec_fetch_site": b"same-origin, cross-site"},
        {"origin": b"null"},
        {"origin": b""},
        {"origin": b"http://evil.example"},
        {"origin": b"http://127.0.0.1:3000"},
        {"origin": b"http://127.0.0.1"},
        {"origin": b"http://10.9.9.9:8000"},
        {"origin": b"http://localhost:8000"},
        {"origin": b"http://127.0.0.1:8000.evil.example"},
        {"origin": b"file://127.0.0.1:8000"},
        {"origin": b"http://127.0.0.1:8000, http://evil.example"},
        {"origin": b"http://evil.example", "sec_fetch_site": b"same-origin"},
        {"origin": b"http://127.0.0.1:8000", "sec_fetch_site": b"cross-site"},
    ],
)
def test_pages_of_other_origins_may_not_ask(headers):
    with pytest.raises(Forbidden, match="pages of"):
        hosts("ui.example.net").check_origin(request(host=b"127.0.0.1:8000", **headers))
