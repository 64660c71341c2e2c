"""Pool: things that one thread at a time may use, made when all others are in use."""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Pool(Generic[T]):
    """Hands out things made by `make`; there are never more than were in use at once."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._free: deque[T] = deque()  # its pop and append are atomic

    def take(self) -> T:
        """Return a thing that nobody uses, until it is given back."""
        try:
            return self._free.pop()
        except IndexError:
            return self._make()

    def give(self, thing: T) -> None:
        """Put back what was taken. One whose use failed is better forgotten."""
        self._free.append(thing)

    def clear(self) -> None:
        """Forget all that is not in use."""
        self._free.clear()
