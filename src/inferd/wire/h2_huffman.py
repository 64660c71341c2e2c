"""Huffman codes of header fields (RFC 7541, section 5.2), decoded a byte at a time.

The hpack library has the codes as an automaton that reads four bits at a time. Two of its steps are
one of ours, put down when a byte first comes in a state: several times as fast in Python, where
long texts of a client would otherwise hold up all others.
"""

from functools import cache

from hpack.exceptions import HPACKError
from hpack.huffman_table import (
    HUFFMAN_COMPLETE,
    HUFFMAN_EMIT_SYMBOL,
    HUFFMAN_FAIL,
    HUFFMAN_TABLE,
)

_FAILED = 256
"""The state that is never left; the automaton's own are 0 to 255."""

_Step = tuple[int, bytes, bool]
"""The state after a byte, what the byte brought to an end, and whether the text may end here."""


def decode_huffman(text: bytes) -> bytes:
    """Return what `text` means. Raises HPACKError."""
    out: list[bytes] = []
    state, is_whole = 0, True
    for byte in text:
        state, symbols, is_whole = _row(state)[byte]
        out.append(symbols)
    if not is_whole:
        msg = "a text is no Huffman code, or ends inside one"
        raise HPACKError(msg)
    return b"".join(out)


@cache
def _row(state: int) -> list[_Step]:
    """Return the steps from `state`, one for each byte."""
    if state == _FAILED:
        return [(_FAILED, b"", False)] * 256
    return [_step(state, byte) for byte in range(256)]


def _step(state: int, byte: int) -> _Step:
    symbols, flags = b"", 0
    for nibble in (byte >> 4, byte & 0x0F):
        state, flags, symbol = HUFFMAN_TABLE[16 * state + nibble]
        if flags & HUFFMAN_FAIL:
            return _FAILED, b"", False
        if flags & HUFFMAN_EMIT_SYMBOL:
            symbols += bytes((symbol,))
    return state, symbols, bool(flags & HUFFMAN_COMPLETE)
