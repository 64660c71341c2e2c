import struct

import pytest

from inferd.backends.litert.table import FlatTable, TooMuch, root

# The root's place; a vtable of 5 fields (its size, the table's size, offsets); the table itself.
FIELDS = struct.pack("<7H", 14, 24, 4, 8, 12, 16, 0)
START = 4 + len(FIELDS) + 2
TABLE = struct.pack("<i4i", START - 4, 7, 9, 8, 12)
VECTOR = struct.pack("<I3i", 3, 5, -6, 7)


def file():
    """A table with 7 in field 0, the byte 9 in field 1, two vectors, and no field 4."""
    return struct.pack("<I", START) + FIELDS + b"\0\0" + TABLE + VECTOR + VECTOR


def table(left=100):
    content = file()
    return FlatTable(content, root(content), [left])


def test_numbers_are_read_and_those_that_are_absent_are_0():
    assert table().number(0) == 7
    assert table().byte(1) == 9
    assert table().number(4) == 0
    assert table().byte(17) == 0
    assert table().table(4) is None


def test_a_vector_has_its_items_and_an_absent_one_has_none():
    assert table().numbers(2) == (5, -6, 7)
    assert table().count(2) == 3
    assert table().numbers(4) == ()
    assert list(table().tables(4)) == []


def test_no_more_items_are_read_than_allowed_in_all():
    limited = table(left=4)
    limited.numbers(2)
    with pytest.raises(TooMuch):
        limited.numbers(2)


@pytest.mark.parametrize("size", [3, START + 2, START + 12])
def test_a_file_that_is_cut_off_is_noticed(size):
    content = file()[:size]
    with pytest.raises((struct.error, IndexError)):
        FlatTable(content, root(content), [100]).numbers(2)


def test_a_table_whose_fields_would_lie_before_the_file_is_noticed():
    with pytest.raises(IndexError):
        FlatTable(struct.pack("<i", 99), 0, [100])
