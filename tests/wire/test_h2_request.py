"""The fields of a request's head (RFC 9113, section 8)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.wire.h2_request import MalformedRequest, decode_request_head

HEAD = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/p"), (b":authority", b"h")]


def test_a_head_has_its_parts():
    head = decode_request_head([*HEAD, (b"te", b"trailers"), (b"content-length", b"12")], 99)
    assert (head.method, head.path, head.authority, head.size) == (b"POST", b"/p", b"h", 99)
    assert head.fields == [(b"te", b"trailers"), (b"content-length", b"12")]
    assert head.content_length == 12
    assert decode_request_head(HEAD, 0).content_length == -1


@pytest.mark.parametrize(
    "fields",
    [
        [(b":method", b"CONNECT"), (b":authority", b"h:1")],
        [(b":method", b"OPTIONS"), (b":scheme", b"http"), (b":path", b"*")],
        [*HEAD, (b"content-length", b"1"), (b"content-length", b"1")],
    ],
)
def test_unusual_heads_are_read(fields):
    assert decode_request_head(fields, 0).method == fields[0][1]


@pytest.mark.parametrize(
    ("digits", "length"),
    [
        (b"0", 0),
        (b"00012", 12),
        (b"9" * 18, 10**18 - 1),
        (b"1" + b"0" * 18, 10**18 - 1),  # more than any body has
        (b"9" * 5000, 10**18 - 1),
        (b"0" * 5000 + b"7", 7),
    ],
)
def test_a_length_may_have_any_number_of_digits(digits, length):
    assert decode_request_head([*HEAD, (b"content-length", digits)], 0).content_length == length


@pytest.mark.parametrize(
    "fields",
    [
        [],
        HEAD[1:],
        [HEAD[0], *HEAD[2:]],
        HEAD[:2],
        [*HEAD, HEAD[0]],
        [*HEAD, (b"a", b"b"), HEAD[0]],
        [*HEAD, (b":status", b"200")],
        [*HEAD[:2], (b":path", b"")],
        [*HEAD[:2], (b":path", b"p")],
        [*HEAD[:2], (b":path", b"/\n")],
        [(b":method", b"CONNECT"), *HEAD[1:]],
        [(b":method", b"CONNECT")],
        [*HEAD, (b"Upper", b"")],
        [*HEAD, (b"", b"")],
        [*HEAD, (b"a b", b"")],
        [*HEAD, (b"a", b"x\r")],
        [*HEAD, (b"a", b"\0")],
        [*HEAD, (b"a", b" x")],
        [*HEAD, (b"a", b"x\t")],
        [*HEAD, (b"connection", b"close")],
        [*HEAD, (b"transfer-encoding", b"chunked")],
        [*HEAD, (b"te", b"gzip")],
        [*HEAD, (b"content-length", b"-1")],
        [*HEAD, (b"content-length", b"")],
        [*HEAD, (b"content-length", b"1"), (b"content-length", b"2")],
    ],
)
def test_malformed_heads_are_refused(fields):
    with pytest.raises(MalformedRequest):
        decode_request_head(fields, 0)


def is_allowed(name, value):
    """Section 8.2.1, character by character."""
    is_token = all(c in b"!#$%&'*+-.^_`|~0123456789" or 97 <= c <= 122 for c in name)
    is_clean = not any(c in b"\0\r\n" for c in value)
    is_for_us = name != b"te"  # what is asked for there is none of VALUES
    return bool(name) and is_token and is_for_us and is_clean and value == value.strip(b" \t")


NAMES = st.binary(min_size=0, max_size=3) | st.sampled_from([b"x", b"a-b", b"x" * 100, b"X" * 100])
VALUES = st.lists(
    st.sampled_from([b"a", b" ", b"\t", b"\n", b"\r", b"\0", b"\xff", b":"]), max_size=4
)


@given(NAMES, VALUES)
def test_fields_have_the_characters_they_may_have(name, value):
    fields = [*HEAD, (name, b"".join(value))]
    for _ in range(2):  # what is known of a name by now says the same
        try:
            decode_request_head(fields, 0)
        except MalformedRequest:
            assert not is_allowed(*fields[-1])
        else:
            assert is_allowed(*fields[-1])
