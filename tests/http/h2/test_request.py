"""The fields of a request's head (RFC 9113, section 8)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.http.h2.request import BaseHead, MalformedRequest, decode_request_head, trimmed

HEAD = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/p"), (b":authority", b"h")]


def test_a_head_has_its_parts():
    head = decode_request_head([*HEAD, (b"te", b"trailers"), (b"content-length", b"12")], 99)
    assert (head.method, head.path, head.size) == (b"POST", b"/p", 99)
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
        [*HEAD[:2], (b":path", b"/ ")],
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
    return bool(name) and is_token and is_for_us and is_clean


@pytest.mark.parametrize("value", [b" x", b"x\t", b" ", b"\t x y "])
def test_space_around_a_value_is_taken_whole_and_may_be_trimmed(value):
    head = decode_request_head([*HEAD, (b"a", value)], 0)
    assert head.fields == [(b"a", value)]
    assert trimmed(head.fields) == [(b"a", value.strip())]


def test_space_around_the_values_of_special_fields_changes_nothing():
    fields = [*HEAD, (b"te", b" trailers"), (b"content-length", b" 7\t")]
    assert decode_request_head(fields, 0).content_length == 7


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


def read(fields):
    try:
        head = decode_request_head(fields, 7)
    except MalformedRequest:
        return None
    return (head.method, head.path, head.fields, head.size, head.content_length)


ORDINARY = st.lists(
    st.tuples(
        st.sampled_from(
            [b"a", b"grpc-timeout", b"te", b"content-length", b"connection", b"x" * 99]
        ),
        st.sampled_from([b"1", b"2", b"trailers", b" ", b"\0", b"a\nb", b"x-y"]),
    ),
    max_size=4,
)
PSEUDO = st.permutations(HEAD) | st.just(HEAD) | st.just([*HEAD[:2], (b":path", b"/q"), HEAD[3]])


@given(PSEUDO, ORDINARY, PSEUDO, ORDINARY)
def test_a_renewed_head_is_what_decoding_it_would_give(pseudo, before, other, after):
    base_fields = [*pseudo, *before]
    fields = [*other, *after, *before[len(after) :]][: len(base_fields)]
    if read(base_fields) is None or len(fields) != len(base_fields):
        return
    base = decode_request_head(base_fields, 1)
    found = BaseHead(base_fields, base).renewed(fields, 7)
    if found is not None:
        told = (found.method, found.path, found.fields, found.size)
        assert (*told, found.content_length) == read(fields)
        assert found.base is base and found.use is None
        differing = [one for one, known in zip(fields, base_fields, strict=True) if one != known]
        assert found.changed == differing


def test_metadata_that_change_renew_a_head():
    base_fields = [*HEAD, (b"te", b"trailers"), (b"id", b"1"), (b"at", b"x y")]
    base = decode_request_head(base_fields, 1)
    fields = [*HEAD, (b"te", b"trailers"), (b"id", b"2-3"), (b"at", b"x y")]
    assert BaseHead(base_fields, base).renewed(fields, 7).changed == [(b"id", b"2-3")]


@pytest.mark.parametrize("field", [(b"te", b""), (b"te", b"gzip"), (b"id", b"a\n"), (b"di", b"1")])
def test_what_does_not_stand_alone_is_decoded(field):
    base_fields = [*HEAD, (b"te", b"trailers"), (b"id", b"1")]
    base = decode_request_head(base_fields, 1)
    fields = [*HEAD, *(base_fields[4:5] if field[0] != b"te" else []), field, (b"id", b"1")][:6]
    assert BaseHead(base_fields, base).renewed(fields, 7) is None


def test_the_authority_is_kept_also_in_heads_that_differ_a_little():
    fields = [*HEAD, (b"x", b"1")]
    head = decode_request_head(fields, 0)
    assert head.authority == b"h"
    assert BaseHead(fields, head).renewed([*HEAD, (b"x", b"2")], 0).authority == b"h"
    other = [*HEAD[:-1], (b":authority", b"other"), (b"x", b"1")]
    assert BaseHead(fields, head).renewed(other, 0) is None  # it is decoded anew
    assert decode_request_head(HEAD[:-1], 0).authority == b""
