"""Loads: which models, while they are loaded themselves, wait for others to be loaded.

A model's initialize may load another model, whose initialize may load a third. In a circle each
would wait for all others until its start has taken too long, so the one that would close it is
told instead. All of this happens on the event loop.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from inferd.errors import InvalidRequest


class Loads:
    """The models of one backend that wait, and for whom."""

    def __init__(self) -> None:
        self._awaited: defaultdict[str, list[str]] = defaultdict(list)  # once for each instance

    @contextmanager
    def waiting(self, model: str, wanted: str) -> Iterator[None]:
        """Note, while it lasts, that the initialize of `model` waits for `wanted` to be loaded.

        Raises InvalidRequest when `wanted` waits, by way of others perhaps, for `model`.
        """
        way = self._way(wanted, model)
        if way:
            circle = " -> ".join((model, *way))
            msg = f"models whose initialize loads the next wait for each other: {circle}"
            raise InvalidRequest(msg)
        self._awaited[model].append(wanted)
        try:
            yield
        finally:
            self._awaited[model].remove(wanted)
            if not self._awaited[model]:
                del self._awaited[model]

    def _way(self, start: str, end: str) -> list[str]:
        """Return the models from `start` to `end`, each waiting for the next; none: []."""
        ways, seen = [[start]], {start}
        while ways:
            way = ways.pop()
            if way[-1] == end:
                return way
            following = set(self._awaited.get(way[-1], ())) - seen
            seen |= following
            ways += [[*way, one] for one in following]
        return []
