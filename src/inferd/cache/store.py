"""The response cache's interfaces: a store keeps answers, each model version has a shelf in it."""

from collections.abc import Sequence
from typing import Protocol

from inferd.cache.answer import Packed
from inferd.observe.family import Across, Family


class CacheCounts:
    """The use of a store by all models together, in plain integers."""

    def __init__(self) -> None:
        self.hit_count = 0
        self.miss_count = 0
        self.lookup_ns = 0
        self.insertion_ns = 0

    def families(self) -> list[Family]:
        """Return the counts as metrics, with Triton's names, types and units."""
        values = (
            ("num_lookups", "How often an answer was looked for", self.hit_count + self.miss_count),
            ("num_hits", "How often it was there", self.hit_count),
            ("num_misses", "How often it was not", self.miss_count),
            ("lookup_duration", "Time of looking, in microseconds", self.lookup_ns // 1000),
            ("insertion_duration", "Time of keeping, in microseconds", self.insertion_ns // 1000),
        )
        return [cache_gauge(word, help, value, "count") for word, help, value in values]


class Shelf(Protocol):
    """The answers of one model version."""

    async def find(self, key: bytes) -> Packed | None:
        """Return the answer kept under `key`, None when there is none."""
        ...

    async def keep(self, key: bytes, packed: Packed) -> None:
        """Keep an answer, if there is room; it may be evicted at any time."""
        ...

    def clear(self) -> None:
        """Drop the answers of this version, which has ended."""
        ...


class Store(Protocol):
    """Where answers are kept; one per server. All methods are called on the event loop.

    Failures are logged by the store, and are as if there were no answer. `largest_bytes` is the
    size of the largest answer it has room for. A store that `is_shared` outlives this server and
    has answers of others: in it, versions that give the same answers need the same identity.
    """

    counts: CacheCounts
    largest_bytes: int
    is_shared: bool

    def shelf(self) -> Shelf:
        """Return an empty shelf."""
        ...

    def families(self) -> Sequence[Family]:
        """Return the store's fill level and use as metrics."""
        ...

    async def close(self) -> None:
        """Release what the store holds."""
        ...


def cache_gauge(word: str, help: str, value: float, across: Across) -> Family:
    """Return the metric nv_cache_`word`; all of them are gauges in Triton, even what is counted."""
    return Family(f"nv_cache_{word}", "gauge", f"Response cache: {help}", [("", value)], across)
