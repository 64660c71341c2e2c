"""Binary files, read up to their end and no further; UBJSON."""

import struct

import numpy as np
import pytest

from inferd.errors import InvalidConfig
from inferd.formats.trees.binary import BinaryReader, decode_ubjson

CONTENT = (
    struct.pack("<iQ", -7, 2)
    + np.array([1.5, 2.5], "<f8").tobytes()
    + struct.pack("<Q", 3)
    + b"abc"
)


def test_numbers_arrays_and_texts_are_read_in_order():
    reader = BinaryReader(CONTENT)
    assert reader.number("i") == -7
    assert reader.array("<f8").tolist() == [1.5, 2.5]
    assert reader.text() == "abc"
    assert reader.take(0) == b""


def test_an_array_of_known_length_has_no_count_before_it():
    assert BinaryReader(bytes([1, 2, 3])).array(np.uint8, 2).tolist() == [1, 2]


@pytest.mark.parametrize("size", [-1, len(CONTENT) + 1])
def test_nothing_is_read_beyond_the_end(size):
    with pytest.raises(ValueError, match="bytes expected, it has"):
        BinaryReader(CONTENT).take(size)


def test_a_count_that_the_file_does_not_have_is_refused():
    with pytest.raises(ValueError, match="at byte 8"):
        BinaryReader(struct.pack("<Q", 2**60)).array(np.float64)


def test_a_text_that_is_not_utf_8_is_refused():
    with pytest.raises(UnicodeDecodeError):
        BinaryReader(struct.pack("<Q", 1) + b"\xff").text()


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"Z", None),
        (b"T", True),
        (b"F", False),
        (b"i\xff", -1),
        (b"U\xff", 255),
        (b"I\x01\x00", 256),
        (b"l\x00\x00\x00\x07", 7),
        (b"L\x00\x00\x00\x00\x00\x00\x00\x07", 7),
        (b"d" + struct.pack(">f", 0.5), 0.5),
        (b"D" + struct.pack(">d", 0.1), 0.1),
        (b"SU\x02ab", "ab"),
        (b"Ca", "a"),
        (b"[]", []),
        (b"[U\x01SU\x01x]", [1, "x"]),
        (b"[#U\x02TF", [True, False]),
        (b"[$S#U\x02U\x01aU\x01b", ["a", "b"]),
        (b"{U\x01kU\x07}", {"k": 7}),
        (b"{#U\x01U\x01k[]", {"k": []}),
        (b"N{U\x01kNT}", {"k": True}),
    ],
)
def test_every_kind_is_read(data, value):
    assert decode_ubjson(data) == value


def test_numbers_of_one_type_are_an_array():
    got = decode_ubjson(b"[$l#U\x02" + struct.pack(">2i", -1, 70000))
    assert isinstance(got, np.ndarray)
    assert got.tolist() == [-1, 70000]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"{",
        b"{U",
        b"SL\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"[$d#L\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"[$T#L\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"[#L\x7f\xff\xff\xff\xff\xff\xff\xffT",
        b"[$l",
        b"[$lU\x01",
        b"[#SU\x01a",
        b"[#i\xff",
        b"[" * 1000,
        b"{U\x01a" * 1000,
        b"SU\x01\xff",
        b"S" * 5000,
        b"STa",
    ],
)
def test_what_is_cut_off_or_too_large_is_refused(data):
    with pytest.raises(InvalidConfig, match="no UBJSON, or cut off"):
        decode_ubjson(data)
