"""Origins of web pages and names of the server, as they may be spelled."""

import pytest

from inferd.config.contradictions import check_server_config
from inferd.config.options.browser import ANY, read_origins, read_ui_hosts
from inferd.config.server import ServerConfig
from inferd.errors import InvalidConfig


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("https://example.org", "https://example.org"),
        ("HTTPS://Example.org", "https://example.org"),
        ("https://example.org:443", "https://example.org"),
        ("http://example.org:80", "http://example.org"),
        ("http://example.org:443", "http://example.org:443"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("chrome-extension://abcdef", "chrome-extension://abcdef"),
    ],
)
def test_an_origin_is_retained_as_a_browser_sends_it(text, sent):
    assert read_origins([text]) == {sent}


def test_several_origins_and_any_origin():
    assert read_origins([]) == frozenset()
    assert read_origins(["http://a", "http://b", "HTTP://A"]) == {"http://a", "http://b"}
    assert read_origins(["*"]) == {ANY}


@pytest.mark.parametrize(
    "text",
    [
        *("", "null", "example.org", "https://", "https://a/", "https://a/b", "https://a?b"),
        *(
            "https://a b",
            "https://u@a",
            "https://a\r\nX: y",
            "https://ä.org",
            "*.org",
            "https://a,b",
        ),
    ],
)
def test_what_is_no_origin_is_refused(text):
    with pytest.raises(InvalidConfig, match=r"^--http-cors-origin: .* is none, expected SCHEME"):
        read_origins([text])


def test_any_origin_stands_alone():
    with pytest.raises(InvalidConfig, match="name it alone"):
        read_origins(["*", "https://a"])


def test_names_are_separated_by_commas_and_the_option_may_be_repeated():
    names = read_ui_hosts(["Box.example.org, *.example.net", "box_1.", "xn--bcher-kva.example"])
    assert names == {"box.example.org", "*.example.net", "box_1", "xn--bcher-kva.example"}
    assert read_ui_hosts([]) == frozenset()


@pytest.mark.parametrize(
    "text",
    [
        *("", "a,", "https://a", "a:8000", "a/b", "*", "*.", "*a", "a.*", "a..b", ".a", "-a", "a-"),
        *("[::1]", "a b", "b\u00fccher.example", "x" * 64, "x." * 130, "a\nb", "*.*.a"),
    ],
)
def test_what_is_no_name_is_refused_at_the_start(text):
    with pytest.raises(InvalidConfig, match=r"--ui-hosts: .* is no name of a host"):
        read_ui_hosts([text])
    with pytest.raises(InvalidConfig, match="--ui-hosts"):
        check_server_config(ServerConfig(ui_hosts=(text,)))
