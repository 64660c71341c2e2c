"""A table of a TOML file, whose errors tell the file, the line and the key.

The reader of the standard library tells lines of what is no TOML only, so those of keys are looked
for here.
"""

import re
import tomllib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

from inferd.config.sources import nearest
from inferd.errors import InvalidConfig

# Lines of a file that tomllib has accepted, so little is needed to tell headers from keys.
_HEADER = re.compile(r"^\s*\[\[?([^\[\]]+)\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""^\s*((?:[\w.\s-]|"[^"]*"|'[^']*')+?)\s*=""")


class TomlValue(NamedTuple):
    """A value of the file, and what an error about it begins with."""

    value: Any
    where: str

    def refuse(self, expected: str) -> NoReturn:
        """Raise InvalidConfig."""
        msg = f"{self.where} is {self.value!r}, expected {expected}"
        raise InvalidConfig(msg)


TomlReader = Callable[[TomlValue], Any]


class TomlTable:
    """A table of the file, whose keys are taken from it; those that are left are unknown."""

    def __init__(self, text: str, file: str, path: tuple[str, ...], given: object) -> None:
        self._text = text
        self._file = file
        self._path = path
        if not isinstance(given, dict):
            self.whole(given).refuse("a table")
        self._given: dict[str, Any] = dict(given)
        self._known: list[str] = []

    def where(self, *keys: str) -> str:
        """Return what an error about a key begins with."""
        path = (*self._path, *keys)
        line = line_of(self._text, path)
        place = f"{self._file}, line {line}" if line else self._file
        return f"{place}: {'.'.join(path)}" if path else place

    def whole(self, given: object) -> TomlValue:
        """Return what an error about the table itself is made from."""
        return TomlValue(given, self.where())

    def has(self, key: str) -> bool:
        """Return whether there is a key that has not been taken."""
        return key in self._given

    def take(self, key: str, read: TomlReader, default: Any) -> Any:
        """Return the value of `key` as `read` makes it, or `default` if there is none."""
        self._known.append(key)
        if key not in self._given:
            return default
        return read(TomlValue(self._given.pop(key), self.where(key)))

    def table(self, key: str) -> "TomlTable | None":
        """Return the table at `key`, None if there is none."""
        self._known.append(key)
        if key not in self._given:
            return None
        return TomlTable(self._text, self._file, (*self._path, key), self._given.pop(key))

    def each(self, key: str, read: TomlReader) -> dict[str, Any]:
        """Return a table whose keys may be any, with its values as `read` makes them."""
        if (inner := self.table(key)) is None:
            return {}
        return {name: inner.take(name, read, None) for name in list(inner._given)}

    def rest(self) -> dict[str, Any]:
        """Return all keys that are left, which are taken with that."""
        rest, self._given = self._given, {}
        return rest

    def end(self) -> None:
        """Raise InvalidConfig if a key is left."""
        for key in self._given:
            msg = f"{self.where(key)} is not known{nearest(key, self._known)}"
            raise InvalidConfig(msg)


def line_of(text: str, path: tuple[str, ...]) -> int:
    """Return the number of the line that gives the key at `path`, or what it is part of; else 0."""
    best, found = 0, 0
    for number, known in _keys(text):
        # The longest that fits: a key of an inline table is on the line of the table.
        if len(known) > best and path[: len(known)] == known:
            best, found = len(known), number
    return found or next((n for n, known in _keys(text) if known[: len(path)] == path), 0)


def _keys(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield each line that begins a table or gives a value, and its path."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _path(header[1])
            yield number, table
        elif key := _KEY.match(line):
            yield number, (*table, *_path(key[1]))


def _path(dotted: str) -> tuple[str, ...]:
    """Return the parts of a dotted key, () for what is none."""
    try:
        # The library's own rules for quotes and dots.
        inner = tomllib.loads(f"{dotted} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    path = []
    while isinstance(inner, dict):
        [(name, inner)] = inner.items()
        path.append(name)
    return tuple(path)
