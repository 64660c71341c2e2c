"""What a client sends over HTTP/2."""

import pytest
from hpack import Decoder

from inferd.client.outgoing import BodyPieces, header_block, timeout_text


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
