"""Strips: memory in which the bodies of requests are received side by side.

A framework wants the inputs of a batch in one piece. Where the tensors of its requests already lie
one behind the other, the batch is a view and nothing is copied. So once the requests to a model
have been joined, the binary part of the next ones is received into the rows of a block. A block has
a power of two of rows, as most batches have.

Blocks and batches should begin together. Under load, new requests come when a batch has ended and
the next one has begun. So if a batch did not lie in one piece, the first request that comes after
the next batch has begun gets a new block.

A block is used again when nothing views it any more. Everything here runs on the event loop except
`Strip.note_joined`, which is called in the threads of models and only sets attributes.
"""

import sys
from typing import Any

import numpy as np

LEAST_BYTES = 256 * 1024
"""Smaller requests are not worth a row."""

MOST_BYTES = 128 << 20
"""The most memory of all blocks; requests beyond it get memory of their own."""

MOST_BLOCK_BYTES = 16 << 20
"""The most memory of one block, all of which is held as long as any of its rows is in use."""

MOST_ROWS = 64

MOST_STRIPS = 64

MOST_MISSES = 64
"""After so many batches in a row that did not lie in one piece, no more blocks are begun."""

SWEEP_S = 0.9
"""The least time between two sweeps; servers call once a second."""

IDLE_SWEEPS = 60
"""A strip that no request used for so many sweeps is dropped, and its memory with it."""

FORGETS_SWEEPS = 10
"""After so many sweeps it is forgotten that batches did not lie in one piece."""

Block = np.ndarray[Any, Any]


class Row:
    """The place of one request's binary part: a row of `block`; None if it is elsewhere."""

    __slots__ = ("block", "index", "strip")

    def __init__(self, strip: "Strip", block: Block | None, index: int) -> None:
        self.strip = strip
        self.block = block
        self.index = index

    def view(self) -> memoryview:
        """Return the row's memory, uint8, which belongs to this request alone; it has a block."""
        size_bytes, block = self.strip.row_bytes, self.block
        assert block is not None
        start = self.index * size_bytes
        return block.data[start : start + size_bytes]


class Strip:
    """The blocks for one kind of request, whose binary part has `row_bytes` bytes."""

    def __init__(self, strips: "Strips", row_bytes: int) -> None:
        self.row_bytes = row_bytes
        self.row_count = row_count_of(row_bytes)
        """How many rows a block has."""
        self.elsewhere = Row(self, None, 0)
        """The row of requests that are not received here."""
        self.is_joined = False
        """Whether requests were joined; before, none is received here."""
        self.use_count = 0
        self.idle_sweeps = 0
        self._strips = strips
        self._blocks: list[Block] = []
        self._block: Block | None = None  # the one whose rows are given out
        self._next = 0
        self._begins_anew = False
        self._has_missed = False
        self._miss_count = 0

    @property
    def is_needed(self) -> bool:
        """Whether requests that are joined were received here lately."""
        return self.is_joined and self.idle_sweeps <= 1

    def place(self) -> Row:
        """Return the row for the next request, `elsewhere` if it is to have memory of its own."""
        self.use_count += 1
        if self._block is None or self._begins_anew or self._next == self.row_count:
            self._block = None
            self._begins_anew = False
            self._next = 0
            if not self.is_joined or self._miss_count >= MOST_MISSES:
                return self.elsewhere
            self._block = self._free_block()
            if self._block is None:
                return self.elsewhere
        self._next += 1
        return Row(self, self._block, self._next - 1)

    def note_started(self) -> None:
        """Note, on the event loop, that a batch has begun."""
        self._begins_anew = self._begins_anew or self._has_missed
        self._has_missed = False

    def note_joined(self, *, as_view: bool) -> None:
        """Note that requests were joined; `as_view` if they lay in one piece."""
        self.is_joined = True
        self._has_missed = not as_view
        self._miss_count = 0 if as_view else self._miss_count + 1

    def forget(self) -> None:
        """Forget how many batches did not lie in one piece."""
        self._miss_count = 0

    def drop(self) -> None:
        """Let go of all blocks; those in use stay, and count, until they no longer are."""
        self._strips.left += self._blocks
        self._blocks = []
        self._block = None
        self._strips.reclaim()

    def _free_block(self) -> Block | None:
        blocks, strips = self._blocks, self._strips
        for index in range(len(blocks)):
            if _references(blocks, index) == _UNUSED:
                return blocks[index]
        size_bytes = self.row_count * self.row_bytes
        if strips.block_bytes + size_bytes > MOST_BYTES:
            strips.reclaim()
            if strips.block_bytes + size_bytes > MOST_BYTES:
                return None
        try:
            block = np.empty(size_bytes, np.uint8)
        except MemoryError:
            return None
        strips.block_bytes += size_bytes
        blocks.append(block)
        return block


class Strips:
    """The strips of a server, by request target."""

    def __init__(self) -> None:
        self.block_bytes = 0
        self.left: list[Block] = []
        """Blocks without a strip that something still views."""
        self._strips: dict[bytes, Strip] = {}
        self._sweep_count = 0
        self._swept_s = 0.0

    def get(self, target: bytes) -> Strip | None:
        """Return the strip of the requests to `target`, None if there is none."""
        return self._strips.get(target)

    def note(self, target: bytes, row_bytes: int) -> Row | None:
        """Return the row of a request that is elsewhere, whose strip is to be told of its batch.

        Return None if there is no strip for such requests: a target has one for one size.
        """
        strip = self._strips.get(target)
        if strip is None or strip.row_bytes != row_bytes:
            if row_count_of(row_bytes) < 2 or (strip is not None and strip.is_needed):
                return None
            if strip is None and len(self._strips) >= MOST_STRIPS and not self._make_room():
                return None
            if strip is not None:
                strip.drop()
            strip = self._strips[target] = Strip(self, row_bytes)
        return strip.elsewhere

    def reclaim(self) -> None:
        """Let go of blocks without a strip that nothing views any more."""
        left = self.left
        for index in range(len(left) - 1, -1, -1):
            if _references(left, index) == _UNUSED:
                self.block_bytes -= len(left[index])
                del left[index]

    def _make_room(self) -> bool:
        """Forget a strip that is of no use; return whether there was one."""
        for target, strip in self._strips.items():
            if not strip.is_needed:
                strip.drop()
                del self._strips[target]
                return True
        return False

    def sweep(self, now_s: float) -> None:
        """Drop strips that are not used any more; the servers of a process call this regularly."""
        if now_s < self._swept_s + SWEEP_S:
            return
        self._swept_s = now_s
        self._sweep_count += 1
        for target, strip in list(self._strips.items()):
            strip.idle_sweeps = 0 if strip.use_count else strip.idle_sweeps + 1
            strip.use_count = 0
            if strip.idle_sweeps >= IDLE_SWEEPS:
                strip.drop()
                del self._strips[target]
            elif not self._sweep_count % FORGETS_SWEEPS:
                strip.forget()
        self.reclaim()


def row_count_of(row_bytes: int) -> int:
    """Return how many rows of `row_bytes` bytes a block has: a power of two, or 0."""
    count = min(MOST_BLOCK_BYTES // row_bytes, MOST_ROWS)
    return 1 << (count.bit_length() - 1) if count else 0


def _references(blocks: list[Block], index: int) -> int:
    return sys.getrefcount(blocks[index])


_UNUSED = _references([np.empty(0, np.uint8)], 0)
"""What `_references` returns for a block that only the list refers to."""
