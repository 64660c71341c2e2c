"""Fields of the messages that make up a model's interface, by their numbers.

Only requested fields are parsed, and nothing is copied, so even a model of gigabytes takes only
as long as its list of nodes.
"""

from collections.abc import Iterator

from inferd.formats.protobuf import Malformed, fields, signed


def messages(message: memoryview, number: int) -> Iterator[memoryview]:
    """Yield the fields `number` of `message` that are messages or texts. Raises Malformed."""
    for found, _, value in fields(message):
        if found == number and isinstance(value, memoryview):
            yield value


def merged(message: memoryview, number: int) -> memoryview:
    """Return the message in field `number`, empty if absent. Raises Malformed.

    Repeated occurrences are merged, as protobuf specifies.
    """
    found = list(messages(message, number))
    return found[0] if len(found) == 1 else memoryview(b"".join(found))


def text(message: memoryview, number: int) -> str:
    """Return field `number` as text, the last if repeated, "" if absent. Raises Malformed."""
    value = memoryview(b"")
    for each in messages(message, number):
        value = each
    return decoded(value)


def decoded(value: memoryview) -> str:
    """Return `value` as text. Raises Malformed."""
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError as error:
        msg = "a text is not UTF-8"
        raise Malformed(msg) from error


def integer(message: memoryview, number: int) -> int:
    """Return field `number` as int64, 0 if absent. Raises Malformed."""
    found = 0
    for each, _, value in fields(message):
        if each == number and isinstance(value, int):
            found = signed(value)
    return found
