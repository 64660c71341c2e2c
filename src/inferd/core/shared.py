"""Shared: loaded models that several instances use; and Pool: objects for one thread at a time."""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class Shared(Generic[T]):
    """Loaded models by key, each kept as long as somebody else holds it.

    With `one_by_one` no two models are loaded at the same time.
    """

    def __init__(self, *, one_by_one: bool = False) -> None:
        # Instances hold their model; when the last one is closed, it goes.
        self._models: WeakValueDictionary[str, T] = WeakValueDictionary()
        # A model may go, with its last instance, in the midst of a search.
        self._lock = Lock()
        # Frameworks whose loading is not safe in several threads (one_by_one) take turns, others
        # load side by side.
        self._turn: AbstractContextManager[Any] = Lock() if one_by_one else nullcontext()

    def get(self, key: object, load: Callable[[], T]) -> T:
        """Return the model of `key`, an object whose repr() has all it depends on, or `load` it."""
        # A key may have unhashable parts, such as lists and dicts of a configuration.
        text = repr(key)
        with self._turn:
            with self._lock:
                # Into a local name within the lock: an instance that is closed meanwhile must not
                # take it away.
                found = self._models.get(text)
            if found is None:
                loaded = load()
                with self._lock:
                    # Two threads may have loaded it at the same time: both use the first, and the
                    # second is freed.
                    found = self._models.setdefault(text, loaded)
        return found


def fingerprint(files: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Return path, mtime and size of each of `files`.

    A model replaced on disk must not get what was loaded from its predecessor.
    """
    found = [(str(file), file.stat()) for file in files]
    # Size and time, not the contents: these may be gigabytes.
    return [(path, stat.st_mtime_ns, stat.st_size) for path, stat in found]


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
