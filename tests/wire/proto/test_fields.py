"""Messages cut by hand: a known layout says the same as cutting anew."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as pb

from inferd.wire.proto.fields import ID, Layout, split_message

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
    message("a", [b"one"]) + ID + b"\x01b",  # an id twice: the last one counts
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
