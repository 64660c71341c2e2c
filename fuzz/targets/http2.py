"""Frames of HTTP/2 after a sound start: a connection does the same however they are cut.

An even first byte: frames as they are. An odd one: each frame as type, flags, stream and length, a
byte each, then its payload. The second byte is the size of the pieces.
"""

from h2_peer import BLOCK, Noting, Peer, data, head, request

from inferd.http.h2.frames import (
    END_STREAM,
    PREFACE,
    SETTINGS,
    WINDOW_UPDATE,
    ErrorCode,
    encode_frame,
    encode_rst_stream,
)

START = PREFACE + encode_frame(SETTINGS, 0, 0)
_GOAWAY = 7

_CONVERSATIONS = [
    request(1) + request(3),
    head(1) + data(1, b"ab", END_STREAM) + encode_frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\x09"),
    head(1)
    + encode_rst_stream(1, ErrorCode.CANCEL)
    + head(3, END_STREAM, BLOCK + b"\x40\x01a\x01x"),
    encode_frame(SETTINGS, 0, 0, b"\0\x04\0\0\0\x05")
    + request(1)
    + encode_frame(6, 0, 0, bytes(8)),
]
SEEDS = [bytes([0, size]) + one for one in _CONVERSATIONS for size in (1, 50)]
SEEDS.append(b"\x01\x07" + bytes([1, 5, 1, len(BLOCK)]) + BLOCK + bytes([8, 0, 0, 4, 0, 0, 0, 9]))


class Answering(Noting):
    """A handler that answers everything with more than the windows allow."""

    def on_end(self) -> None:
        """See StreamHandler."""
        super().on_end()
        self.sender.send_headers(self.stream, b"\x88")
        self.sender.send_data(self.stream, [b"z" * 3000], b"")


def target(data: bytes) -> bool:
    """Send in one piece and in several; return whether the connection lasted."""
    is_short, size, sent = data[:1] > b"" and data[0] & 1, data[1:2], data[2:]
    if is_short:
        sent = _frames(sent)
    whole, cut = _outcome(sent, len(sent) + 1), _outcome(sent, max(size[0] if size else 1, 1))
    assert whole == cut, (whole, cut)
    return not whole[2]


def _frames(data: bytes) -> bytes:
    frames, at = [], 0
    while at + 4 <= len(data):
        kind, flags, stream_id, length = data[at : at + 4]
        frames.append(encode_frame(kind % 11, flags, stream_id, data[at + 4 : at + 4 + length]))
        at += 4 + length
    return b"".join(frames)


def _outcome(sent: bytes, size: int) -> tuple[object, object, bool]:
    peer = Peer(ready=False, handler=Answering)
    peer.send(START)
    for at in range(0, len(sent), size):
        peer.send(sent[at : at + size])
    frames, failed = peer.got(), peer.sender.is_failed
    assert not failed or (frames[-1][0] == _GOAWAY and not peer.sender.handlers)
    return frames, {n: (s.events, s.data) for n, s in peer.seen.items()}, failed
