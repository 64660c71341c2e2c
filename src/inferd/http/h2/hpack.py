"""HPACK: header blocks to fields and back (RFC 7541).

The static table and the Huffman codes are the hpack library's. Block parsing and the dynamic table
are ours: we must know whether a block changed the table, and a client that sends new metadata with
each call changes it each time, so decoding must be fast. Tests compare every step to the library.

The encoder never changes the peer's dynamic table, so a block it makes means the same on every
connection and can be made once.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from hpack.exceptions import HPACKError
from hpack.hpack import encode_integer
from hpack.table import HeaderTable

from inferd.http.h2.frames import ConnectionFault, ErrorCode
from inferd.http.h2.huffman import decode_huffman

Field = tuple[bytes, ...]
"""A name and a value. Not a pair type: compiled code would unpack and rebuild it each time."""

TABLE_BYTES = 4096
"""The dynamic table's size: the default SETTINGS_HEADER_TABLE_SIZE."""

NO_TABLE = b"\x20"
"""A dynamic table size update to 0 (RFC 7541, section 6.3).

It precedes our next block on a connection whose peer wants a table smaller than the default.
"""

_FIELD_OVERHEAD: Final = 32  # RFC 7541, section 4.1
_MORE_BYTES: Final = 7  # the most bytes of an integer behind its prefix
_STATIC: Final[list[Field]] = list(HeaderTable.STATIC_TABLE)
_STATIC_COUNT: Final = 61  # RFC 7541, appendix A


class HeaderDecoder:
    """The decoding side of one connection; `is_table_changed` refers to the last block."""

    def __init__(self, max_list_bytes: int) -> None:
        self._max_list_bytes = max_list_bytes
        self._table: list[Field] = []  # the newest last: index 62 is table[-1]
        self._table_bytes = 0
        self._max_table_bytes = TABLE_BYTES
        self.is_table_changed = False

    def decode(self, block: bytes) -> tuple[list[Field], int]:
        """Return the fields of `block` and their size as SETTINGS_MAX_HEADER_LIST_SIZE counts it.

        Raises ConnectionFault: COMPRESSION_ERROR for a block that cannot be decoded,
        ENHANCE_YOUR_CALM for a list larger than the limit. Either way the table is out of step,
        so the connection must end.
        """
        self.is_table_changed = False
        try:
            return self._decode(block)
        # Reading beyond the block's end, or the table's.
        except (HPACKError, IndexError) as error:
            msg = f"a header block cannot be decoded: {error}"
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, msg) from error

    def _decode(self, block: bytes) -> tuple[list[Field], int]:
        fields: list[Field] = []
        at, size, end = 0, 0, len(block)
        while at < end:
            first = block[at]
            if first & 0x80:  # indexed, section 6.1
                # The usual index is a byte, whose value needs no call.
                if first == 0xFF:
                    index, at = _integer(block, at, 7)
                else:
                    index, at = first & 0x7F, at + 1
                field = self._field(index)
            elif first & 0x60 == 0x20:  # dynamic table size update, section 6.3
                at = self._resize(block, at, is_first=not fields)
                continue
            else:
                field, at = self._literal(block, at, end)
                if first & 0x40:
                    self._insert(field)
            size += len(field[0]) + len(field[1]) + _FIELD_OVERHEAD
            # Counted while decoding: a block may name one large field of the table again and again.
            if size > self._max_list_bytes:
                msg = f"a header list is larger than {self._max_list_bytes} bytes"
                raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, msg)
            fields.append(field)
        return fields, size

    def _field(self, index: int) -> Field:
        """Return the field at an index (section 2.3.3). Raises IndexError beyond the table."""
        if index > _STATIC_COUNT:
            return self._table[_STATIC_COUNT - index]
        if not index:
            raise HPACKError("there is no field 0")
        return _STATIC[index - 1]

    def _literal(self, block: bytes, at: int, end: int) -> tuple[Field, int]:
        """Read a literal field.

        It is with incremental indexing (section 6.2.1), without (6.2.2) or never indexed (6.2.3).
        """
        bits = 6 if block[at] & 0x40 else 4
        index = block[at] & (0x3F if bits == 6 else 0x0F)
        if index == 0x3F or (index == 0x0F and bits == 4):
            index, at = _integer(block, at, bits)
        else:
            at += 1
        if index:
            name = self._field(index)[0]
        else:
            name, at = _text(block, at)
        length = block[at]
        stop = at + 1 + length
        if length < 0x7F and stop <= end:  # short and not Huffman-coded
            return (name, block[at + 1 : stop]), stop
        value, at = _text(block, at)
        return (name, value), at

    def _insert(self, field: Field) -> None:
        self.is_table_changed = True
        self._table.append(field)
        self._table_bytes += len(field[0]) + len(field[1]) + _FIELD_OVERHEAD
        if self._table_bytes > self._max_table_bytes:
            self._evict()

    def _resize(self, block: bytes, at: int, *, is_first: bool) -> int:
        size, at = _integer(block, at, 5)
        # Section 4.2: at the beginning of a block.
        if not is_first or size > TABLE_BYTES:
            msg = "a table size update is misplaced or larger than SETTINGS_HEADER_TABLE_SIZE"
            raise HPACKError(msg)
        self._max_table_bytes = size
        self._evict()
        self.is_table_changed = True
        return at

    def _evict(self) -> None:
        """Evict the oldest fields until the rest fits, even the newest (section 4.4)."""
        table, room = self._table, self._max_table_bytes
        used = self._table_bytes
        while used > room:
            # At most 128 fields (4096 bytes, of which each counts 32 beside its text); a deque
            # would make each look-up slower.
            name, value = table.pop(0)
            used -= len(name) + len(value) + _FIELD_OVERHEAD
        self._table_bytes = used


def _integer(block: bytes, at: int, prefix_bits: int) -> tuple[int, int]:
    """Read an integer (section 5.1); one that is longer than any sensible value is refused."""
    mask = (1 << prefix_bits) - 1
    value = block[at] & mask
    at += 1
    if value == mask:
        for shift in range(0, 7 * _MORE_BYTES, 7):
            byte = block[at]
            at += 1
            value += (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
        raise HPACKError("an integer is too long")
    return value, at


def _text(block: bytes, at: int) -> tuple[bytes, int]:
    is_huffman = block[at] & 0x80
    length = block[at] & 0x7F
    if length == 0x7F:
        length, at = _integer(block, at, 7)
    else:
        at += 1
    end = at + length
    text = block[at:end]
    if len(text) != length:
        raise HPACKError("the block ends inside a text")
    return (_decode_huffman(text) if is_huffman else text), end


def _decode_huffman(text: bytes) -> bytes:
    # Short texts are names and usual values, which repeat.
    return _remembered_huffman(text) if len(text) <= 64 else decode_huffman(text)


@lru_cache(maxsize=1024)
def _remembered_huffman(text: bytes) -> bytes:
    return decode_huffman(text)


# Of a name that is there several times the first index stays.
_STATIC_INDEX = {name: index for index, (name, _) in reversed(list(enumerate(_STATIC, 1)))}
# Fields without a value in the table stand for their names only.
_STATIC_FIELDS = {field: index for index, field in enumerate(_STATIC, 1) if field[1]}


def encode_fields(fields: Iterable[Field]) -> bytes:
    """Encode `fields` without using the dynamic table (RFC 7541, sections 6.1 and 6.2.2)."""
    out = bytearray()
    for name, value in fields:
        if index := _STATIC_FIELDS.get((name, value)):
            out.append(0x80 | index)
            continue
        if index := _STATIC_INDEX.get(name, 0):
            out += encode_integer(index, 4)
        else:
            out += b"\x00" + encode_integer(len(name), 7) + name
        out += encode_integer(len(value), 7) + value
    return bytes(out)
