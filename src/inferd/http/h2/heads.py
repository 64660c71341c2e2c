"""Header blocks of one connection: assembled, decoded, and remembered while they repeat."""

from typing import Final

from inferd.http.h2.frames import CONTROL_FRAME_BYTES, ConnectionFault, ErrorCode
from inferd.http.h2.hpack import Field, HeaderDecoder
from inferd.http.h2.request import BaseHead, MalformedRequest, RequestHead, decode_request_head

_REMEMBERED_BYTES: Final = 32768  # of heads, as SETTINGS_MAX_HEADER_LIST_SIZE counts
_LARGEST_REMEMBERED: Final = 4096
_REMEMBERED_BASES: Final = 4
_DECODED_LISTS: Final = 8  # times the limit: up to this, only the one stream is refused
_UNDECODED_BLOCKS: Final = 4  # times the limit


class HeaderBlocks:
    """Blocks in, heads out.

    A client that repeats a call sends the same block, which means the same as long as the dynamic
    table does not change: any insertion, eviction or change of size clears the remembered blocks.
    The meaning of decoded fields never changes: a head that differs from a remembered one only in
    some values is derived from it. `max_block_bytes` is the largest block that is collected;
    `known` maps blocks to heads.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_block_bytes = max(_UNDECODED_BLOCKS * max_bytes, CONTROL_FRAME_BYTES)
        self._decoder = HeaderDecoder(_DECODED_LISTS * max_bytes)
        self.known: dict[bytes, RequestHead] = {}
        self._heads_bytes = 0
        self._bases: list[BaseHead] = []
        self._block = bytearray()
        self._frame_count = 0

    def begin(self, fragment: bytes) -> None:
        """Begin a block that CONTINUATION frames will complete."""
        self._block = bytearray(fragment)
        self._frame_count = 0

    def go_on(self, fragment: bytes) -> None:
        """Add the fragment of a CONTINUATION frame (RFC 9113, sections 6.10 and 10.5.1).

        Raises ConnectionFault when the block grows too large, or in too many pieces.
        """
        self._block += fragment
        self._frame_count += 1
        size = len(self._block)
        # CONTINUATION floods send many tiny frames (CVE-2024-27316 and others); honest ones fill
        # theirs.
        if size > self.max_block_bytes or self._frame_count > 8 + size // 256:
            msg = "a header block goes on for too long"
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, msg)

    def take(self) -> bytes:
        """Return the assembled block."""
        block, self._block = bytes(self._block), bytearray()
        return block

    def head(self, block: bytes) -> RequestHead | MalformedRequest:
        """Return the request head in `block`, or why it is malformed. Raises ConnectionFault."""
        head = self.known.get(block)
        if head is not None:
            return head
        fields, size = self.decode(block)
        try:
            head = self._head(fields, size)
        except MalformedRequest as error:
            return error
        # With another table the same bytes would mean something else.
        if not self._decoder.is_table_changed:
            self._remember(block, head, max(size, len(block)))
        return head

    def _remember(self, block: bytes, head: RequestHead, size: int) -> None:
        if size > _LARGEST_REMEMBERED:
            return
        self._heads_bytes += size
        if self._heads_bytes > _REMEMBERED_BYTES:
            self.known.clear()
            self._heads_bytes = size
        self.known[block] = head

    def _head(self, fields: list[Field], size: int) -> RequestHead:
        for base in self._bases:
            renewed = base.renewed(fields, size)
            if renewed is not None:
                return renewed
        head = decode_request_head(fields, size)
        # Repeated names would have to be compared as lists.
        if size <= _LARGEST_REMEMBERED and len({field[0] for field in fields}) == len(fields):
            if len(self._bases) >= _REMEMBERED_BASES:
                self._bases.clear()
            self._bases.append(BaseHead(fields, head))
        return head

    def decode(self, block: bytes) -> tuple[list[Field], int]:
        """Return the fields in `block` and their size. Raises ConnectionFault."""
        decoded = self._decoder.decode(block)
        if self._decoder.is_table_changed and self.known:
            self.known.clear()
            self._heads_bytes = 0
        return decoded
