import numpy as np
import pytest
from google.protobuf.descriptor_pb2 import UninterpretedOption

from inferd.formats.protobuf import (
    BYTES,
    FIXED32,
    VARINT,
    Malformed,
    bytes_field,
    fields,
    float32,
    float32s,
    float_field,
    integer,
    packed_field,
    text,
    text_field,
    varint_field,
    varints,
    view,
)


def read(data, **options):
    return list(fields(memoryview(data), **options))


@pytest.mark.parametrize("number", [0, 1, 127, 128, 2**31, 2**63 - 1, -1, -(2**63)])
def test_an_integer_comes_back(number):
    [(field, kind, value)] = read(varint_field(3, number))
    assert (field, kind, integer(value)) == (3, VARINT, number)


def test_protobuf_reads_what_is_written():
    written = varint_field(5, -7) + text_field(3, "ä") + b"".join(bytes_field(7, b"a", b"b"))
    message = UninterpretedOption.FromString(written)
    assert message.identifier_value == "ä"
    assert message.negative_int_value == -7
    assert message.string_value == b"ab"


def test_what_protobuf_writes_is_read():
    message = UninterpretedOption(identifier_value="ä", negative_int_value=-7, string_value=b"x")
    found = {number: value for number, _, value in read(message.SerializeToString())}
    assert text(found[3]) == "ä"
    assert integer(found[5]) == -7
    assert bytes(found[7]) == b"x"


def test_packed_integers_come_back():
    [(_, kind, value)] = read(packed_field(8, [1, -1, 2**40]))
    assert kind == BYTES
    assert varints(value) == [1, -1, 2**40]
    assert varints(5) == [5]


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 1000])
def test_floats_one_by_one_come_as_one_packed_field(count):
    numbers = np.arange(count, dtype=np.float32)
    written = b"".join(float_field(5, number) for number in numbers)
    after = varint_field(1, 9)
    (number, kind, value), last = read(written + after, floats=5)
    assert (number, kind) == (5, BYTES)
    assert np.array_equal(float32s(value), numbers)
    assert last == (1, VARINT, 9)


def test_floats_between_other_fields_are_all_found():
    written = float_field(5, 1) + varint_field(1, 9) + float_field(5, 2) + float_field(2, 3)
    found = [(number, kind) for number, kind, _ in read(written, floats=5)]
    assert found == [(5, BYTES), (1, VARINT), (5, BYTES), (2, FIXED32)]


def test_text_that_is_no_utf8_is_escaped():
    assert text(memoryview(b"a\xff")) == "a\\xff"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x08", "does not end"),
        (b"\x08" + b"\xff" * 11, "does not end"),
        (b"\x0a\x05abc", "says it has 5 bytes, 3 are left"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "0 are left"),
        (b"\x0d\x00", "says it has 4 bytes, 1 are left"),
        (b"\x02\x00", "no field 0"),
        (b"\x0b\x0c", "wire type 3"),
        (b"\x0f", "wire type 7"),
    ],
)
def test_malformed_bytes_are_told_by_their_place(data, reason):
    with pytest.raises(Malformed, match=reason):
        read(data)


def test_a_float_that_is_cut_off_is_malformed():
    with pytest.raises(Malformed, match="says it has 4 bytes, 2 are left"):
        read(float_field(5, 1.0)[:3], floats=5)


@pytest.mark.parametrize("value", [memoryview(b""), memoryview(b"12345678"), memoryview(b"123")])
def test_what_is_not_one_float_is_malformed(value):
    with pytest.raises(Malformed):
        float32(value)


def test_a_number_has_no_bytes_and_bytes_are_no_number():
    with pytest.raises(Malformed, match="has a number instead"):
        view(1)
    with pytest.raises(Malformed, match="has bytes instead"):
        integer(memoryview(b""))
