"""The JSON objects in which V2's logging and trace extensions carry settings."""

import orjson

from inferd.errors import InvalidRequest

MAX_BYTES = 65536
"""A longer document is refused."""

MAX_SHOWN = 100
"""Wrong values in error texts are cut to this length."""


def read_object(body: memoryview) -> dict[str, object]:
    """Return the JSON object in `body`. Raises InvalidRequest."""
    if len(body) > MAX_BYTES:
        msg = f"the settings have {len(body)} bytes, the limit is {MAX_BYTES}"
        raise InvalidRequest(msg)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        msg = f"failed to parse the request JSON buffer: expected an object of settings: {error}"
        raise InvalidRequest(msg) from error
    if not isinstance(document, dict):
        msg = f"the body is {shown(document)}, expected a JSON object of settings"
        raise InvalidRequest(msg)
    return document


def wrong_value(words: str, name: str, value: object, expected: str) -> InvalidRequest:
    """Return the error for a wrong value of the setting `name`; it begins with `words`."""
    return InvalidRequest(f"{words}: {name} is {shown(value)}, expected {expected}")


def shown(value: object) -> str:
    """Return a JSON value as text, cut to MAX_SHOWN characters."""
    text = orjson.dumps(value).decode()
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
