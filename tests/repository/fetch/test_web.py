"""Requests: redirects, and who gets credentials."""

from contextlib import suppress

import pytest
from small_site import SmallSite

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


@pytest.mark.parametrize("url", ["https://me:hidden@h/a", "http://h:port/a", "http://[h/a"])
def test_a_url_that_is_none_is_said_without_a_password(caplog, url):
    caplog.set_level("DEBUG")
    with pytest.raises(NotLoadable, match="no text that can be sent") as caught:
        Web(Login(url, "Bearer x"), wait=no_wait).document(url)
    assert "hidden" not in str(caught.value) + caplog.text


def test_credentials_that_are_no_header_are_not_repeated(hub, caplog):
    caplog.set_level("DEBUG")
    with pytest.raises(NotLoadable, match="no text that can be sent") as caught:
        Web(Login(hub.url, "Bearer hidden\n"), wait=no_wait).document(f"{hub.url}/a")
    assert "hidden" not in str(caught.value) + caplog.text


def test_a_proxy_that_is_none_is_not_repeated(caplog, monkeypatch):
    caplog.set_level("DEBUG")
    monkeypatch.setenv("http_proxy", "http:/me:hidden@proxy:1")
    with pytest.raises(NotLoadable, match="no text that can be sent") as caught:
        Web(wait=no_wait).document("http://example.invalid/a")
    assert "hidden" not in str(caught.value) + caplog.text


def test_an_answer_that_repeats_the_request_is_not_repeated(caplog):
    caplog.set_level("DEBUG")
    with SmallSite(b"Authorization: Bearer hidden\r\n\r\n") as site:
        url = f"http://127.0.0.1:{site.port}/a"
        with pytest.raises(
            NotLoadable, match=r"is not HTTP as expected \(BadStatusLine\)"
        ) as caught:
            Web(wait=no_wait).document(url)
    assert "hidden" not in str(caught.value) + caplog.text


def test_redirects_in_a_circle_end(web, hub):
    hub.answers["/a"] = to("/a")
    with pytest.raises(NotLoadable, match="/a' answers with status 302"):
        web.document(f"{hub.url}/a")
    assert len(hub.requests) <= 6


def test_the_body_of_a_redirect_is_not_read(web, hub):
    sent = []

    def answer(request):
        request.answer(302, b"", {"Location": "/b", "Content-Length": str(1 << 40)})
        with suppress(OSError):
            while sum(sent) < 1 << 27:
                sent.append(request.wfile.write(b"x" * (1 << 20)))

    hub.answers["/a"] = answer
    hub.files["/b"] = b"found"
    assert web.document(f"{hub.url}/a") == b"found"
    assert sum(sent) < 1 << 27


def test_a_length_of_thousands_of_digits_is_none(web, hub, fetch):
    headers = {"Content-Length": "9" * 5000}
    link = hub.put("/m.onnx", b"model")
    hub.answers["/m.onnx"] = lambda request: request.answer(200, b"model", headers)
    assert (fetch(link) / "m.onnx").read_bytes() == b"model"
    hub.answers["/a"] = hub.answers["/m.onnx"]
    assert web.document(f"{hub.url}/a") == b"model"


def test_a_document_is_bounded(web, hub, monkeypatch):
    monkeypatch.setattr(module, "MAX_DOCUMENT_BYTES", 1000)
    hub.files["/a"] = b"x" * 1001
    with pytest.raises(NotLoadable, match="answers with more than 1000 bytes"):
        web.document(f"{hub.url}/a")


def test_a_document_that_breaks_off_is_asked_for_again(web, hub):
    hub.files["/a"] = b"found"
    hub.breaks = [2]
    assert web.document(f"{hub.url}/a") == b"found"
