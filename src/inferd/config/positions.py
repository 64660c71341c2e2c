"""Positions: where the fields of a config.pbtxt stand in its text.

protobuf's parser does not keep that. It is read again here, only where somebody asks: the text is
known to be sound, or is broken in ways that a reader of names, braces and values passes over.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from google.protobuf.text_encoding import CUnescape

from inferd.errors import FieldPath

# Comments may stand between any two tokens.
_TOKEN = re.compile(
    r"""\s*(?:\#[^\n]*\s*)*
    (?:(?P<quoted>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?P<word>[-+]?[\w.]+)|(?P<mark>\S))""",
    re.VERBOSE,
)
_CLOSES = {"{": "}", "<": ">", "[": "]"}
# Far more than the schema nests; thousands of braces must not exhaust the stack.
_MAX_DEPTH = 100


class Position(NamedTuple):
    """A line and a column of a text, both from 1."""

    line: int
    column: int


class Remainder(NamedTuple):
    """A text without one of its fields, which was from `begin` to `end`."""

    text: str
    begin: int
    end: int


class _Broken(Exception):
    """The text ends, or goes on, in a way that no field does."""


@dataclass(slots=True)
class _Value:
    """One value of a field: where it begins and ends, its text, and its fields if it is a block.

    `name` is where the name of its field begins; one that is not in a list begins there, too.
    """

    begin: int
    name: int = 0
    end: int = 0
    text: str = ""
    fields: dict[str, list["_Value"]] = field(default_factory=lambda: defaultdict(list))


class Positions:
    """The positions of the fields of `text`.

    `is_whole` is False if the text could be read only up to somewhere; `unclosed` is then where a
    block begins that has no end, if that is why.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = [0, *(found.end() for found in re.finditer("\n", text))]
        self._spans: list[tuple[int, int]] = []  # of the fields, from their names to their ends
        self._root = _Value(0, 0, len(text))
        self._tokens = self._read_tokens()
        self._next: re.Match[str] | None = next(self._tokens, None)
        self.is_whole = True
        self.unclosed: Position | None = None
        try:
            self._read_fields(self._root, "", 0)
        except _Broken:
            self.is_whole = False

    def of(self, path: FieldPath) -> Position | None:
        """Return where the field at `path` is, or else the nearest message it would be in.

        None if not even that is there: the field would be at the top.
        """
        offset = self._offset(path)
        return None if offset is None else self._position(offset)

    def without(self, place: Position | FieldPath) -> Remainder | None:
        """Return the text with blanks for the field at `place`; None if there is none.

        None also for a text that is not whole: what belongs to the field is not known then.
        """
        if not self.is_whole:
            return None
        # A place may come from protobuf, which counts lines beyond the last for a text that ends
        # too early.
        if isinstance(place, Position):
            offset = self._lines[min(place.line, len(self._lines)) - 1] + place.column - 1
        else:
            there = self._offset(place)
            if there is None:
                return None
            offset = there
        around = [span for span in self._spans if span[0] <= offset < span[1]]
        if not around:
            return None
        # Of the fields around a place, the one that begins last is the innermost.
        begin, end = max(around)
        # Line breaks stay, so that places after it do.
        blank = re.sub(r"[^\n]", " ", self._text[begin:end])
        return Remainder(f"{self._text[:begin]}{blank}{self._text[end:]}", begin, end)

    def line(self, number: int) -> str:
        """Return the text of a line, from 1."""
        return self._text[self._lines[number - 1] :].partition("\n")[0]

    def _position(self, offset: int) -> Position:
        line = bisect_right(self._lines, offset)
        return Position(line, offset - self._lines[line - 1] + 1)

    def _offset(self, path: FieldPath) -> int | None:
        """Return where the field at `path` is, or the message it would be in; None: at the top."""
        value, offset = self._root, None
        way = list(path)
        while way:
            values = value.fields.get(str(way.pop(0)))
            if not values:
                break
            value = values[0]
            offset = value.name
            # A map is a list of entries with key and value (protobuf, text format), which may stand
            # apart.
            keyed = {_key(one): one for one in values if "key" in one.fields}
            if way and keyed and str(way[0]) in keyed:
                value = keyed[str(way.pop(0))]
                offset = value.begin
                if way:
                    way.insert(0, "value")
            elif way and isinstance(way[0], int) and way[0] < len(values):
                value = values[int(way.pop(0))]
                offset = value.begin
            elif way and (keyed or isinstance(way[0], int)):
                break
        return offset

    def _read_tokens(self) -> Iterator[re.Match[str]]:
        offset = 0
        while found := _TOKEN.match(self._text, offset):
            yield found
            offset = found.end()

    def _peek(self) -> str:
        if self._next is None:
            raise _Broken
        return self._next[self._next.lastgroup or 0]

    def _take(self) -> re.Match[str]:
        taken = self._next
        if taken is None:
            raise _Broken
        self._next = next(self._tokens, None)
        return taken

    def _read_fields(self, block: _Value, closing: str, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise _Broken
        while self._next is not None and self._peek() != closing:
            self._read_field(block, depth)
        # At the top there is nothing to close.
        if closing:
            # The innermost open block: an outer one is open only because this one is.
            if self._next is None and self.unclosed is None:
                self.unclosed = self._position(block.begin)
            block.end = self._take().end()

    def _read_field(self, block: _Value, depth: int) -> None:
        name = self._take()
        if name.lastgroup != "word":
            raise _Broken
        begin = name.start("word")
        place = len(self._spans)
        # To the end until its end is known, so that a place in a text that breaks off is still
        # within it.
        self._spans.append((begin, len(self._text)))
        if self._peek() == ":":
            self._take()
        values = block.fields[name["word"]]
        if self._peek() == "[":
            end = self._read_list(values, begin, depth)
        else:
            value = self._read_value(begin, begin, depth)
            values.append(value)
            end = value.end
        self._spans[place] = (begin, end)
        # Both may follow a field, or neither (protobuf, text format).
        if self._next is not None and self._peek() in (";", ","):
            self._take()

    def _read_list(self, values: list[_Value], begin: int, depth: int) -> int:
        self._take()
        is_empty = True
        while self._peek() != "]":
            assert self._next is not None
            start = self._next.start(self._next.lastgroup or 0)
            values.append(self._read_value(start, begin, depth))
            is_empty = False
            if self._peek() == ",":
                self._take()
        if is_empty:
            # An empty list is a place for complaints about it.
            values.append(_Value(begin, begin))
        return self._take().end()

    def _read_value(self, begin: int, name: int, depth: int) -> _Value:
        token = self._take()
        value = _Value(begin, name, token.end(), token[token.lastgroup or 0])
        if value.text in ("{", "<"):
            self._read_fields(value, _CLOSES[value.text], depth + 1)
        elif token.lastgroup == "quoted":
            while self._next is not None and self._next.lastgroup == "quoted":
                value.end = self._take().end()  # texts beside each other are one
        # A minus may stand apart from its number.
        elif value.text == "-":
            value.end = self._take().end()
        elif token.lastgroup == "mark":
            raise _Broken
        return value


def _key(entry: _Value) -> str:
    text = entry.fields["key"][-1].text
    # Keys of maps are compared as values: with escapes read.
    if text[:1] in ("'", '"'):
        raw: bytes = CUnescape(text[1:-1])
        return raw.decode(errors="replace")
    return text
