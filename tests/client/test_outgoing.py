"""What a client sends over HTTP/2."""

import pytest
from hpack import Decoder

from inferd.client.outgoing import BodyPieces, SendWindows, header_block, timeout_text
from inferd.http.h2.frames import Setting, encode_settings


def test_pieces_are_views_in_order():
    data = bytearray(b"abcdefgh")
    pieces = BodyPieces([memoryview(data)[:3], memoryview(b""), memoryview(data)[3:]])
    found = [pieces.take(2), pieces.take(5), pieces.take(1)]
    assert [b"".join(one) for one in found] == [b"ab", b"cdefg", b"h"]
    assert found[1][0].obj is data


def test_a_header_block_is_what_other_decoders_read():
    block = header_block("http", "h:1", "/S/M", "X-A: b: c\r\nauthorization: Bearer k\r\n", b"5m")
    found = dict(Decoder().decode(block))
    assert found[":path"] == "/S/M"
    assert found[":authority"] == "h:1"
    assert found["x-a"] == "b: c"
    assert found["authorization"] == "Bearer k"
    assert found["te"] == "trailers"
    assert found["grpc-timeout"] == "5m"


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.5, b"1500m"), (0, b"1m"), (1e6, b"1000000S"), (1e300, b"99999999S")]
)
def test_timeouts_as_grpc_writes_them(seconds, text):
    assert timeout_text(seconds) == text


def test_windows_are_spent_and_widened():
    windows = SendWindows()
    windows.spend(65_535)
    assert windows.room() == 0
    windows.widen(b"\0\0\0\x64", of_connection=True)
    assert windows.room() == 0
    windows.widen(b"\0\0\0\x0a", of_connection=False)
    assert windows.room() == 10
    windows.begin()
    assert windows.room() == 100


def test_settings_change_the_window_of_the_stream_under_way_too():
    windows = SendWindows()
    windows.widen(b"\0\1\0\0", of_connection=True)
    windows.spend(65_000)
    windows.apply(encode_settings({Setting.INITIAL_WINDOW_SIZE: 100})[9:])
    assert windows.room() == 100 - 65_000
    windows.begin()
    assert windows.room() == 100
    windows.apply(encode_settings({Setting.MAX_FRAME_SIZE: 20_000})[9:])
    assert windows.frame_bytes == 20_000
