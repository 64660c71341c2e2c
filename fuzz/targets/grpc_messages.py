"""Messages of a gRPC call in DATA frames: the same whether they come whole or in pieces.

The first byte is the size of the pieces.
"""

from inferd.http.grpc.messages import GrpcFault, MessageReader

MOST = 1000
SEEDS = [
    b"\x03" + b"\0\0\0\0\x05hello" + b"\1\0\0\0\0",
    b"\x10" + b"\0\0\0\3\xe8" + bytes(1000),
    b"\x01\0\0\0\0\1a\0\0\0\0\1b",
]


def target(data: bytes) -> bool:
    """Feed; return whether all messages are whole."""
    size = max(data[0] if data else 1, 1)
    whole, cut = _messages(data[1:], len(data) + 1), _messages(data[1:], size)
    assert whole == cut, (whole, cut)
    return whole[1] == "True"


def _messages(data: bytes, size: int) -> tuple[list[tuple[bytes, bool]], str]:
    found: list[tuple[bytes, bool]] = []
    reader = MessageReader(MOST, lambda one, packed: found.append((bytes(one), packed)))
    try:
        for at in range(0, len(data), size):
            reader.feed(data, at, min(at + size, len(data)))
    except GrpcFault as fault:
        return found, str(fault)
    return found, str(reader.is_between_messages)
