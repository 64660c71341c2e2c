"""Checks types in a configuration's JSON; errors name the field, its value and what is expected.

protobuf's JSON reader would find these errors, too, but its messages are about its own internals.
Fields that are unknown, duplicate or exclude each other are left to it.
"""

import math
import re
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from inferd.config.message import is_map, value_field
from inferd.errors import InvalidConfig

MAX_SHOWN = 60
"""How many characters of a wrong value an error message quotes."""

_WORDS = ("NaN", "Infinity", "-Infinity", "inf", "-inf", "nan")
# Half way between the largest FP32 and 2**128: what is not above rounds to a finite FP32, as in
# protobuf.
_FLOAT_MAX = 3.4028235677973366e38
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,100}")  # int() has its own error for thousands of digits


def checked_document(value: Any, message: Any, where: str = "") -> dict[str, Any]:
    """Return the JSON `value` at the path `where` as protobuf reads it: enum names in upper case.

    `message` is the descriptor of what it must be. Raises InvalidConfig for the first value that
    has the wrong type or is out of range.
    """
    if not isinstance(value, dict):
        raise _wrong(where, "an object", value)
    # Both spellings are right in protobuf's JSON; an unknown one is left to protobuf, which knows
    # what is near.
    fields = {**message.fields_by_camelcase_name, **message.fields_by_name}
    checked = value.copy()
    for name, one in value.items():
        if name in fields and one is not None:  # null means absent
            checked[name] = _checked_field(one, fields[name], f"{where}.{name}" if where else name)
    return checked


def _checked_field(value: object, field: FieldDescriptor, where: str) -> object:
    if is_map(field):
        if not isinstance(value, dict):
            raise _wrong(where, "an object", value)
        return _checked_map(value, field, where)
    if field.is_repeated:
        if not isinstance(value, list):
            raise _wrong(where, "a list", value)
        return [
            _checked_value(item, field, f"{where}[{number}]") for number, item in enumerate(value)
        ]
    return _checked_value(value, field, where)


def _checked_map(values: dict[str, Any], field: FieldDescriptor, where: str) -> dict[str, Any]:
    entry: Any = field.message_type
    key = entry.fields_by_name["key"]
    checked = {}
    for name, one in values.items():
        # JSON's keys are texts even where the protocol has numbers.
        _checked_value(name, key, f"a key of {where}")
        checked[name] = _checked_value(one, value_field(field), f"{where}['{name[:MAX_SHOWN]}']")
    return checked


def _checked_value(value: object, field: FieldDescriptor, where: str) -> object:
    if field.message_type is not None:
        return checked_document(value, field.message_type, where)
    if field.enum_type is not None:
        return _checked_enum(value, field.enum_type, where)
    expected, is_right = _KINDS[field.cpp_type]
    if not is_right(value):
        raise _wrong(where, expected, value)
    return value


def _checked_enum(value: Any, enum: Any, where: str) -> Any:
    names, numbers = enum.values_by_name, enum.values_by_number
    # Triton's reader takes names in any case.
    if isinstance(value, str) and value.upper() in names:
        return value.upper()
    # In Python, True is an int, and would be the enum's 1.
    if not isinstance(value, int) or isinstance(value, bool) or value not in numbers:
        raise _wrong(where, f"one of {', '.join(names)}", value)
    return value


def _whole(least: int, most: int) -> tuple[str, Callable[[object], bool]]:
    def is_right(value: object) -> bool:
        if isinstance(value, str):  # 64-bit numbers may be strings: JSON's are doubles
            value = int(value) if _WHOLE_NUMBER.fullmatch(value) else None
        # JSON has one kind of number: 4.0 is 4.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most

    return f"a whole number from {least} to {most}", is_right


def _number(most: float) -> tuple[str, Callable[[Any], bool]]:
    def is_right(value: object) -> bool:
        if isinstance(value, str) and value not in _WORDS:
            try:
                value = float(value)
            except ValueError:
                return False
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            # Not `<=`: that is false for NaN, which protobuf takes.
            return not abs(value) > most
        return value in _WORDS if isinstance(value, str) else False

    return "a number", is_right


_KINDS: dict[int, tuple[str, Callable[[Any], bool]]] = {
    FieldDescriptor.CPPTYPE_BOOL: ("true or false", lambda value: isinstance(value, bool)),
    FieldDescriptor.CPPTYPE_STRING: ("a text", lambda value: isinstance(value, str)),
    FieldDescriptor.CPPTYPE_INT32: _whole(-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: _whole(-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: _whole(0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: _whole(0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_FLOAT: _number(_FLOAT_MAX),
    FieldDescriptor.CPPTYPE_DOUBLE: _number(math.inf),
}
"""By type of field: what it takes, in words, and a check of a value."""


def _wrong(where: str, expected: str, value: object) -> InvalidConfig:
    return InvalidConfig(f"{where or 'the whole'}: expected {expected}, got {_shown_value(value)}")


def _shown_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{value[:MAX_SHOWN]}{'...' if len(value) > MAX_SHOWN else ''}'"
    names = {dict: "an object", list: "a list", type(None): "null"}
    # A list or number of megabytes must not become a line of the log.
    return names.get(type(value)) or str(value)[:MAX_SHOWN]
