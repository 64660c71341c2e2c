"""Header blocks of HTTP/2 on one connection, and what the package hpack says of them.

Each block follows a byte with its length.
"""

from hpack import Decoder, HPACKError
from hpack.exceptions import OversizedHeaderListError

from inferd.http.h2.frames import ConnectionFault
from inferd.http.h2.hpack import HeaderDecoder, encode_fields

LIST_BYTES = 1000

_FIELDS = [(b":method", b"POST"), (b":path", b"/a"), (b"te", b"trailers"), (b"x-a", b"1")]
_BLOCKS = [
    encode_fields(_FIELDS),
    b"\x40\x01a\x01x\xbe",  # inserted, then found in the table
    b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",  # Huffman
    b"\x3f\xe1\x1f\x20\x82",  # sizes of the table
    b"\x10\x01b\x02yz\x00\x01c\x00",  # never indexed, not indexed
]
SEEDS = [bytes([len(one)]) + one for one in _BLOCKS]
SEEDS.append(b"".join(SEEDS))


def target(data: bytes) -> bool:
    """Decode block after block; return whether all are sound."""
    ours, theirs = HeaderDecoder(LIST_BYTES), Decoder(LIST_BYTES)
    at = 0
    while at < len(data):
        block = data[at + 1 : at + 1 + data[at]]
        at += 1 + data[at]
        try:
            fields, _ = ours.decode(block)
        except ConnectionFault:
            return False
        try:
            expected = [(bytes(n), bytes(v)) for n, v in theirs.decode(block, raw=True)]
        except OversizedHeaderListError:
            return False  # the two count a field's overhead at different moments
        except HPACKError as error:
            raise AssertionError(block) from error
        assert [(name, value) for name, value in fields] == expected
    return True
