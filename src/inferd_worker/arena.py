"""Arena: shared memory that one process writes and another reads, block by block.

It is one unnamed file, a memfd, which both processes keep mapped. Allocation is first fit, so
successive requests reuse the same few pages, warm in the cache; a ring would walk through all of
them, and a block held for long would block the rest. A block that fits no hole gets a region of
its own behind the end; when that is released, it is unmapped and its memory given back.

The receiver of a block sees it as an array. When that array and all views of it are gone, the
block is noted as released, and the next packet to the sender says so.

Data in a received block need not be copied to be sent back: the sender is told where it lies, and
reads its own memory. It lends the block to itself, and frees it when both sides have released it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections import deque
from typing import Any, Final

import numpy as np

from .compiled import mypyc_attr
from .packet import ALIGN

_PAGE = mmap.ALLOCATIONGRANULARITY
# np.ndarray() looks a type up at each call, and takes a dtype as it is.
_BYTE = np.dtype(np.uint8)


GROWTH_SETTING: Final = "shm-growth-limit-byte-size"
"""The backend setting that limits how far the arenas of its models may grow."""


class ArenaFull(Exception):
    """There is no free block, and no more memory may be allocated."""


class NeverFits(ArenaFull):
    """There would be no room even in an empty arena."""


@mypyc_attr(native_class=False)  # a native class cannot derive from weakref.ref
class Block(weakref.ref[Any]):
    """The array over a block that is lent or received.

    A received one has a `size`, and its release is not reported if it is claimed.
    """

    __slots__ = ("is_claimed", "offset", "size")

    offset: int
    size: int
    is_claimed: bool


class Arena:
    """The blocks of the file `fd`, which this process allocates and writes.

    `size` bytes are mapped permanently; up to `most` more may be in regions of their own.
    """

    def __init__(self, fd: int, size: int, most: int) -> None:
        self.size = size
        self._fd = fd
        self._most = most
        self._view = memoryview(mmap.mmap(fd, size))
        self._holes = [(0, size)]  # (start, length), sorted by start
        self._taken: dict[int, int] = {}
        self._regions: dict[int, mmap.mmap] = {}
        self._end = size
        self._region_bytes = 0
        self._loans: dict[int, list[Block]] = {}
        self._given: set[int] = set()  # lent blocks that the other side has released
        self._returned: deque[Block] = deque()  # appended to by any thread, as arrays die

    def take(self, size: int) -> tuple[int, memoryview]:
        """Allocate a block; return its offset and the memory to write. Raises ArenaFull."""
        if self._returned:
            self._end_loans()
        length = (size + ALIGN - 1) & -ALIGN
        holes = self._holes
        for index, (start, free) in enumerate(holes):
            # The first that is large enough, not the best: the lowest addresses are the warm ones.
            if free >= length:
                if free == length:
                    del holes[index]
                else:
                    holes[index] = (start + length, free - length)
                self._taken[start] = length
                return start, self._view[start : start + size]
        return self._take_region(size)

    def give(self, offset: int) -> None:
        """Free a released block; ignore one that is not allocated."""
        if self._returned:
            self._end_loans()
        if offset in self._loans:
            self._given.add(offset)
        elif offset in self._regions:
            self._give_region(offset)
        elif length := self._taken.pop(offset, 0):
            self._add_hole(offset, length)

    def lend(self, offset: int) -> np.ndarray[Any, Any]:
        """Return the bytes of an allocated block, to be read on this side as well.

        Even once released, the block is not allocated again while something refers to the array.
        Raises ValueError if there is no such block; regions of their own are not lent.
        """
        if self._returned:
            self._end_loans()
        length = self._taken.get(offset)
        if length is None or offset in self._given:
            raise ValueError(f"there is no block to be lent at {offset}")
        # Read-only: the other side may still hold the block.
        array = np.ndarray((length,), np.uint8, self._view.toreadonly(), offset)
        # Appending to a deque is all that a weak reference's callback does: it may run on any
        # thread, in the midst of anything, where taking a lock could wait for itself.
        loan = Block(array, self._returned.append)
        loan.offset = offset
        self._loans.setdefault(offset, []).append(loan)
        return array

    def _end_loans(self) -> None:
        while self._returned:
            loan = self._returned.popleft()
            loans = self._loans[loan.offset]
            loans.remove(loan)
            if not loans:
                del self._loans[loan.offset]
                if loan.offset in self._given:
                    self._given.remove(loan.offset)
                    self._add_hole(loan.offset, self._taken.pop(loan.offset))

    def _add_hole(self, offset: int, length: int) -> None:
        holes = self._holes
        index = 0
        for index, (start, _) in enumerate(holes):  # noqa: B007  few: most blocks are short-lived
            if start > offset:
                break
        else:
            index = len(holes)
        end = offset + length
        # Joined with its neighbours at once, so that the list of holes stays short.
        if index < len(holes) and holes[index][0] == end:
            end += holes.pop(index)[1]
        if index and sum(holes[index - 1]) == offset:
            index -= 1
            offset = holes.pop(index)[0]
        holes.insert(index, (offset, end - offset))

    def _take_region(self, size: int) -> tuple[int, memoryview]:
        length = -(-size // _PAGE) * _PAGE
        if self._region_bytes + length > self._most:
            msg = (
                f"{size} bytes find no room in the memory shared by server and worker: that has "
                f"{self.size}, and may grow by {self._most}, of which {self._region_bytes} are in "
                f"use"
            )
            if length > self._most and size > self.size:
                raise NeverFits(msg)
            raise ArenaFull(msg)
        offset = self._end
        try:
            # Never smaller: a region that the other side still maps would raise SIGBUS there.
            os.ftruncate(self._fd, max(offset + length, os.fstat(self._fd).st_size))
            region = mmap.mmap(self._fd, length, offset=offset)
        except (OSError, ValueError) as error:
            raise ArenaFull(f"{size} bytes find no room: {error}") from error
        self._end += length
        self._region_bytes += length
        self._regions[offset] = region
        return offset, memoryview(region)[:size]

    def _give_region(self, offset: int) -> None:
        region = self._regions.pop(offset)
        self._region_bytes -= len(region)
        if hasattr(mmap, "MADV_REMOVE"):  # elsewhere the memory stays, for the next region
            # Punches a hole: the file keeps its length, but its memory goes back to the system.
            region.madvise(mmap.MADV_REMOVE)
        # Offsets only begin anew once none is in use, so none is ever given out twice.
        if not self._regions:
            self._end = self.size


class Received:
    """The blocks of the other side's arena, the file `fd`, as they arrive here.

    `size` and `most` are those of the arena. A file can be made as large as its writer likes, and
    reading a hole in it takes memory: so blocks beyond `size` may have `most` bytes together.
    """

    def __init__(self, fd: int, size: int, most: int, *, writable: bool) -> None:
        self._fd = fd
        self._size = size
        self._region_room = most
        self._access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        self._map: Any = mmap.mmap(fd, size, access=self._access)
        self._address = _address(np.ndarray((size,), np.uint8, self._map))
        self._alive: dict[int, Block] = {}
        self.fresh: deque[int] = deque()  # released, but not yet reported

    def block(self, offset: int, size: int) -> np.ndarray[Any, Any]:
        """Return the bytes of a block, which is released when nothing refers to them any more.

        Raises ValueError if there is no such block.
        """
        # The other side is another program, which may be a user's model gone wrong: nothing that it
        # says is taken for granted.
        if offset < 0 or size <= 0 or offset in self._alive:
            raise ValueError(f"there is no block of {size} bytes at {offset}")
        if offset + size <= self._size:
            array = np.ndarray((size,), _BYTE, self._map, offset)
        else:
            is_there = offset % _PAGE == 0 and offset + size <= os.fstat(self._fd).st_size
            if not is_there or size > self._region_room:
                raise ValueError(f"there is no block of {size} bytes at {offset}")
            region = mmap.mmap(self._fd, size, access=self._access, offset=offset)
            array = np.ndarray((size,), _BYTE, region)
            self._region_room -= size
        block = Block(array, self._release)
        block.offset, block.size, block.is_claimed = offset, size, False
        self._alive[offset] = block
        return array

    def text(self, array: np.ndarray[Any, Any], offset: int, size: int) -> bytes:
        """Return the first `size` bytes of the block at `offset`, which `array` covers."""
        place: Any = array.base
        start = offset if place is self._map else 0
        text: bytes = place[
            start : start + min(size, array.size)
        ]  # slicing the mmap is many times faster than slicing the array
        return text

    @property
    def has_blocks(self) -> bool:
        """Whether there may be a block whose release has not been reported."""
        return bool(self._alive)

    def find(self, array: np.ndarray[Any, Any]) -> tuple[Block, int] | None:
        """Return the block that holds the bytes of `array`, and their offset in it, or None.

        `array` is C-contiguous. Blocks in regions of their own are not found: they are not lent.
        """
        base = array.base  # numpy makes all views of a block refer to this
        if type(base) is not np.ndarray or base.base is not self._map:
            return None
        offset = _address(base) - self._address
        block = self._alive.get(offset)
        if block is None or block() is not base:
            return None
        at = _address(array) - self._address - offset
        return (block, at) if 0 <= at <= block.size - array.nbytes else None

    def claim(self, block: Block, arrays: list[Any], indices: list[int]) -> Any:
        """Drop the `arrays` at `indices`, and with them the block if nothing else refers to it.

        Return None if the block is gone: nobody can write to it any more, and its release is still
        to be reported. Otherwise return its array, which something in this process has kept.
        """
        block.is_claimed = True  # set before it can go: another thread may report releases
        for index in indices:
            arrays[index] = None
        array = block()
        if array is None:
            self._alive.pop(block.offset, None)
        else:
            block.is_claimed = False
        return array

    def released(self) -> list[int]:
        """Return the offsets of the blocks released since the last call."""
        offsets: list[int] = []
        # Not `for`: other threads may append to a deque, which ends an iteration with an error.
        while self.fresh:
            offset = self.fresh.popleft()
            block = self._alive.pop(offset, None)
            if block is not None and offset + block.size > self._size:
                self._region_room += block.size
            offsets.append(offset)
        return offsets

    @property
    def is_much(self) -> bool:
        """Whether the released blocks are worth a packet of their own."""
        # A block that was put back, or is being reported by another thread, is no longer known.
        alive = [self._alive.get(offset) for offset in tuple(self.fresh)]
        return sum(block.size for block in alive if block is not None) * 4 > self._size

    def _release(self, block: Any) -> None:
        if not block.is_claimed:
            self.fresh.append(block.offset)  # on whichever thread dropped the last reference


def _address(array: Any) -> int:
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))
    except (TypeError, ValueError):  # read-only, or of a dtype without a buffer format
        address: int = array.__array_interface__["data"][0]  # takes four times as long
        return address
