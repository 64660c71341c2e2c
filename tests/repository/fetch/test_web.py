"""Requests: redirects, and who gets credentials."""

import pytest

from inferd.errors import NotLoadable
from inferd.repository.fetch import web as module
from inferd.repository.fetch.web import Login, NotGiven, Web


def no_wait(_seconds):
    """Go on at once."""


def to(place):
    return lambda request: request.answer(302, b"", {"Location": place})


@pytest.fixture
def web(hub):
    return Web(Login(hub.url, "Bearer hidden"), wait=no_wait)


def test_credentials_follow_to_the_same_host_and_no_other(web, hub, other_hub):
    hub.secret = "Bearer hidden"
    hub.answers["/a"] = to("/b")
    hub.answers["/c"] = to(f"{other_hub.url}/d")
    hub.files["/b"] = other_hub.files["/d"] = b"found"
    assert web.document(f"{hub.url}/a") == b"found"
    assert web.document(f"{hub.url}/c") == b"found"
    [(_, headers)] = other_hub.requests
    assert "Authorization" not in headers


@pytest.mark.parametrize("place", ["file:///etc/passwd", "ftp://h/x", "data:,x"])
def test_a_redirect_to_something_else_than_the_web_is_not_followed(web, hub, place):
    hub.answers["/a"] = to(place)
    with pytest.raises(NotGiven, match=r"which is no HTTPS|with status 302"):
        web.document(f"{hub.url}/a")


def test_a_redirect_from_https_to_http_is_not_followed():
    request = module.urllib.request.Request("https://h/a")
    with pytest.raises(NotGiven, match=r"'https://h/a' leads to 'http://h/b', which is no HTTPS"):
        module._Redirects(module.Login()).redirect_request(
            request, None, 302, "", {}, "http://h/b?key=hidden"
        )


def test_redirects_in_a_circle_end(web, hub):
    hub.answers["/a"] = to("/a")
    with pytest.raises(NotLoadable, match="/a' answers with status 302"):
        web.document(f"{hub.url}/a")
    assert len(hub.requests) <= 6


def test_a_document_is_bounded(web, hub, monkeypatch):
    monkeypatch.setattr(module, "MAX_DOCUMENT_BYTES", 1000)
    hub.files["/a"] = b"x" * 1001
    with pytest.raises(NotLoadable, match="answers with more than 1000 bytes"):
        web.document(f"{hub.url}/a")


def test_a_document_that_breaks_off_is_asked_for_again(web, hub):
    hub.files["/a"] = b"found"
    hub.breaks = [2]
    assert web.document(f"{hub.url}/a") == b"found"
