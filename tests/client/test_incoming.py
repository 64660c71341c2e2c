"""What a client receives over HTTP/2."""

import pytest

from inferd.client.incoming import PREFIX, whole_answer, without_padding
from inferd.http.h2.frames import DATA, HEADERS, ConnectionFault, encode_frame

KNOWN = {b"h": {":status": "200"}, b"t": {"grpc-status": "0"}}


def answer(message=b"abc", *, length=None, flag=0, head=b"h", flags=(4, 0, 5), streams=(3, 3, 3)):
    body = PREFIX.pack(flag, len(message) if length is None else length) + message
    return (
        encode_frame(HEADERS, flags[0], streams[0], head)
        + encode_frame(DATA, flags[1], streams[1], body)
        + encode_frame(HEADERS, flags[2], streams[2], b"t")
    )


def found(data, known=KNOWN):
    buffer = bytearray(b"??" + data + b"more")
    return whole_answer(buffer, 2, 2 + len(data), 3, known)


@pytest.mark.parametrize("message", [b"", b"abc", b"x" * 300])
def test_a_usual_answer_is_read_at_once(message):
    data = answer(message)
    head, trailers, body, end = found(data)
    assert (head, trailers, body) == (KNOWN[b"h"], KNOWN[b"t"], message)
    assert end == 2 + len(data)
    assert found(data + b"next") == found(data)


@pytest.mark.parametrize(
    "data",
    [
        answer(flag=1),
        answer(length=2),
        answer(length=4),
        answer(head=b"new"),
        answer(flags=(0, 0, 5)),
        answer(flags=(4, 1, 5)),
        answer(flags=(4, 8, 5)),
        answer(flags=(4, 0, 4)),
        answer(streams=(3, 1, 3)),
        answer(streams=(3, 3, 1)),
        encode_frame(DATA, 0, 3, b"0" * 40),
        encode_frame(HEADERS, 4, 3, b"h") + encode_frame(HEADERS, 5, 3, b"t" * 40),
    ],
)
def test_any_other_is_left_to_the_reader_of_frames(data):
    assert found(data) is None


def test_an_answer_of_which_some_is_missing_is_left():
    data = answer()
    for size in range(len(data)):
        assert found(data[:size]) is None, size


def test_padding_is_left_out():
    assert without_padding(b"\x02abcxx", 0x8) == b"abc"
    assert without_padding(b"abc", 0) == b"abc"
    for payload in (b"", b"\x01", b"\x04abc"):
        with pytest.raises(ConnectionFault):
            without_padding(payload, 0x8)
