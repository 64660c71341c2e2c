import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.errors import InvalidRequest
from inferd.tensor.strings import (
    MAX_ELEMENT_BYTES,
    check_strings,
    count_strings,
    decode_strings,
    encode_strings,
)

READERS = [
    lambda data: decode_strings(data, "x"),
    lambda data: count_strings(data, "x"),
    lambda data: check_strings(data, 1, "x"),
]


@pytest.mark.slow
@given(st.lists(st.binary(max_size=40)))
def test_elements_survive_the_round_trip(elements):
    data = encode_strings(elements, "x")
    assert decode_strings(data, "x") == elements
    assert count_strings(data, "x") == len(elements)
    check_strings(data, len(elements), "x")


@given(st.lists(st.text(max_size=20)))
def test_text_goes_as_utf8(texts):
    elements = decode_strings(encode_strings(texts, "x"), "x")
    assert [element.decode() for element in elements] == texts


def outcome(read, data):
    try:
        return read(data)
    except InvalidRequest as error:
        return error.message


@given(st.binary(max_size=40))
def test_any_bytes_are_refused_by_all_alike_or_written_back_the_same(data):
    elements, count = (outcome(read, data) for read in READERS[:2])
    if isinstance(elements, str):
        assert count == elements
    else:
        assert count == len(elements)
        assert encode_strings(elements, "x") == data


def test_the_length_is_a_little_endian_uint32():
    assert encode_strings([b"ab", "c", b""], "x") == b"\2\0\0\0ab\1\0\0\0c\0\0\0\0"


def test_a_buffer_of_any_kind_is_read_where_it_lies():
    data = encode_strings([b"ab", b"c"], "x")
    assert decode_strings(memoryview(b"?" + data)[1:], "x") == [b"ab", b"c"]
    assert decode_strings(bytes(data), "x") == [b"ab", b"c"]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("rest", [b"\0", b"\0\0\0"])
def test_a_length_cut_short_is_refused(read, rest):
    with pytest.raises(InvalidRequest, match=f"'x': {len(rest)} bytes left where a 4-byte length"):
        read(encode_strings([b"ab"], "x") + rest)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("size", [3, MAX_ELEMENT_BYTES])
def test_a_length_past_the_end_is_refused(read, size):
    data = encode_strings([b"ab"], "x") + struct.pack("<I", size) + b"ab"
    with pytest.raises(InvalidRequest, match=f"of length {size} but only 2 bytes available"):
        read(data)


def test_another_number_of_elements_is_refused():
    with pytest.raises(InvalidRequest, match="expected 3 string elements for tensor 'x', got 2;"):
        check_strings(encode_strings([b"ab", b""], "x"), 3, "x")


def test_far_too_many_elements_are_not_all_looked_at():
    with pytest.raises(
        InvalidRequest, match="string elements beyond 1003 for tensor 'x', expecting 3"
    ):
        check_strings(bytes(4 * 1004) + b"malformed from here on", 3, "x")


def test_far_too_few_elements_are_not_looked_at():
    with pytest.raises(
        InvalidRequest, match=r"expected 600 string elements .* got only 2398 bytes"
    ):
        check_strings(b"malformed " * 239 + b"........", 600, "x")


class Huge(bytes):
    """Bytes that claim a size nobody wants to allocate in a test."""

    def __len__(self):
        return MAX_ELEMENT_BYTES + 1


def test_an_element_longer_than_a_uint32_can_say_is_refused():
    with pytest.raises(InvalidRequest, match="'x': an element of 4294967296 bytes exceeds"):
        encode_strings([Huge()], "x")
