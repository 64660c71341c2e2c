"""BatchMemory: memory in which the bodies of requests are received side by side.

A framework wants the inputs of a batch in one piece. Where the tensors of its requests already lie
one behind the other, the batch is a view and nothing is copied. So once the requests to a model
have been joined, the binary part of the next ones is received into the slots of a block. It has a
power of two of them, as most batches have.

Blocks and batches should begin together. Under load, new requests come when a batch has ended and
the next one has begun. So if a batch did not lie in one piece, the first request that comes after
the next batch has begun gets a new block.

A block is used again when nothing views it any more. Everything here runs on the event loop except
`BlockPool.note_joined`, which is called in the threads of models and only sets attributes.
"""

import sys
from typing import Any

import numpy as np

LEAST_BYTES = 256 * 1024
"""Smaller requests are not worth a slot."""

MOST_BYTES = 128 << 20
"""The most memory of all blocks; requests beyond it get memory of their own."""

MOST_BLOCK_BYTES = 16 << 20
"""The most memory of one block, all of which stays as long as any of its slots is in use."""

MOST_SLOTS = 64

# Targets are what clients send, so there must be an end to them.
MOST_POOLS = 64

MOST_MISSES = 64
"""After so many batches in a row that did not lie in one piece, no more blocks are begun."""

SWEEP_S = 0.9
"""The least time between two sweeps; servers call once a second."""

IDLE_SWEEPS = 60
"""A pool that no request used for so many sweeps is dropped, and its memory with it."""

FORGETS_SWEEPS = 10
"""After so many sweeps it is forgotten that batches did not lie in one piece."""

Block = np.ndarray[Any, Any]


class BlockSlot:
    """The place of one request's binary part: a slot of `block`; None if it is elsewhere."""

    __slots__ = ("block", "index", "pool")

    def __init__(self, pool: "BlockPool", block: Block | None, index: int) -> None:
        self.pool = pool
        self.block = block
        self.index = index

    def view(self) -> memoryview:
        """Return the slot's memory, uint8, which belongs to this request alone; it has a block."""
        size_bytes, block = self.pool.slot_bytes, self.block
        assert block is not None
        start = self.index * size_bytes
        return block.data[start : start + size_bytes]


class BlockPool:
    """The blocks for one kind of request, whose binary part has `slot_bytes` bytes."""

    def __init__(self, memory: "BatchMemory", slot_bytes: int) -> None:
        self.slot_bytes = slot_bytes
        self.slot_count = slot_count_of(slot_bytes)
        """How many slots a block has."""
        self.elsewhere = BlockSlot(self, None, 0)
        """The slot of requests that are not received here."""
        self.is_joined = False
        """Whether requests were joined; before, none is received here."""
        self.use_count = 0
        self.idle_sweeps = 0
        self._memory = memory
        self._blocks: list[Block] = []
        self._block: Block | None = None  # the one whose slots are given out
        self._next = 0
        self._begins_anew = False
        self._has_missed = False
        self.miss_count = 0

    @property
    def is_needed(self) -> bool:
        """Whether requests that are joined were received here lately."""
        return self.is_joined and self.idle_sweeps <= 1

    def place(self) -> BlockSlot:
        """Return the slot for the next request, `elsewhere` if it is to have memory of its own."""
        self.use_count += 1
        if self._block is None or self._begins_anew or self._next == self.slot_count:
            self._block = None
            self._begins_anew = False
            self._next = 0
            if not self.is_joined or self.miss_count >= MOST_MISSES:
                return self.elsewhere
            self._block = self._free_block()
            if self._block is None:
                return self.elsewhere
        self._next += 1
        return BlockSlot(self, self._block, self._next - 1)

    def note_started(self) -> None:
        """Note, on the event loop, that a batch has begun."""
        self._begins_anew = self._begins_anew or self._has_missed
        self._has_missed = False

    def note_joined(self, *, as_view: bool) -> None:
        """Note that requests were joined; `as_view` if they lay in one piece."""
        self.is_joined = True
        self._has_missed = not as_view
        self.miss_count = 0 if as_view else self.miss_count + 1

    def drop(self) -> None:
        """Let go of all blocks; those in use stay, and count, until they no longer are."""
        self._memory.left += self._blocks
        self._blocks = []
        self._block = None
        self._memory.reclaim()

    def _free_block(self) -> Block | None:
        blocks, memory = self._blocks, self._memory
        # By index: a loop variable would be one more reference.
        for index in range(len(blocks)):
            # The reference count tells when the last view has gone, so
            # nobody has to give a block back.
            if _references(blocks, index) == _UNUSED:
                return blocks[index]
        size_bytes = self.slot_count * self.slot_bytes
        if memory.block_bytes + size_bytes > MOST_BYTES:
            memory.reclaim()
            if memory.block_bytes + size_bytes > MOST_BYTES:
                return None
        try:
            block = np.empty(size_bytes, np.uint8)
        except MemoryError:
            return None
        memory.block_bytes += size_bytes
        blocks.append(block)
        return block


class BatchMemory:
    """The pools of a server, by request target."""

    def __init__(self) -> None:
        self.block_bytes = 0
        self.left: list[Block] = []
        """Blocks without a pool that something still views."""
        self._pools: dict[bytes, BlockPool] = {}
        self._sweep_count = 0
        self._swept_s = 0.0

    def get(self, target: bytes) -> BlockPool | None:
        """Return the pool of the requests to `target`, None if there is none."""
        return self._pools.get(target)

    def note(self, target: bytes, slot_bytes: int) -> BlockSlot | None:
        """Return the slot of a request that is elsewhere, whose pool is to learn of its batch.

        Return None if there is no pool for such requests: a target has one for one size.
        """
        pool = self._pools.get(target)
        if pool is None or pool.slot_bytes != slot_bytes:
            # A target with sizes in turn would drop its blocks each time: the size in use stays.
            if slot_count_of(slot_bytes) < 2 or (pool is not None and pool.is_needed):
                return None
            if pool is None and len(self._pools) >= MOST_POOLS and not self._make_room():
                return None
            if pool is not None:
                pool.drop()
            pool = self._pools[target] = BlockPool(self, slot_bytes)
        return pool.elsewhere

    def reclaim(self) -> None:
        """Let go of blocks without a pool that nothing views any more."""
        left = self.left
        # Backwards, as entries are deleted on the way.
        for index in range(len(left) - 1, -1, -1):
            if _references(left, index) == _UNUSED:
                self.block_bytes -= len(left[index])
                del left[index]

    def _make_room(self) -> bool:
        """Forget a pool that is of no use; return whether there was one."""
        for target, pool in self._pools.items():
            if not pool.is_needed:
                pool.drop()
                del self._pools[target]
                return True
        return False

    def sweep(self, now_s: float) -> None:
        """Drop pools that are not used any more; the servers of a process call this regularly."""
        if now_s < self._swept_s + SWEEP_S:
            return
        self._swept_s = now_s
        self._sweep_count += 1
        for target, pool in list(self._pools.items()):
            pool.idle_sweeps = 0 if pool.use_count else pool.idle_sweeps + 1
            pool.use_count = 0
            if pool.idle_sweeps >= IDLE_SWEEPS:
                pool.drop()
                del self._pools[target]
            elif not self._sweep_count % FORGETS_SWEEPS:
                pool.miss_count = 0
        self.reclaim()


def slot_count_of(slot_bytes: int) -> int:
    """Return how many slots of `slot_bytes` bytes a block has: a power of two, or 0."""
    count = min(MOST_BLOCK_BYTES // slot_bytes, MOST_SLOTS)
    return 1 << (count.bit_length() - 1) if count else 0


def _references(blocks: list[Block], index: int) -> int:
    return sys.getrefcount(blocks[index])


_UNUSED = _references([np.empty(0, np.uint8)], 0)
"""What `_references` returns for a block that only the list refers to."""
