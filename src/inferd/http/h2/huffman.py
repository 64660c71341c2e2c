"""Huffman codes of header fields (RFC 7541, section 5.2), decoded a byte at a time.

The hpack library has the codes as an automaton that reads four bits at a time. Two of its steps
make one of ours; the steps from a state are computed when the state is first met. That is several
times as fast in Python, where long texts of one client would otherwise hold up all others.
"""

from typing import Final

from hpack.exceptions import HPACKError
from hpack.huffman_table import HUFFMAN_COMPLETE, HUFFMAN_EMIT_SYMBOL, HUFFMAN_FAIL, HUFFMAN_TABLE

_FAILED = 256
"""The state that is never left; the automaton's own states are 0 to 255."""

_Step = tuple[int, bytes, bool]
"""The state after a byte, the symbols that it completed, and whether the text may end here."""


# Not made at the start: most states are never met.
_ROWS: Final[list[list[_Step]]] = [[] for _ in range(_FAILED + 1)]
"""The steps from each state met so far, one for each byte."""


def decode_huffman(text: bytes) -> bytes:
    """Decode `text`. Raises HPACKError."""
    out: list[bytes] = []
    state, is_whole = 0, True
    for byte in text:
        row = _ROWS[state] or _add_row(state)
        state, symbols, is_whole = row[byte]
        out.append(symbols)
    if not is_whole:
        raise HPACKError("a text is no Huffman code, or ends inside one")
    return b"".join(out)


def _add_row(state: int) -> list[_Step]:
    if state == _FAILED:
        row = [(_FAILED, b"", False)] * 256
    else:
        row = [_step(state, byte) for byte in range(256)]
    _ROWS[state] = row
    return row


def _step(state: int, byte: int) -> _Step:
    symbols, flags = b"", 0
    for nibble in (byte >> 4, byte & 0x0F):
        state, flags, symbol = HUFFMAN_TABLE[16 * state + nibble]
        if flags & HUFFMAN_FAIL:
            return _FAILED, b"", False
        if flags & HUFFMAN_EMIT_SYMBOL:
            symbols += bytes((symbol,))
    return state, symbols, bool(flags & HUFFMAN_COMPLETE)
