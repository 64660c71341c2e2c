import re

import pytest

from inferd.http.header_forward import HeaderForward, text_of

FIELDS = [("Host", "there"), ("X-User", "ann"), ("x-group", "b"), ("Proxy-X-Id", "7")]


def chosen(pattern, fields=FIELDS, never=()):
    search = re.compile(pattern, re.IGNORECASE).search
    return HeaderForward(search, frozenset(never)).chosen(fields)


def test_names_are_chosen_by_what_the_search_finds_in_them():
    assert list(chosen("^x-")) == ["X-User", "x-group"]
    assert chosen("nothing") == {}


def test_a_header_keeps_its_name_and_value():
    assert chosen("user") == {"X-User": "ann"}


def test_a_header_that_comes_twice_is_a_list_under_its_first_name():
    fields = [("X-A", "1"), ("X-B", "2"), ("x-a", "3")]
    assert chosen("x-", fields) == {"X-A": "1, 3", "X-B": "2"}


def test_cookies_that_come_apart_are_joined_as_one_header_has_them():
    fields = [("cookie", "a=1"), ("x-a", "2"), ("Cookie", "b=3; c=4")]
    assert chosen("^cookie$", fields) == {"cookie": "a=1; b=3; c=4"}


def test_binary_metadata_and_very_long_names_are_left_out():
    fields = [("x-bin", b"\x00"), ("x" * 256, "a"), ("x" * 257, "b")]
    assert chosen(".", fields) == {"x" * 256: "a"}


def test_some_are_never_chosen():
    assert list(chosen(".", never=("x-user", "host"))) == ["x-group", "Proxy-X-Id"]


def test_fields_in_bytes_are_chosen_as_text():
    forward = HeaderForward(re.compile("^X-").search, frozenset())
    assert forward.chosen_fields([(b"X-A", b"1"), (b"y", b"2")]) == {"X-A": "1"}
    assert forward.chosen_fields([(b"y", b"2")]) is None


@pytest.mark.parametrize(
    ("value", "text"), [(b"a", "a"), ("ü".encode(), "ü"), (b"\xfc", "ü"), (b"", "")]
)
def test_bytes_are_utf8_or_latin1(value, text):
    assert text_of(value) == text
