import pytest

from inferd.backends.tensorflow.graph import integer, merged, messages, text
from inferd.formats.protobuf import Malformed, fields


def view(data):
    return memoryview(data)


def test_every_wire_type_is_read_or_passed_over(write):
    message = write.encoded((1, 300), (2, "word")) + b"\x1d\1\2\3\4" + b"\x21" + bytes(8)
    found = [(n, v if isinstance(v, int) else bytes(v)) for n, _, v in fields(view(message))]
    assert found == [(1, 300), (2, b"word"), (3, b"\1\2\3\4"), (4, bytes(8))]


def test_the_last_of_a_field_counts_and_absent_ones_are_empty(write):
    message = view(write.encoded((1, "a"), (1, "b"), (2, -1)))
    assert text(message, 1) == "b"
    assert [bytes(one) for one in messages(message, 1)] == [b"a", b"b"]
    assert integer(message, 2) == -1
    assert (text(message, 7), integer(message, 7), bytes(merged(message, 7))) == ("", 0, b"")


def test_a_message_that_comes_in_parts_is_all_of_them(write):
    message = view(write.encoded((1, write.encoded((2, "a"))), (1, write.encoded((3, "b")))))
    whole = merged(message, 1)
    assert (text(whole, 2), text(whole, 3)) == ("a", "b")


@pytest.mark.parametrize(
    "data",
    [
        b"\x08",
        b"\x08" + b"\xff" * 11,
        b"\x0a\x05abc",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0b",
        b"\x0f",
        b"\x02\x00",
        b"\x0d\x01",
    ],
)
def test_what_is_cut_off_or_no_message_is_malformed(data):
    with pytest.raises(Malformed):
        list(fields(view(data)))


def test_a_text_that_is_none_is_malformed(write):
    with pytest.raises(Malformed, match="not UTF-8"):
        text(view(write.encoded((1, b"\xff"))), 1)
