"""The fields of messages, taken apart by hand."""

import pytest

from inferd.errors import InvalidRequest
from inferd.wire.trtis.grpc import decode_fields


def fields_of(data):
    return decode_fields(memoryview(data), "a message")


def test_numbers_and_texts_are_by_tag_in_their_order():
    data = b"\x08\x96\x01\x12\x02ab\x08\x05\x12\x00"
    found = fields_of(data)
    assert found[0x08] == [150, 5]
    assert [bytes(view) for view in found[0x12]] == [b"ab", b""]
    assert found[0x12][0].obj is data  # a view, no copy


def test_what_is_neither_is_passed_over():
    assert fields_of(b"\x09" + bytes(8) + b"\x15" + bytes(4) + b"\x08\x01")[0x08] == [1]


def test_a_number_above_64_bits_keeps_the_lower_ones():
    assert fields_of(b"\x08" + b"\xff" * 9 + b"\x7f")[0x08] == [2**64 - 1]


@pytest.mark.parametrize(
    "data",
    [
        b"\x08",
        b"\x08" + b"\xff" * 10,
        b"\x12\x05abcd",
        b"\x09" + bytes(7),
        b"\x0b",
        b"\x0e",
        b"\x12",
    ],
)
def test_what_is_cut_short_or_of_no_wire_type_is_refused(data):
    with pytest.raises(InvalidRequest, match="cannot be read as a message"):
        fields_of(data)


def test_more_fields_than_any_message_has_are_refused():
    with pytest.raises(InvalidRequest, match="more than 10000 fields"):
        fields_of(b"\x12\x00" * 10_001)
