"""InferRequest messages: what is known from those before changes nothing in what one means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.errors import InvalidRequest
from inferd.wire.proto import message_class
from inferd.wire.trtis.grpc import decode_infer_request

HEADER = message_class("nvidia.inferenceserver.InferRequestHeader")
REQUEST = message_class("nvidia.inferenceserver.InferRequest")


def header(number=0, names=("A", "B"), batch=1, **more):
    """A header with an input of [16] and an output for each of `names`."""
    made = HEADER(batch_size=batch, id=number, **more)
    for name in names:
        made.input.add(name=name).dims.append(16)
        made.output.add(name=name)
    return made.SerializeToString()


def request(described, raw=(b"a" * 8, b"b" * 8), model="m", version=-1):
    """A message with that header, however it is written."""
    message = REQUEST(model_name=model, model_version=version, raw_input=raw)
    return message.SerializeToString() + b"\x1a" + bytes((len(described),)) + described


def said(data):
    """All a message asks for, as we read it."""
    asked = decode_infer_request(data)
    told = asked.header
    inputs = [(one.name, one.dims, one.batch_byte_size) for one in told.inputs]
    outputs = [(one.name, one.top_k) for one in told.outputs]
    ids = (told.id, told.correlation_id, told.flags)
    raw = [bytes(one) for one in asked.raw.take_all(list(map(len, asked.raw.raw)))]
    return asked.model, asked.version, told.batch_size, inputs, outputs, ids, raw


def meant(data):
    """All a message asks for, as protobuf reads it."""
    message = REQUEST.FromString(data)
    told = message.meta_data
    version = message.model_version
    inputs = [(one.name, tuple(one.dims), one.batch_byte_size) for one in told.input]
    outputs = [(one.name, one.cls.count) for one in told.output]
    ids = (told.id, told.correlation_id, told.flags)
    raw = list(message.raw_input)
    text = "" if version == -1 else str(version)
    return message.model_name, text, told.batch_size, inputs, outputs, ids, raw


ids = st.sampled_from([0, 1, 5, 40, 127, 128, 300, 2**14, 2**35, 2**64 - 1])
names = st.sampled_from([("A", "B"), ("A", "C"), ("A", "(\x05"), ("A",)])
messages = st.builds(
    request,
    st.builds(header, ids, names, st.integers(0, 3), flags=st.integers(0, 1)),
    st.lists(st.sampled_from([b"", b"1234", b"abcdefgh"]), max_size=3),
    st.sampled_from(["m", "n"]),
    st.sampled_from([-1, 0, 3]),
)


@pytest.mark.slow
@given(st.lists(messages, min_size=1, max_size=8))
def test_any_row_of_messages_is_read_as_protobuf_reads_each(row):
    for data in [*row, *row, *row]:
        assert said(data) == meant(data)


LEARNT = header(5 + (1 << 7) + (3 << 14))  # an id of three bytes


@pytest.mark.parametrize(
    "tail",
    [
        b"\x28\x05\x30\x01",  # a shorter id, and flags
        b"\x28\x85\x80\x00",  # the same id, longer than it need be
        b"\x20\x85\x81\x03",  # no id, but a correlation id
        b"\x28\x00\x38\x01",  # id 0, and a priority
    ],
)
def test_what_only_looks_like_another_id_is_not_taken_for_one(tail):
    for number in (300, 20_000, 30_000):
        said(request(header(number)))
    data = request(LEARNT[:-4] + tail)
    assert said(data) == meant(data)


@pytest.mark.parametrize("tail", [b"\x28\x85\x81\x83", b"\x28\x05\x30\x81"])
def test_an_id_that_is_cut_short_is_refused(tail):
    for number in (20_000, 30_000, 40_000):
        said(request(header(number)))
    with pytest.raises(InvalidRequest):
        decode_infer_request(request(LEARNT[:-4] + tail))


def test_an_id_in_front_of_the_tensors_is_read_each_time():
    for number in (5, 6, 7, 6):
        data = request(bytes((0x28, number)) + header(names=("A", "(\x05")))
        assert said(data) == meant(data)
        assert decode_infer_request(data).header.words == b""


def test_messages_that_differ_in_id_and_values_have_the_same_words():
    found = [
        decode_infer_request(request(header(number), [bytes((number % 256,)) * 8] * 2))
        for number in (301, 302, 303, 304)
    ]
    assert found[2].header.words == found[3].header.words == header()
    assert [one.header.id for one in found] == [301, 302, 303, 304]
