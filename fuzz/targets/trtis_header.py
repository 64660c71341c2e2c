"""NV-InferRequest, the header of inferences in the TRTIS API: read as usual, or in full."""

from inferd.errors import InferdError
from inferd.wire.trtis.header import InferHeader
from inferd.wire.trtis.http import decode_request_header
from inferd.wire.trtis.text import read_header

SEEDS = [
    b'batch_size: 1 input { name: "x" dims: 16 batch_byte_size: 64 } output { name: "y" }',
    b'id: 7 batch_size: 2 input { name: "a" } output { name: "b" cls { count: 3 } } '
    b"correlation_id: 9 flags: 3",
    b'batch_size: 1 input { name: "x" byte_size: 8 } output { name: "y" byte_size: 8 }',
    b'input { name: "x" shared_memory { name: "r" offset: 4 byte_size: 64 } } output { name: "y" '
    b'shared_memory { name: "s" byte_size: 4 } } id: 18446744073709551615',
    b"input { name: 'caf\\303\\251' dims: [1, 2] }; batch_size: 0x10,",
]


def target(data: bytes) -> bool:
    """Read twice, since words are remembered; return whether it is a header."""
    first, second = _told(data), _told(data)
    assert first == second, (first, second)
    try:
        expected = _shown(read_header(data.decode()))
    except (InferdError, UnicodeDecodeError):
        expected = ""
    assert first == expected, (first, expected)
    return first != ""


def _told(data: bytes) -> str:
    try:
        return _shown(decode_request_header(data))
    except InferdError:
        return ""


def _shown(header: InferHeader) -> str:
    return repr(header.asdict() | {"words": b""})  # what is remembered is known by its words
