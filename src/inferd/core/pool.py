"""Pool: objects that one thread at a time may use, made when all others are in use."""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Pool(Generic[T]):
    """Hands out objects made by `make`; there are never more than were in use at once."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._free: deque[T] = deque()  # its pop and append are atomic

    def take(self) -> T:
        """Return an object for the caller's sole use, until it is given back."""
        try:
            # From the same end as `append`: the object used last has its memory in the caches.
            return self._free.pop()
        except IndexError:
            return self._make()

    def give(self, thing: T) -> None:
        """Give back an object. One whose use failed is better dropped."""
        self._free.append(thing)

    def clear(self) -> None:
        """Drop all objects that are not in use."""
        self._free.clear()
