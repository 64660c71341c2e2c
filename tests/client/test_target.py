"""URLs of servers."""

import pytest

from inferd.client import InvalidTarget
from inferd.client.target import ServerTarget, parse_target


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://h", ServerTarget("http", "h", 8000)),
        ("https://h:443/", ServerTarget("https", "h", 443)),
        ("grpc://h", ServerTarget("grpc", "h", 8001)),
        ("grpcs://[::1]:9", ServerTarget("grpcs", "::1", 9)),
        ("HTTP://H:1/a/b/", ServerTarget("http", "h", 1, "/a/b")),
    ],
)
def test_urls_that_name_a_server(url, target):
    assert parse_target(url) == target
    assert parse_target(str(target)) == target


@pytest.mark.parametrize(
    "url",
    [
        "h:8000",
        "127.0.0.1:8000",
        "ftp://h",
        "http://",
        "http://h:x",
        "http://h:99999",
        "http://user:secret@h",
        "http://h/?q",
        "http://h/#f",
        "http://h/a b",
        "http://h/\r\nX: y",
        "grpc://h/path",
        "",
    ],
)
def test_urls_that_do_not_say_what_is_expected(url):
    with pytest.raises(InvalidTarget, match="expected http://HOST:PORT") as found:
        parse_target(url)
    assert "secret" not in str(found.value)


def test_what_a_target_says():
    target = parse_target("grpcs://[::1]:9")
    assert target.is_grpc
    assert target.is_tls
    assert target.authority == "[::1]:9"
    assert not parse_target("http://h").is_tls
