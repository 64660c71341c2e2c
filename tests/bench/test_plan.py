"""Messages between processes."""

import io

import pytest

from inferd.bench.plan import (
    LEAST_SEQUENCE,
    MOST_SEQUENCES,
    PLACEHOLDER,
    Address,
    FromGenerator,
    LoadProgress,
    Message,
    Plan,
    Point,
    StartPoint,
    ToGenerator,
    packed,
    read_packed,
    samples,
    varint,
)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (Plan(Address("h", 1, is_grpc=True), [Message(b"a\0", b"b")], b"head"), Plan),
        (StartPoint(Point(rate=1.5, offsets_s=[1, 2]), 5), ToGenerator),
        (LoadProgress(1, 2, [3]), FromGenerator),
    ],
)
def test_what_is_packed_is_read_again(message, kind):
    stream = io.BytesIO(packed(message) + packed(message)[:-1])
    assert read_packed(stream, kind) == message
    assert read_packed(stream, kind) is None  # cut short
    assert read_packed(stream, kind) is None


def test_the_number_of_a_sequence_has_one_length():
    message = Message(b"<", b">")
    for number in (LEAST_SEQUENCE, PLACEHOLDER, LEAST_SEQUENCE + MOST_SEQUENCES // 2 - 1):
        assert message.numbered(number, is_varint=False) == b"<%d>" % number
        assert len(message.numbered(number, is_varint=False)) == 12
        assert len(varint(number)) == 5
    assert varint(300) == b"\xac\x02"


def test_a_point_is_called_after_its_load():
    assert Point(concurrency=8).name == "8" and Point(rate=2.5).name == "2.5/s"
    assert samples(b"\1" + bytes(7)).tolist() == [1]
