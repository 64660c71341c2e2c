"""Attempts: loads under way, which an unload or the server's shutdown can give up."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from inferd.core.load import Attempt


class Attempts:
    """The attempts under way, by the name of their model."""

    def __init__(self) -> None:
        self._running: defaultdict[str, list[Attempt]] = defaultdict(list)

    @contextmanager
    def running(self, model: str, attempt: Attempt) -> Iterator[None]:
        """Count `attempt` among those of `model` while the context lasts."""
        self._running[model].append(attempt)
        try:
            yield
        finally:
            self._running[model].remove(attempt)
            if not self._running[model]:
                del self._running[model]

    def give_up(self, model: str) -> None:
        """Give up the attempts of `model`."""
        for attempt in self._running.get(model, ()):
            attempt.give_up()

    def give_up_all(self) -> None:
        """Give up the attempts of every model."""
        for model in self._running:
            self.give_up(model)
