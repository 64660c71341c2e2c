import struct

import numpy as np
import pytest

from inferd.formats.trees.binary import BinaryReader

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
