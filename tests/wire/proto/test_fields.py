"""Messages cut by hand: a known layout says the same as cutting anew."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as pb

from inferd.errors import InvalidRequest
from inferd.wire.proto.fields import (
    ID,
    MAX_FIELDS,
    MOST_CUT,
    Layout,
    check_field_count,
    split_message,
)

RAW = 0x3A


def message(request_id="", raw=(b"1234", b"56")):
    made = pb.ModelInferRequest(model_name="m", id=request_id, raw_input_contents=raw)
    for name in "AB":
        made.inputs.add(name=name, datatype="INT32", shape=[1, 16])
    return made.SerializeToString()


def layout(data):
    split = split_message(data, RAW)
    return Layout(data, split)


SEEDS = [
    message(),
    message("an id"),
    message("an id", [b"x" * 300, b""]),
    message() + ID + b"\x02id",  # the id behind the raw contents
]


@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_messages_that_differ_in_id_and_data_fit(kind):
    known = layout(message("first"))
    other = kind(message("other", [b"4321", b"65"]))
    request_id, raw = known.cut(other)
    assert request_id == b"other"
    assert [bytes(data) for data in raw] == [b"4321", b"65"]


def test_raw_contents_are_views():
    data = message(raw=[bytes(1000)])
    _, raw = layout(data).cut(data)
    assert raw[0].obj is data


def test_other_lengths_of_the_same_sum_do_not_fit():
    assert layout(message(raw=[b"1234", b"56"])).cut(message(raw=[b"123", b"456"])) is None
    assert layout(message("abc", [b"1"])).cut(message("ab", [b"12"])) is None


@pytest.mark.slow
@settings(max_examples=400)
@given(st.sampled_from(SEEDS), st.data())
def test_what_fits_is_cut_as_if_nothing_were_known(seed, data):
    known, damaged = layout(seed), bytearray(seed)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(seed) - 1))] = data.draw(st.integers(0, 255))
    found = known.cut(bytes(damaged))
    if found is not None:
        split = split_message(bytes(damaged), RAW)
        assert split.rest == split_message(seed, RAW).rest
        assert found == (split.id, split.raw)


def test_an_id_that_comes_twice_is_left_to_a_parser():
    assert split_message(message("a", [b"one"]) + ID + b"\x01b", RAW) is None


def test_a_message_of_very_many_fields_is_left_to_a_parser():
    empty = bytes((RAW, 0))
    assert len(split_message(empty * (MOST_CUT - 1), RAW).raw) == MOST_CUT - 1
    assert split_message(empty * (MOST_CUT + 1), RAW) is None


@pytest.mark.parametrize(
    "field",
    [
        *(b"\x3a\x00", b"\x3a\x05abcde", b"\x78\x01", b"\x78" + b"\xff" * 9 + b"\x01"),
        *(b"\x79" + bytes(8), b"\x7d" + bytes(4), b"\x7b", b"\xfa\xff\xff\xff\x0f\x01x"),
    ],
    ids=bytes.hex,
)
def test_fields_are_counted_before_they_are_parsed(field):
    check_field_count(field * MAX_FIELDS)
    with pytest.raises(InvalidRequest, match=f"more than {MAX_FIELDS} fields"):
        check_field_count(field * (MAX_FIELDS + 1))


@pytest.mark.parametrize("end", [b"\xff" * 11, b"\x3a\xff", b"\x3a\x09x", b"\x79x", b"\x7e"])
def test_what_is_malformed_is_for_the_parser_to_refuse(end):
    check_field_count(b"\x3a\x00" * 9 + end)
