"""gRPC over HTTP/2: heads, messages in any pieces, statuses."""

import struct
from itertools import pairwise

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.errors import InvalidRequest
from inferd.http.grpc import messages as grpc_messages
from inferd.http.grpc.messages import GrpcFault, MessageReader
from inferd.http.h2.request import RequestHead


def head(*fields):
    return RequestHead(b"POST", b"/a/b", list(fields), 0)


def message(data, flag=0):
    return struct.pack(">BL", flag, len(data)) + data


def read(data, cuts=(), limit=10**6):
    """The messages `data` hold, given in pieces cut at `cuts`."""
    got = []
    reader = MessageReader(limit, lambda *one: got.append(one))
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, stop in pairwise(places):
        reader.feed(data, start, stop)
    return [(bytes(one), flag) for one, flag in got], reader


# --- heads ---


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(b"2H", 7200), (b"3M", 180), (b"4S", 4), (b"5m", 0.005), (b"6u", 6e-6), (b"7n", 7e-9)],
)
def test_timeouts_have_six_units(text, seconds):
    grpc = grpc_messages.decode_grpc_head(head((b"grpc-timeout", text)))
    assert grpc.timeout_s == pytest.approx(seconds) and grpc.fault is None


@pytest.mark.parametrize("text", [b"", b"1", b"S", b"-1S", b"123456789S", b"1s", b"1.5S"])
def test_another_timeout_is_a_fault(text):
    assert grpc_messages.decode_grpc_head(head((b"grpc-timeout", text))).fault.status == 13


def test_another_deadline_renews_a_head_and_keeps_the_rest():
    fields = [(b"grpc-timeout", b"1S"), (b"grpc-encoding", b"gzip"), (b"id", b"1")]
    grpc = grpc_messages.decode_grpc_head(head(*fields))
    fresh = grpc_messages.renew_grpc_head(grpc, [(b"grpc-timeout", b"20m"), (b"id", b"2")])
    assert (fresh.timeout_s, fresh.encoding, fresh.fault) == (0.02, b"gzip", None)
    assert grpc.timeout_s == 1


@pytest.mark.parametrize("text", [b"", b"S", b"123456789S", b"\xb2S"])
def test_another_deadline_that_is_none_is_a_fault(text):
    grpc = grpc_messages.decode_grpc_head(head((b"grpc-timeout", b"0S")))
    fresh = grpc_messages.renew_grpc_head(grpc, [(b"grpc-timeout", text)])
    assert fresh.timeout_s is None and fresh.fault.status == 13
    assert grpc.fault is None


@pytest.mark.parametrize("name", [b"grpc-encoding", b"grpc-accept-encoding", b"content-type"])
def test_another_encoding_or_type_is_decoded_anew(name):
    grpc = grpc_messages.decode_grpc_head(head((name, b"gzip")))
    assert grpc_messages.renew_grpc_head(grpc, [(name, b"deflate")]) is None


def test_encodings_are_told():
    fields = [(b"grpc-encoding", b"gzip"), (b"grpc-accept-encoding", b"deflate, identity")]
    grpc = grpc_messages.decode_grpc_head(head(*fields))
    assert grpc.encoding == b"gzip" and grpc.fault is None
    assert grpc_messages.choose_encoding(grpc.accepted) == b"deflate"
    assert grpc_messages.choose_encoding(frozenset()) == b"identity"
    unknown = grpc_messages.decode_grpc_head(head((b"grpc-encoding", b"br")))
    assert unknown.fault.status == 12


@pytest.mark.parametrize(
    ("content_type", "is_grpc"),
    [
        (b"application/grpc", True),
        (b"application/grpc+proto", True),
        (b"application/grpc;x", True),
        (b"application/grpc-web", False),
        (b"application/json", False),
    ],
)
def test_grpc_is_known_by_its_content_type(content_type, is_grpc):
    assert grpc_messages.is_grpc(head((b"content-type", content_type))) is is_grpc
    assert not grpc_messages.is_grpc(head())


def test_metadata_are_what_the_client_added():
    fields = [(b"te", b"trailers"), (b"k", b"v"), (b"k", b"w"), (b"b-bin", b"AAE=,/w")]
    assert grpc_messages.decode_metadata(head(*fields)) == [
        ("k", "v"),
        ("k", "w"),
        ("b-bin", b"\0\1"),
        ("b-bin", b"\xff"),
    ]


@pytest.mark.parametrize("value", [b"*", b"A", b"AA A"])
def test_metadata_that_are_not_base64_are_invalid(value):
    with pytest.raises(InvalidRequest, match="'b-bin' is not Base64"):
        grpc_messages.decode_metadata(head((b"b-bin", value)))


# --- messages ---

CHUNKS = st.lists(st.binary(max_size=40), max_size=6)


@given(CHUNKS, st.lists(st.integers(0, 1000), max_size=8))
def test_messages_are_found_however_they_are_cut(messages, cuts):
    got, reader = read(b"".join(map(message, messages)), cuts)
    assert got == [(one, False) for one in messages]
    assert reader.is_between_messages and not reader.missing_bytes and reader.room() is None


LARGE = st.lists(st.integers(0, 200).map(lambda size: bytes(range(200))[:size] * 700), max_size=3)


@pytest.mark.slow
@given(CHUNKS | LARGE, st.integers(1, 50) | st.just(3000), st.integers(0, 20))
def test_pieces_of_one_length_are_read_as_each_by_itself(messages, length, between):
    data = b"".join(map(message, messages))
    data, rest = data[: len(data) // length * length], data[len(data) // length * length :]
    pieces = [data[at : at + length] for at in range(0, len(data), length)]
    spread = (b"-" * between).join(pieces)
    got = []
    reader = MessageReader(10**6, lambda *one: got.append(one))
    reader.feed_run(spread, range(0, len(spread), length + between), length)
    reader.feed(rest, 0, len(rest))
    assert [(bytes(one), flag) for one, flag in got] == [(one, False) for one in messages]


def test_a_large_message_is_one_view():
    data = bytes(range(256)) * 1000
    got = []
    reader = MessageReader(10**6, lambda *one: got.append(one))
    reader.feed(message(data), 0, 7)
    assert not reader.is_between_messages and reader.missing_bytes == len(data) - 2
    room = reader.room()
    room[:] = data[2:]
    reader.filled(len(room))
    [(view, is_compressed)] = got
    assert isinstance(view, memoryview) and view == data and not is_compressed


def test_a_message_that_is_cut_short_is_noticed():
    assert not read(message(b"abc")[:-1])[1].is_between_messages
    assert not read(b"\0\0")[1].is_between_messages


@pytest.mark.parametrize(
    ("data", "status"), [(message(b"", 2), 13), (message(bytes(11)), 8), (b"\0\xff\xff\xff\xff", 8)]
)
def test_what_is_too_large_or_badly_marked_is_a_fault(data, status):
    with pytest.raises(GrpcFault) as caught:
        read(data, limit=10)
    assert caught.value.status == status


# --- answers ---


def fields(block):
    return [tuple(one) for one in hpack.Decoder().decode(block, raw=True)]


def test_a_small_answer_is_three_frames():
    frames = grpc_messages.encode_small_answer(7, [b"ab", memoryview(b"c")], 3)
    kinds, at = [], 0
    while at < len(frames):
        length = int.from_bytes(frames[at : at + 3], "big")
        kinds.append((frames[at + 3], frames[at + 4], frames[at + 9 : at + 9 + length]))
        assert frames[at + 5 : at + 9] == b"\0\0\0\x07"
        at += 9 + length
    (h, hf, head_block), (d, df, body), (t, tf, tail_block) = kinds
    assert (h, hf, d, df, t, tf) == (1, 4, 0, 0, 1, 5)
    assert body == message(b"abc")
    assert fields(head_block) == [(b":status", b"200"), (b"content-type", b"application/grpc")]
    assert fields(tail_block) == [(b"grpc-status", b"0")]


def test_a_status_is_percent_encoded_and_may_go_alone():
    alone = dict(fields(grpc_messages.encode_status_only(12, " ä%\n~x ")))
    assert alone[b"grpc-message"] == b"%20%C3%A4%25%0A~x%20"
    assert alone[b"grpc-status"] == b"12" and alone[b":status"] == b"200"
    assert b"deflate" in alone[b"grpc-accept-encoding"]
    behind = fields(grpc_messages.encode_status(5, "", [(b"k", b"v")]))
    assert behind == [(b"grpc-status", b"5"), (b"k", b"v")]


def test_a_compressed_answer_names_its_encoding():
    block = fields(grpc_messages.encode_response_head(b"gzip"))
    assert block[-1] == (b"grpc-encoding", b"gzip")
    assert grpc_messages.encode_message([b"a", b"bc"], is_compressed=True) == [
        b"\1\0\0\0\3",
        b"a",
        b"bc",
    ]
