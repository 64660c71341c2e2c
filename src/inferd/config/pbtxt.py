"""Reads and writes ModelConfig as protobuf text (config.pbtxt), and as JSON.

protobuf's own parsers read it by our schema; only their error messages are reworded.
"""

import difflib
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import orjson
from google.protobuf import json_format, text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from numpy import finfo, float32

from inferd.config.document import MAX_SHOWN, checked_document
from inferd.config.message import is_map, read_message, value_field, write_message
from inferd.config.model import ModelConfig
from inferd.config.proto import MODEL_CONFIG, config_pool, message_class
from inferd.errors import InvalidConfig

FLOAT_MAX = float(finfo(float32).max)


# Strings first, so that a # in one begins no comment. An open string ends with its line, as in
# protobuf's text format.
_STRING_OR_COMMENT = re.compile(rb"""("(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)|#[^\n]*""")


def decode_pbtxt(content: bytes, file: str) -> str:
    """Return `content`, the content of `file`, as text; comments may be in any encoding.

    Raises InvalidConfig when the rest is not UTF-8.
    """
    try:
        return content.decode()
    except UnicodeDecodeError:
        # Blanks of the same length keep lines and columns of later complaints right.
        content = _STRING_OR_COMMENT.sub(_blanked, content)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        msg = f"{file} is not UTF-8: byte {error.start} is 0x{content[error.start]:02x}"
        before = content[: error.start]
        raise _at(msg, *_place_after(before.decode())) from error


def _blanked(found: re.Match[bytes]) -> bytes:
    """Return a string as it is, and blanks for a comment."""
    return found[0] if found[1] else b" " * len(found[0])


def parse_pbtxt(text: str, file: str) -> ModelConfig:
    """Return the configuration in `text`, the content of `file`.

    Raises InvalidConfig with file, line, column and field.
    """
    message = _empty_message()
    # Triton refuses such files, too; protobuf's complaint is about an invisible character.
    if text.startswith("\ufeff"):
        msg = f"{file}:1:1: the file begins with a byte order mark; save it as UTF-8 without one"
        raise _at(msg, 1, 1)
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        line, column = error.GetLine() or 1, error.GetColumn() or 1
        complaint = _complaint(str(error), _field_before(text, line, column))
        # protobuf says what it expected, not what it found there.
        if complaint.endswith(_LACKS_FOUND):
            complaint += f", got {_token_at(text, line, column)}"
        raise _at(f"{file}:{line}:{column}: {complaint}", line, column) from error
    except ValueError as error:  # an enum's number that is out of range
        raise InvalidConfig(f"{file}: {_complaint(str(error), 'an enum')}") from error
    with _in_file(file):
        return _noted(read_message(message), is_sized=_names_size(text))


def parse_json(text: str | bytes, file: str) -> ModelConfig:
    """Return the configuration in the JSON `text`; error messages call it `file`.

    Enum names may be in any case, 64-bit numbers may be strings. Raises InvalidConfig.
    """
    message = _empty_message()
    try:
        # Not json.loads: that takes NaN, and of a name given twice it does not tell either.
        document = orjson.loads(text)
        if not isinstance(document, dict):
            raise InvalidConfig(f"{file}: expected a JSON object")
        with _in_file(file):
            document = checked_document(document, message.DESCRIPTOR)
        json_format.ParseDict(document, message)
    except orjson.JSONDecodeError as error:
        msg = f"{file}:{error.lineno}:{error.colno}: not JSON: {error.msg}"
        raise InvalidConfig(msg) from error
    except json_format.ParseError as error:
        raise InvalidConfig(f"{file}: {_json_complaint(str(error))}") from error
    with _in_file(file):
        # protobuf's JSON has each name in two spellings.
        is_sized = any(
            document.get(name) is not None for name in ("max_batch_size", "maxBatchSize")
        )
        return _noted(read_message(message), is_sized=is_sized)


def to_json(config: ModelConfig) -> dict[str, object]:
    """Return `config` in the JSON form of the model configuration extension (V2).

    Fields have their protobuf names, enums are names, 64-bit integers are numbers; scalar fields
    are always present, messages only if they are set.
    """
    message = _empty_message()
    write_message(config, message)
    return _message_to_json(message)


def to_pbtxt(config: ModelConfig) -> str:
    """Return `config` as the text of a config.pbtxt, a field in each line."""
    message = _empty_message()
    write_message(config, message)
    text: str = text_format.MessageToString(
        message, use_short_repeated_primitives=True, as_utf8=True
    )
    # A 0 that was written says that nothing is to be filled in.
    return f"max_batch_size: 0\n{text}" if config.is_unbatched else text


def _names_size(text: str) -> bool:
    """Return whether `text`, which is sound, gives max_batch_size, the only field of that name."""
    # A name in a string or comment is none.
    code = _STRING_OR_COMMENT.sub(b"", text.encode())
    return re.search(rb"\bmax_batch_size\b", code) is not None


def _noted(config: ModelConfig, *, is_sized: bool) -> ModelConfig:
    """Return `config`, noting whether its 0 was written: a message cannot tell that."""
    if not is_sized:
        return config
    written = config.written | {"max_batch_size"}
    return replace(config, is_unbatched=not config.max_batch_size, written=written)


def _empty_message() -> Message:
    return message_class(config_pool(), MODEL_CONFIG)()


def _at(message: str, line: int, column: int) -> InvalidConfig:
    error = InvalidConfig(message)
    error.line, error.column = line, column
    return error


def _place_after(text: str) -> tuple[int, int]:
    """Return line and column, from 1, of what follows `text`."""
    return text.count("\n") + 1, len(text) - text.rfind("\n")


@contextmanager
def _in_file(file: str) -> Iterator[None]:
    """Put the name of the file in front of a complaint."""
    try:
        yield
    except InvalidConfig as error:
        msg = f"{file}: {error}"
        # The error below is the same one without the file.
        raise type(error)(msg, error.path) from None


def _message_to_json(message: Any) -> dict[str, Any]:
    return {
        field.name: _field_to_json(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        # Triton's form: scalars are there even at their defaults, messages only if they are set.
        if not field.has_presence or message.HasField(field.name)
    }


def _field_to_json(field: FieldDescriptor, value: Any) -> Any:
    if is_map(field):
        values = value_field(field)
        # A protobuf map has no order, and two calls should give equal texts.
        return {str(key): _value_to_json(values, value[key]) for key in sorted(value)}
    if field.is_repeated:
        return [_value_to_json(field, item) for item in value]
    return _value_to_json(field, value)


def _value_to_json(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        return _message_to_json(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    return _float_to_json(field, value) if isinstance(value, float) else value


def _float_to_json(field: FieldDescriptor, value: float) -> float | str:
    if not math.isfinite(value):  # JSON has no such number: spelled as in protobuf
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if field.type != FieldDescriptor.TYPE_FLOAT:
        return value
    # What FP32 keeps of 0.1 is printed as the shortest number that reads back as it.
    shortest = float(str(float32(value)))  # 0.1, not 0.10000000149011612
    return shortest if abs(shortest) <= FLOAT_MAX else value  # readers would refuse the rounded one


def _complaint(text: str, field: str) -> str:
    """Return protobuf's error `text` about the value of `field`, reworded."""
    # The place is said in front, and what was read may hold line breaks.
    text = re.sub(r"\A\d+:\d+ : (?:'.*': )?", "", text, flags=re.DOTALL)
    if match := re.search(r'Message type "(.+?)" has no field named "(.+?)"', text):
        return _unknown_field(match[1], match[2])
    if match := re.search(r'Enum type "(.+?)" has no value named (.+)\.', text):
        return _unknown_value(match[1], match[2], field)
    if match := re.search(r"Invalid enum value (\S+) for enum type ([\w.]+)", text):
        return _unknown_value(match[2], match[1], field)
    # In the order of the table: general patterns come last.
    for pattern, words in _WORDS.items():
        if match := re.search(pattern, text):
            return words.format(*match.groups(), field=field, most=MAX_SHOWN)
    return f"{field}: {text}" if field else text


def _json_complaint(text: str) -> str:
    """Return protobuf's error `text` about JSON, reworded, with the path of the field."""
    path = re.findall(r"Failed to parse (\w+) field: ", text)
    text = re.sub(r"Failed to parse \w+ field: ", "", text)
    text = re.sub(r" at \"?ModelConfig[^ ]*\Z", "", text.splitlines()[0]).rstrip(".")
    return _complaint(text, ".".join(path))


def _unknown_field(message: str, name: str) -> str:
    known = config_pool().FindMessageTypeByName(message).fields_by_name
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"it has {', '.join(known)}"
    return f"{_short(message)} has no field '{name}'; {hint}"


def _unknown_value(enum: str, name: str, field: str) -> str:
    known = config_pool().FindEnumTypeByName(enum).values_by_name
    return f"{field}: '{name[:MAX_SHOWN]}' is no {_short(enum)}, expected one of {', '.join(known)}"


def _short(name: str) -> str:
    return name.removeprefix("inference.")


_NO_WHOLE_NUMBER = "{field}: expected a whole number, got {0:.{most}}"
_WORDS = {
    r'should not have multiple "(.+?)" oneof fields': "more than one {0} is given",
    r'should not have multiple "(.+?)" fields': "{0} is given twice",
    r'Field "(.+?)" is specified along with field "(.+?)"': "{0} cannot be given beside {1}",
    r"Couldn't parse integer: (.*)": _NO_WHOLE_NUMBER,
    r"invalid literal for int.*: (.*)": _NO_WHOLE_NUMBER,
    r"Value out of range: (.*)": "{field}: {0:.{most}} is out of range",
    r"Couldn't parse float: (.*)": "{field}: expected a number, got {0:.{most}}",
    r"Expected string but found: ''\Z": "{field}: expected a text in quotes, got nothing",
    r"Expected string but found: '(.*)'": "{field}: expected a text in quotes, got {0}",
    r"Couldn't parse string: ": "{field}: the text in quotes is not UTF-8",
    r"String missing ending quote": "{field}: the text has no quote at its end",
    r'Expected "true" or "false"': "{field}: expected true or false",
    r"\AExpected identifier or number, got ": "expected the name of a field here",
    r"\AExpected (.*)\.\Z": "expected {0} here",
}
"""What protobuf says, as a pattern, and our words for it; the first that matches counts."""

_LACKS_FOUND = ("expected true or false", " here")


def _token_at(text: str, line: int, column: int) -> str:
    """Return the token at `line` and `column`, both from 1."""
    found = re.match(
        r"""\s*("[^"]*"|'[^']*'|[-\w.]+|\S)""", text.split("\n")[line - 1][column - 1 :]
    )
    return found[1][:MAX_SHOWN] if found else "nothing more"


def _field_before(text: str, line: int, column: int) -> str:
    """Return the field whose value is at `line` and `column` (both from 1), '' if none is found."""
    lines = text.split("\n")[:line]
    # Up to the value, not the line's end: the name stands before it.
    before = "\n".join([*lines[:-1], lines[-1][: column - 1]])
    names = re.findall(r"([A-Za-z_]\w*)\s*[:{\[<]", before)
    return names[-1] if names else ""
