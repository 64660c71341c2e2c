"""LocalStore: answers in this process's memory; when full, it evicts the least recently used."""

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from inferd.cache.answer import Packed
from inferd.cache.store import CacheCounts, cache_gauge
from inferd.observe.family import Family

ENTRY_BYTES = 320
"""The memory an answer takes beside its own bytes: its key, their objects, its dict entry."""


class _Entry(msgspec.Struct):
    """A kept answer; `used` is the number of its last use, counted over all answers."""

    packed: Packed
    used: int


class LocalStore:
    """Keeps answers of at most `size_bytes` in total, their keys and overhead included."""

    is_shared = False

    def __init__(self, size_bytes: int) -> None:
        self.counts = CacheCounts()
        self.size_bytes = size_bytes
        self.largest_bytes = size_bytes - ENTRY_BYTES
        self.used_bytes = 0
        self.entry_count = 0
        self.eviction_count = 0
        self._uses = 0
        self._shelves: list[LocalShelf] = []

    def shelf(self) -> "LocalShelf":
        """See Store.shelf."""
        return LocalShelf(self)

    def families(self) -> Sequence[Family]:
        """See Store.families."""
        return [
            cache_gauge("util", "The used part of it, 0 to 1", self.used_bytes / self.size_bytes),
            cache_gauge("num_entries", "Answers in it", self.entry_count),
            cache_gauge("num_evictions", "Answers that made room for others", self.eviction_count),
            *self.counts.families(),
        ]

    async def close(self) -> None:
        """See Store.close."""
        for shelf in list(self._shelves):
            shelf.clear()

    def next_use(self) -> int:
        """Return a number higher than all before."""
        self._uses += 1
        return self._uses

    def add(self, shelf: "LocalShelf", size_bytes: int) -> None:
        """Count a new answer, and make room for it."""
        if shelf.entry_count == 1:
            self._shelves.append(shelf)
        self.entry_count += 1
        self.used_bytes += size_bytes
        while self.used_bytes > self.size_bytes:
            self.eviction_count += 1
            min(self._shelves, key=LocalShelf.oldest_use).drop_oldest()

    def remove(self, shelf: "LocalShelf", count: int, size_bytes: int) -> None:
        """Count `count` answers of `size_bytes` as removed."""
        if not shelf.entry_count:
            self._shelves.remove(shelf)
        self.entry_count -= count
        self.used_bytes -= size_bytes


class LocalShelf:
    """See Shelf. Answers are kept in the order of their last use."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._used_bytes = 0

    @property
    def entry_count(self) -> int:
        """The number of answers."""
        return len(self._entries)

    def oldest_use(self) -> int:
        """Return the number of the last use of the least recently used answer."""
        return next(iter(self._entries.values())).used

    def drop_oldest(self) -> None:
        """Drop the least recently used answer."""
        self._forget(self._entries.popitem(last=False)[1])

    async def find(self, key: bytes) -> Packed | None:
        """See Shelf.find."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        entry.used = self._store.next_use()
        return entry.packed

    async def keep(self, key: bytes, packed: Packed) -> None:
        """See Shelf.keep."""
        if len(packed) > self._store.largest_bytes:
            return
        if (old := self._entries.pop(key, None)) is not None:
            self._forget(old)
        self._entries[key] = _Entry(packed, self._store.next_use())
        size_bytes = len(packed) + ENTRY_BYTES
        self._used_bytes += size_bytes
        self._store.add(self, size_bytes)

    def clear(self) -> None:
        """See Shelf.clear."""
        if self._entries:
            count, self._entries = len(self._entries), OrderedDict()
            used_bytes, self._used_bytes = self._used_bytes, 0
            self._store.remove(self, count, used_bytes)

    def _forget(self, entry: _Entry) -> None:
        size_bytes = len(entry.packed) + ENTRY_BYTES
        self._used_bytes -= size_bytes
        self._store.remove(self, 1, size_bytes)
