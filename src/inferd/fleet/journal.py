"""Journal: the changes that a process which starts must make to be like the others."""

from collections.abc import Iterator
from typing import NamedTuple


class JournalEntry(NamedTuple):
    """A change that was made: its number, what it is about, and what a process needs of it.

    `place` is the place in the journal: changes end in another order than they begin. One that
    `is_erasing` undid others: who has made none of them needs not make it either.
    """

    place: int
    change: int
    key: str
    body: bytes
    is_erasing: bool


class Journal:
    """The changes, in order, without those that later ones made unnecessary."""

    def __init__(self) -> None:
        self._entries: dict[str, JournalEntry] = {}
        self._last = 0

    def note(self, change: int, key: str, body: bytes, *, is_erasing: bool) -> list[JournalEntry]:
        """Note a change that was made; return those that are needed no more."""
        self._last += 1
        entry = JournalEntry(self._last, change, key, body, is_erasing)
        gone = [self._entries.pop(key) for key in self._undone_by(entry)]
        # An unload is noted, too: a process that is amid the journal may have loaded the model by
        # an earlier entry already.
        self._entries[entry.key] = entry
        return gone

    def _undone_by(self, entry: JournalEntry) -> list[str]:
        if entry.is_erasing and entry.key.endswith("/"):
            return [key for key in self._entries if key.startswith(entry.key)]
        return [entry.key] if entry.key in self._entries else []

    def tidy(self) -> None:
        """Forget what only processes need that are making these changes; there is none now."""
        for entry in list(self):
            if entry.is_erasing:
                del self._entries[entry.key]

    def after(self, place: int) -> JournalEntry | None:
        """Return the first change after that `place`, None if there is none."""
        return next((entry for entry in self if entry.place > place), None)

    def __iter__(self) -> Iterator[JournalEntry]:
        """Iterate over the changes in the order in which they were made."""
        # By place, the first field: a later change about a key took over
        # its slot in the dict, not its order.
        return iter(sorted(self._entries.values()))
