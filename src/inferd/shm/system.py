"""SystemRegion: a range of a POSIX shared memory object, mapped once, read and written in place."""

import os

from inferd.aio.round_number import RoundNumber
from inferd.compiled import override
from inferd.core.metadata import SystemRegionStatus
from inferd.core.request import Span
from inferd.errors import InvalidRequest
from inferd.shm.mapping import Mapping, check_key, open_mapping

MAX_REMEMBERED = 64
"""How many spans of a region are kept: clients use the same places again and again."""


class _SharedObject:
    """The object that a region lies in, which is checked from time to time.

    `needed` is the size it must have. It does not keep the memory mapped: the views do.
    """

    def __init__(self, mapping: Mapping, name: str, needed: int, round_number: RoundNumber) -> None:
        self.memory = mapping.memory
        self._fd = mapping.fd
        self._watch = mapping.watch
        self._name = name
        self._needed = needed
        self._round_number = round_number
        self._looked_in = 0  # the last round in which the check passed

    def look(self) -> None:
        """Raise InvalidRequest if the object was removed or shrank; checked once per round."""
        if self._watch.is_lost:
            raise self._lost()
        round_number = self._round_number.number
        if round_number and round_number == self._looked_in:
            return
        # A system call for each request is saved; what one round of turns has read was there
        # together.
        now = os.fstat(self._fd)
        if now.st_nlink == 0:
            raise InvalidRequest(
                f"the object of shared memory region '{self._name}' has been removed; "
                f"unregister the region and register a new one"
            )
        if now.st_size < self._needed:
            raise InvalidRequest(
                f"the object of shared memory region '{self._name}' has shrunk to {now.st_size} "
                f"bytes, the region ends at byte {self._needed}"
            )
        self._looked_in = round_number

    def check(self) -> None:
        """Raise InvalidRequest if its memory is gone and zeros took its place."""
        if self._watch.is_lost:
            raise self._lost()

    def _lost(self) -> InvalidRequest:
        return InvalidRequest(
            f"the object of shared memory region '{self._name}' shrank while the region was in "
            f"use, or the system had no memory for it; unregister the region and register a new one"
        )


class SystemSpan(Span):
    """See Span: `view` is the shared memory itself."""

    def __init__(
        self, view: memoryview, extent: tuple[tuple[int, ...], int, int], region: _SharedObject
    ) -> None:
        super().__init__(view, extent, region)
        self._object = region

    @override
    def look(self) -> None:
        self._object.look()

    @override
    def check(self) -> None:
        self._object.check()


class SystemRegion:
    """`size_bytes` from `offset` of the object `key`, registered under the client's name for it.

    In each round of `round_number` the object is checked once, however many requests use it. Raises
    InvalidRequest for an invalid key or an object that is too small, RegionFailed if there is none,
    and Unavailable if the process has no file descriptors or memory left.
    """

    def __init__(
        self,
        name: str,
        key: str,
        offset: int,
        size_bytes: int,
        round_number: RoundNumber | None = None,
    ) -> None:
        check_key(key)
        self.status = SystemRegionStatus(name, key, offset, size_bytes)
        mapping = open_mapping(key, offset, size_bytes)
        self._mapping: Mapping | None = mapping
        self._object = _SharedObject(
            mapping, name, offset + size_bytes, round_number or RoundNumber()
        )
        self.spans: dict[tuple[int, int], Span] = {}
        """The latest spans, by offset and size: requests may share them."""

    def span(self, offset: int, size_bytes: int) -> Span:
        """Return a new span, inside the region and not yet in `spans`, and remember it.

        Raises InvalidRequest if the region has been closed.
        """
        mapping = self._mapping
        if mapping is None:  # just unregistered by another thread
            msg = f"shared memory region '{self.status.name}' is no longer registered"
            raise InvalidRequest(msg)
        at = mapping.skipped + offset
        start = self.status.offset + offset
        extent = (self._object.memory, start, start + size_bytes)
        span = SystemSpan(memoryview(mapping)[at : at + size_bytes], extent, self._object)
        # Clients choose offsets, so this must be bounded; starting over
        # is simpler than an order of use.
        if len(self.spans) >= MAX_REMEMBERED:
            self.spans.clear()
        self.spans[offset, size_bytes] = span
        return span

    def close(self) -> None:
        """Release the memory; it is unmapped once no request uses it any more."""
        # Not closed: views of it may be in use, and mmap.close() raises then.
        self._mapping = None
        self.spans = {}
