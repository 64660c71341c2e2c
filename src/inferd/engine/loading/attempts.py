"""Attempts: loads under way, which an unload or the server's shutdown can give up."""

from collections.abc import Iterator
from contextlib import contextmanager

from inferd.core.load import Attempt


class Attempts:
    """The attempts under way, each with the name of its model."""

    def __init__(self) -> None:
        self._running: list[tuple[str, Attempt]] = []

    @contextmanager
    def running(self, model: str, attempt: Attempt) -> Iterator[None]:
        """Count `attempt` among those of `model` while the context lasts."""
        # A list: the same model may have several attempts under way, one for each version.
        self._running.append((model, attempt))
        try:
            yield
        finally:
            self._running.remove((model, attempt))

    def give_up(self, model: str | None = None) -> None:
        """Give up the attempts of `model`, or all of them."""
        for name, attempt in self._running:
            if model in (None, name):
                attempt.give_up()
