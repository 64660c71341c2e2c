"""Fields: protobuf's wire format, as far as reading a model's interface needs it.

Only requested fields are parsed, and nothing is copied, so even a model of gigabytes takes only
as long as its list of nodes. Bytes that do not parse raise MalformedFields.
"""

from collections.abc import Iterator

Value = int | memoryview
"""A number, or the bytes of a text, a message, or packed numbers."""


class MalformedFields(Exception):
    """The bytes are no protobuf message, or an incomplete one."""


def fields(message: memoryview) -> Iterator[tuple[int, Value]]:
    """Yield number and value of each field of `message`, in order. Raises MalformedFields.

    Fixed-size numbers come as their bytes.
    """
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == 2:
            size, at = _varint(message, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            msg = f"field {number} has wire type {kind}"
            raise MalformedFields(msg)
        if number == 0 or size > end - at:
            msg = f"field {number} has {size} bytes, {end - at} are left"
            raise MalformedFields(msg)
        yield number, message[at : at + size]
        at += size


def messages(message: memoryview, number: int) -> Iterator[memoryview]:
    """Yield the fields `number` of `message` that are messages or texts. Raises MalformedFields."""
    for found, value in fields(message):
        if found == number and isinstance(value, memoryview):
            yield value


def merged(message: memoryview, number: int) -> memoryview:
    """Return the message in field `number`, empty if absent. Raises MalformedFields.

    Repeated occurrences are merged, as protobuf specifies.
    """
    found = list(messages(message, number))
    return found[0] if len(found) == 1 else memoryview(b"".join(found))


def text(message: memoryview, number: int) -> str:
    """Return field `number` as text, the last if repeated, "" if absent. Raises MalformedFields."""
    value = memoryview(b"")
    for each in messages(message, number):
        value = each
    return decoded(value)


def decoded(value: memoryview) -> str:
    """Return `value` as text. Raises MalformedFields."""
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError as error:
        msg = "a text is not UTF-8"
        raise MalformedFields(msg) from error


def integer(message: memoryview, number: int) -> int:
    """Return field `number` as int64, 0 if absent. Raises MalformedFields."""
    found = 0
    for each, value in fields(message):
        if each == number and isinstance(value, int):
            found = value
    return found - (1 << 64) if found >= 1 << 63 else found


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
    msg = "a number is cut off"
    raise MalformedFields(msg)
