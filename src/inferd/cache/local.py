"""LocalStore: answers in this process's memory; when full, it evicts the least recently used."""

from collections import OrderedDict
from collections.abc import Sequence

from inferd.cache.store import CacheCounts, Packed, cache_gauge
from inferd.observe.family import Family

ENTRY_BYTES = 320
"""The memory an answer takes beside its own bytes: its key, their objects, its dict entries."""


class LocalStore:
    """Keeps answers of at most `size_bytes` in total, their keys and overhead included."""

    is_shared = False

    def __init__(self, size_bytes: int) -> None:
        self.counts = CacheCounts()
        self.size_bytes = size_bytes
        self.largest_bytes = size_bytes - ENTRY_BYTES
        self.used_bytes = 0
        self.eviction_count = 0
        self.entries: OrderedDict[tuple[LocalShelf, bytes], Packed] = OrderedDict()
        """The answers of all shelves, in the order of their last use."""

    def shelf(self) -> "LocalShelf":
        """See Store.shelf."""
        return LocalShelf(self)

    def families(self) -> Sequence[Family]:
        """See Store.families."""
        used = self.used_bytes / self.size_bytes
        return [
            cache_gauge("util", "The used part of it, 0 to 1", used, "mean"),  # all have one size
            cache_gauge("num_entries", "Answers in it", len(self.entries), "level"),
            cache_gauge(
                "num_evictions", "Answers that made room for others", self.eviction_count, "count"
            ),
            *self.counts.families(),
        ]

    async def close(self) -> None:
        """See Store.close."""
        for shelf in {shelf for shelf, _ in self.entries}:
            shelf.clear()

    def drop(self, shelf: "LocalShelf", key: bytes) -> None:
        """Drop the answer that `shelf` has under `key`, if there is one."""
        packed = self.entries.pop((shelf, key), None)
        if packed is not None:
            del shelf.keys[key]
            self.used_bytes -= len(packed) + ENTRY_BYTES


class LocalShelf:
    """See Shelf. `keys` are those of its answers, in the order in which they came."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store
        # A dict as a set that keeps an order: `clear` goes through memory as it was filled.
        self.keys: dict[bytes, None] = {}

    async def find(self, key: bytes) -> Packed | None:
        """See Shelf.find."""
        packed = self._store.entries.get((self, key))
        if packed is not None:
            self._store.entries.move_to_end((self, key))
        return packed

    async def keep(self, key: bytes, packed: Packed) -> None:
        """See Shelf.keep. Makes room for it."""
        store = self._store
        if len(packed) > store.largest_bytes:
            return
        # Another request for the same may have been answered meanwhile.
        store.drop(self, key)
        store.entries[self, key] = packed
        self.keys[key] = None
        store.used_bytes += len(packed) + ENTRY_BYTES
        # After adding: the new one is last in the order, so it is never the one that goes.
        while store.used_bytes > store.size_bytes:
            store.eviction_count += 1
            # The first in the order is the one whose last use is the longest ago.
            store.drop(*next(iter(store.entries)))

    def clear(self) -> None:
        """See Shelf.clear. They may be millions, and requests wait meanwhile."""
        entries, freed_bytes = self._store.entries, ENTRY_BYTES * len(self.keys)
        for key in self.keys:  # in the order in which they came, and mostly lie in memory
            freed_bytes += len(entries.pop((self, key)))
        self.keys.clear()
        self._store.used_bytes -= freed_bytes
