"""A parser of the whole protobuf text grammar for one message: InferRequestHeader.

It accepts both generations of the schema: `byte_size` in an input or output is from before 0.11,
the other fields are from later versions, and a header with both is refused. Each byte is examined a
fixed number of times, and nothing nests deeper than the schema: an unknown field is refused where
it begins.
"""

import re
from collections.abc import Mapping
from typing import Any, NoReturn

from inferd.errors import InvalidRequest
from inferd.wire.trtis.header import InferHeader, InputHeader, OutputHeader

_TOKEN = re.compile(
    r"""(?:[ \t\r\n\v\f]|\#[^\n]*)*+       # never tried in another way
    (?:([a-zA-Z_][0-9a-zA-Z_]*)            # the name of a field
    |(-?[0-9][0-9a-zA-Z_.+-]*)             # a number
    |("(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')
    |([:;,{}<>\[\]])
    |(\Z))""",
    re.VERBOSE,
)
_NAME_KIND, _NUMBER_KIND, _TEXT_KIND, _MARK_KIND, _END_KIND = range(1, 6)
_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")
_CLOSES = {"{": "}", "<": ">"}
_MAX_SHOWN = 40
_MOST_DIGITS = 40  # more than any range has

_UINT32 = (0, 2**32 - 1)
_UINT64 = (0, 2**64 - 1)
_INT64 = (-(2**63), 2**63 - 1)
_TEXT = None

# What each field holds: a number in a range, a text, or a message with fields of its own.
_SHARED = {"name": _TEXT, "offset": _UINT64, "byte_size": _UINT64}
_INPUT = {
    "name": _TEXT,
    "dims": _INT64,
    "batch_byte_size": _UINT64,
    "shared_memory": _SHARED,
    "byte_size": _UINT64,
}
_OUTPUT = {
    "name": _TEXT,
    "cls": {"count": _UINT32},
    "shared_memory": _SHARED,
    "byte_size": _UINT64,
}
_HEADER = {
    "batch_size": _UINT32,
    "input": _INPUT,
    "output": _OUTPUT,
    "correlation_id": _UINT64,
    "id": _UINT64,
    "flags": _UINT32,
    "priority": _UINT32,
    "timeout_microseconds": _UINT64,
}
_REPEATED = frozenset(("input", "output", "dims"))
_OLD = frozenset(("batch_size", "input", "output", "correlation_id"))
_NEW_IN_TENSORS = frozenset(("dims", "batch_byte_size", "shared_memory"))

Values = dict[str, Any]


def read_header(text: str) -> InferHeader:
    """Decode `text`. Raises InvalidRequest."""
    values = _Reader(text).message(_HEADER, "")
    inputs, outputs = values.get("input", ()), values.get("output", ())
    tensors = [*inputs, *outputs]
    is_old = any("byte_size" in one for one in tensors)
    news = [name for one in tensors for name in one if name in _NEW_IN_TENSORS]
    news += [name for name in values if name not in _OLD]
    if is_old and news:
        _refuse(f"byte_size and {news[0]} are of different versions of the API")
    return InferHeader(
        values.get("batch_size", 0),
        [_input(one) for one in inputs],
        [_output(one) for one in outputs],
        values.get("correlation_id", 0),
        values.get("id", 0),
        values.get("flags", 0),
        values.get("priority", 0),
        values.get("timeout_microseconds", 0),
        is_old,
    )


class _Reader:
    """Reads everything that protobuf text allows for a message."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._kind = _END_KIND
        self._token = ""
        self._next()

    def message(self, fields: Mapping[str, object], closing: str) -> Values:
        """Read `fields` until `closing` ("" for the end), and over it. Raises InvalidRequest."""
        values: Values = {}
        while not self._took(closing):
            if self._kind == _END_KIND:
                if closing:
                    _refuse(f"it ends where '{closing}' is expected")
                break
            if self._kind != _NAME_KIND:
                _refuse(f"a field's name is expected, not '{self._token[:_MAX_SHOWN]}'")
            name = self._token
            if name not in fields:
                known = ", ".join(fields)
                _refuse(f"there is no field '{name[:_MAX_SHOWN]}' here, only {known}")
            content = fields[name]
            self._next()
            # protobuf text: the colon may be left out before a message only.
            if not self._took(":") and not isinstance(content, dict):
                _refuse(f"a colon is expected after {name}")
            if name in _REPEATED:
                self._repeated(values.setdefault(name, []), name, content)
            # protobuf's parser refuses a field given twice; one at its default cannot be told from
            # an absent one.
            elif values.get(name, 0) not in (0, ""):
                _refuse(f"{name} comes twice")
            else:
                values[name] = self._value(name, content)
            self._took(",;")
        return values

    def _next(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match.lastindex is None:
            shown = self._text[self._at : self._at + _MAX_SHOWN]
            _refuse(f"there is something odd at '{shown}'")
        self._kind = match.lastindex
        self._token = match[self._kind]
        self._at = match.end()

    def _took(self, marks: str) -> bool:
        """Step over the next token if it is one of `marks`; return whether it is."""
        is_one = self._kind == _MARK_KIND and self._token in marks
        if is_one:
            self._next()
        return is_one

    def _repeated(self, values: list[object], name: str, content: object) -> None:
        if not self._took("["):
            values.append(self._value(name, content))
            return
        is_over = self._took("]")
        while not is_over:
            values.append(self._value(name, content))
            is_over = self._took("]")
            if not is_over and not self._took(","):
                _refuse(f"a comma or ] is expected in the list of {name}")

    def _value(self, name: str, content: Any) -> Any:
        if content is _TEXT:
            return self._read_text(name)
        token = self._token
        if isinstance(content, dict):
            if not self._took("{<"):
                _refuse(f"{name} is a message, {{ is expected after it")
            return self.message(content, _CLOSES[token])
        if self._kind != _NUMBER_KIND or not _NUMBER.fullmatch(token):
            _refuse(f"{name} is '{token[:_MAX_SHOWN]}', a whole number is expected")
        digits = token.lstrip("-")
        # As in protobuf text: 0x is hexadecimal, a leading 0 octal.
        base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10
        least, most = content
        # Before int(), whose time grows with the square.
        if len(digits) > _MOST_DIGITS or not least <= (value := int(token, base)) <= most:
            _refuse(f"{name} is out of range")
        self._next()
        return value

    def _read_text(self, name: str) -> str:
        if self._kind != _TEXT_KIND:
            _refuse(f"{name} is a text, a quotation mark is expected after it")
        pieces = []
        # Texts beside each other are one.
        while self._kind == _TEXT_KIND:
            pieces.append(_ESCAPE.sub(_meant, self._token[1:-1].encode()))
            self._next()
        try:
            return b"".join(pieces).decode()
        except UnicodeDecodeError:
            _refuse(f"{name} is not UTF-8")


def _input(values: Values) -> InputHeader:
    return InputHeader(
        values.get("name", ""),
        tuple(values.get("dims", ())),
        values.get("batch_byte_size", 0),
        _reference(values.get("shared_memory")),
        values.get("byte_size", 0),
    )


def _output(values: Values) -> OutputHeader:
    return OutputHeader(
        values.get("name", ""),
        values.get("cls", {}).get("count", 0),
        _reference(values.get("shared_memory")),
        values.get("byte_size", 0),
    )


def _reference(values: Values | None) -> tuple[str, int, int] | None:
    if values is None:
        return None
    return values.get("name", ""), values.get("offset", 0), values.get("byte_size", 0)


_ESCAPE = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})"
    rb"|(.[\x80-\xbf]*))",
    re.DOTALL,
)
_SINGLE = {
    b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v",
    b"\\": b"\\", b"'": b"'", b'"': b'"', b"?": b"?",
}  # fmt: skip


def _meant(match: re.Match[bytes]) -> bytes:
    """Return the bytes that an escape stands for."""
    octal, short, four, eight, single = match.groups()
    shown = match[0].decode()
    if octal or short:
        value = int(octal, 8) if octal else int(short, 16)
        if value > 0xFF:
            _refuse(f"{shown} is no byte")
        return bytes((value,))
    if four or eight:
        point = int(four or eight, 16)
        if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
            _refuse(f"{shown} is no character")
        return chr(point).encode()
    if single not in _SINGLE:
        _refuse(f"{shown} is no escape")
    return _SINGLE[single]


def _refuse(why: str) -> NoReturn:
    raise InvalidRequest(f"NV-InferRequest cannot be read: {why}") from None
