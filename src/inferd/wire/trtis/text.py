"""A parser of the whole protobuf text grammar for one message: InferRequestHeader.

It accepts both generations of the schema: `byte_size` in an input or output is from before 0.11,
the other fields are from later versions, and a header with both is refused. Each byte is examined a
fixed number of times, and nothing nests deeper than the schema: an unknown field is refused where
it begins.
"""

import re
from typing import Any, NamedTuple, NoReturn

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

_UINT32 = (0, 2**32 - 1)
_UINT64 = (0, 2**64 - 1)
_INT64 = (-(2**63), 2**63 - 1)


class _Field(NamedTuple):
    """What a field holds: numbers in a range, a text (`range` None), or a message of `fields`."""

    range: tuple[int, int] | None = None
    is_repeated: bool = False
    fields: "dict[str, _Field] | None" = None


_SHARED = {"name": _Field(), "offset": _Field(_UINT64), "byte_size": _Field(_UINT64)}
_FIELDS = {
    "batch_size": _Field(_UINT32),
    "input": _Field(
        is_repeated=True,
        fields={
            "name": _Field(),
            "dims": _Field(_INT64, is_repeated=True),
            "batch_byte_size": _Field(_UINT64),
            "shared_memory": _Field(fields=_SHARED),
            "byte_size": _Field(_UINT64),
        },
    ),
    "output": _Field(
        is_repeated=True,
        fields={
            "name": _Field(),
            "cls": _Field(fields={"count": _Field(_UINT32)}),
            "shared_memory": _Field(fields=_SHARED),
            "byte_size": _Field(_UINT64),
        },
    ),
    "correlation_id": _Field(_UINT64),
    "id": _Field(_UINT64),
    "flags": _Field(_UINT32),
    "priority": _Field(_UINT32),
    "timeout_microseconds": _Field(_UINT64),
}
_OLD = frozenset(("batch_size", "input", "output", "correlation_id"))
_NEW_IN_TENSORS = frozenset(("dims", "batch_byte_size", "shared_memory"))

Values = dict[str, Any]


def read_header(text: str) -> InferHeader:
    """Decode `text`. Raises InvalidRequest."""
    return _Reader(text).header()


class _Reader:
    """Reads everything that protobuf text allows for this message."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._kind = _END_KIND
        self._token = ""
        self._next()

    def header(self) -> InferHeader:
        """Decode the whole text. Raises InvalidRequest."""
        values = self._message(_FIELDS, "")
        tensors = [*values.get("input", ()), *values.get("output", ())]
        is_old = any("byte_size" in one for one in tensors)
        news = [name for one in tensors for name in one if name in _NEW_IN_TENSORS]
        news += [name for name in values if name not in _OLD]
        if is_old and news:
            _refuse(f"byte_size and {news[0]} are of different versions of the API")
        return InferHeader(
            values.get("batch_size", 0),
            [_input(one) for one in values.get("input", ())],
            [_output(one) for one in values.get("output", ())],
            values.get("correlation_id", 0),
            values.get("id", 0),
            values.get("flags", 0),
            values.get("priority", 0),
            values.get("timeout_microseconds", 0),
            is_old,
        )

    def _next(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match.lastindex is None:
            _refuse(f"there is something odd at '{self._shown()}'")
        self._kind = match.lastindex
        self._token = match[self._kind]
        self._at = match.end()

    def _shown(self) -> str:
        return self._text[self._at : self._at + _MAX_SHOWN]

    def _is(self, marks: str) -> bool:
        return self._kind == _MARK_KIND and self._token in marks

    def _message(self, fields: dict[str, _Field], closing: str) -> Values:
        """Read fields until `closing` ("" for the end), and the token behind it."""
        values: Values = {}
        while not self._is_end(closing):
            if self._kind != _NAME_KIND:
                _refuse(f"a field's name is expected, not '{self._token[:_MAX_SHOWN]}'")
            name = self._token
            field = fields.get(name)
            if field is None:
                known = ", ".join(fields)
                _refuse(f"there is no field '{name[:_MAX_SHOWN]}' here, only {known}")
            self._next()
            has_colon = self._is(":")
            if has_colon:
                self._next()
            elif field.fields is None:
                _refuse(f"a colon is expected after {name}")
            if field.is_repeated:
                self._repeated(values.setdefault(name, []), name, field)
            elif values.get(name):
                _refuse(f"{name} comes twice")
            else:
                values[name] = self._value(name, field)
            if self._is(",;"):
                self._next()
        if closing:
            self._next()
        return values

    def _is_end(self, closing: str) -> bool:
        if self._kind == _END_KIND:
            if closing:
                _refuse(f"it ends where '{closing}' is expected")
            return True
        return bool(closing) and self._is(closing)

    def _repeated(self, values: list[Any], name: str, field: _Field) -> None:
        if not self._is("["):
            values.append(self._value(name, field))
            return
        self._next()
        if self._is("]"):
            self._next()
            return
        while True:
            values.append(self._value(name, field))
            if self._is("]"):
                self._next()
                return
            if not self._is(","):
                _refuse(f"a comma or ] is expected in the list of {name}")
            self._next()

    def _value(self, name: str, field: _Field) -> Any:
        if field.fields is not None:
            if not self._is("{<"):
                _refuse(f"{name} is a message, {{ is expected after it")
            closing = _CLOSES[self._token]
            self._next()
            return _Message(self._message(field.fields, closing))
        if field.range is None:
            return self._read_text(name)
        if self._kind != _NUMBER_KIND or not _NUMBER.fullmatch(self._token):
            _refuse(f"{name} is '{self._token[:_MAX_SHOWN]}', a whole number is expected")
        value = _number(self._token)
        least, most = field.range
        if not least <= value <= most:
            _refuse(f"{name} is out of range")
        self._next()
        return value

    def _read_text(self, name: str) -> str:
        if self._kind != _TEXT_KIND:
            _refuse(f"{name} is a text, a quotation mark is expected after it")
        pieces = []
        while self._kind == _TEXT_KIND:
            pieces.append(_unescaped(self._token[1:-1]))
            self._next()
        try:
            return b"".join(pieces).decode()
        except UnicodeDecodeError:
            _refuse(f"{name} is not UTF-8")


class _Message(Values):
    """A message that was given, even if empty: always true."""

    def __bool__(self) -> bool:
        return True


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


def _number(text: str) -> int:
    digits = text.lstrip("-")
    if len(digits) > 40:  # beyond every range
        return 2**100
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[:1] == "0" else 10
    value = int(digits, base)
    return -value if text[0] == "-" else value


_ESCAPE = re.compile(
    r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_SINGLE = {
    "a": b"\a", "b": b"\b", "f": b"\f", "n": b"\n", "r": b"\r", "t": b"\t", "v": b"\v",
    "\\": b"\\", "'": b"'", '"': b'"', "?": b"?",
}  # fmt: skip


def _unescaped(text: str) -> bytes:
    """Return the bytes that `text`, taken from between quotation marks, stands for."""
    if "\\" not in text:
        return text.encode()
    pieces = []
    at = 0
    for match in _ESCAPE.finditer(text):
        pieces.append(text[at : match.start()].encode())
        pieces.append(_meant(match))
        at = match.end()
    pieces.append(text[at:].encode())
    return b"".join(pieces)


def _meant(match: re.Match[str]) -> bytes:
    octal, short, four, eight, single = match.groups()
    if octal or short:
        value = int(octal, 8) if octal else int(short, 16)
        if value > 0xFF:
            _refuse(f"{match[0]} is no byte")
        return bytes((value,))
    if four or eight:
        point = int(four or eight, 16)
        if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
            _refuse(f"{match[0]} is no character")
        return chr(point).encode()
    if single not in _SINGLE:
        _refuse(f"\\{single} is no escape")
    return _SINGLE[single]


def _refuse(why: str) -> NoReturn:
    msg = f"NV-InferRequest cannot be read: {why}"
    raise InvalidRequest(msg) from None
