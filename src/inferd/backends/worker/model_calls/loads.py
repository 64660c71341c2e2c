"""Loads: which models wait for others to be loaded while they are being loaded themselves.

A model's initialize may load another model, whose initialize may load a third. In a cycle all
would wait for each other until their starts time out, so the load that would close the cycle
fails instead. All of this happens on the event loop.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from inferd.errors import InvalidRequest


class Loads:
    """The waiting models of one backend, and those they wait for."""

    def __init__(self) -> None:
        self._awaited: defaultdict[str, list[str]] = defaultdict(list)  # one entry per instance

    @contextmanager
    def waiting(self, model: str, wanted: str) -> Iterator[None]:
        """Note, while entered, that the initialize of `model` waits for `wanted` to be loaded.

        Raises InvalidRequest if `wanted` waits for `model`, directly or through others.
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
            # One of several: each instance of a model runs initialize, and may load the same.
            self._awaited[model].remove(wanted)
            if not self._awaited[model]:
                del self._awaited[model]

    def _way(self, start: str, end: str) -> list[str]:
        """Return the models from `start` to `end`, each waiting for the next; [] if no path."""
        ways, seen = [[start]], {start}
        while ways:
            way = ways.pop()
            if way[-1] == end:
                return way
            following = set(self._awaited.get(way[-1], ())) - seen
            seen |= following
            ways += [[*way, one] for one in following]
        return []
