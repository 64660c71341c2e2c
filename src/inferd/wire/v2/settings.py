"""The settings of V2's logging and trace extensions over REST and gRPC: decoded and encoded."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import orjson

from inferd.config.options.log import LogChange, LogSettings
from inferd.config.options.trace import (
    LARGEST,
    LARGEST_COUNT,
    OFF,
    CollectorSettings,
    TraceChange,
    TraceSettings,
    whole_number,
)
from inferd.errors import InvalidRequest
from inferd.wire.json.document import JsonObject
from inferd.wire.json.kinds import not_a
from inferd.wire.proto import encode, parse

MAX_BYTES = 65536
"""A longer document is refused."""

MAX_SHOWN = 100
"""Wrong values in error texts are cut to this length."""


def read_object(body: memoryview) -> dict[str, object]:
    """Return the JSON object in `body`. Raises InvalidRequest."""
    if len(body) > MAX_BYTES:
        raise InvalidRequest(f"the settings have {len(body)} bytes, the limit is {MAX_BYTES}")
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        msg = f"failed to parse the request JSON buffer: expected an object of settings: {error}"
        raise InvalidRequest(msg) from error
    if not isinstance(document, dict):
        raise InvalidRequest(f"the body is {shown(document)}, expected a JSON object of settings")
    return document


def wrong_value(words: str, name: str, value: object, expected: str) -> InvalidRequest:
    """Return the error for a wrong value of the setting `name`; it begins with `words`."""
    return InvalidRequest(f"{words}: {name} is {shown(value)}, expected {expected}")


def shown(value: object) -> str:
    """Return a JSON value as text, cut to MAX_SHOWN characters."""
    text = orjson.dumps(value).decode()
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


_LARGEST_LEVEL = 2**32 - 1  # gRPC carries the level as uint32


class _LogSetting(NamedTuple):
    field: str
    kind: type
    choice: str  # the member of gRPC's oneof
    expected: str


_BOOLEAN = "true or false"
_LEVEL = f"a whole number from 0 to {_LARGEST_LEVEL}"
_LOG_SETTINGS = {
    "log_file": _LogSetting("file", str, "string_param", "a string"),
    "log_info": _LogSetting("info", bool, "bool_param", _BOOLEAN),
    "log_warning": _LogSetting("warning", bool, "bool_param", _BOOLEAN),
    "log_error": _LogSetting("error", bool, "bool_param", _BOOLEAN),
    "log_verbose_level": _LogSetting("verbose", int, "uint32_param", _LEVEL),
    "log_format": _LogSetting("format", str, "string_param", "a string"),
}
"""The settings, in Triton's order."""

_KINDS: dict[type, str] = {bool: "boolean", int: "unsigned-integer", str: "string"}
"""What Triton calls the values of each type."""


def decode_log_request(body: memoryview) -> LogChange:
    """Return the changes that a POST to /v2/logging asks for; null and unknown names are ignored.

    Raises InvalidRequest for a value of the wrong type.
    """
    return _log_change(read_object(body))


def encode_log_settings(settings: LogSettings) -> bytes:
    """Return the six settings as /v2/logging answers; of the file only its name."""
    return orjson.dumps(_log_as_json(settings))


def decode_log_message(data: bytes) -> LogChange:
    """Return the changes that a LogSettingsRequest asks for. Raises as `decode_log_request`."""
    message = parse("inference.LogSettingsRequest", data)
    values: JsonObject = {}
    for name, setting in _LOG_SETTINGS.items():
        if name in message.settings:
            choice = message.settings[name]
            kind = choice.WhichOneof("parameter_choice")
            values[name] = kind and getattr(choice, kind)
            if kind not in (None, setting.choice):
                words = f"expect {_KINDS[setting.kind]} for '{name}'"
                expected = f"{setting.expected}, in {setting.choice}"
                raise wrong_value(words, name, values[name], expected)
    return _log_change(values)


def encode_log_message(settings: LogSettings) -> bytes:
    """Return the six settings as a LogSettingsResponse."""
    values = _log_as_json(settings)
    changes = {name: {_LOG_SETTINGS[name].choice: value} for name, value in values.items()}
    return encode("inference.LogSettingsResponse", settings=changes)


def _log_change(values: Mapping[str, object]) -> LogChange:
    changed: JsonObject = {}
    for name, setting in _LOG_SETTINGS.items():
        value = values.get(name)
        if value is None:
            continue
        # bool is an int in Python, and no level.
        if type(value) is not setting.kind or (
            type(value) is int and not 0 <= value <= _LARGEST_LEVEL
        ):
            raise wrong_value(not_a(_KINDS[setting.kind]), name, value, setting.expected)
        changed[setting.field] = value
    return LogChange(**changed)


def _log_as_json(settings: LogSettings) -> JsonObject:
    values = {name: getattr(settings, setting.field) for name, setting in _LOG_SETTINGS.items()}
    # Only the name, since clients need not know the folders of the server.
    values["log_file"] = settings.file.name if settings.file else ""
    return values


def decode_trace_request(body: memoryview) -> TraceChange:
    """Return the change that a POST to .../trace/setting asks for; unknown names are ignored.

    null, or an empty list of levels, clears a setting. Raises InvalidRequest for a value of the
    wrong type.
    """
    document = read_object(body)
    given: dict[str, Sequence[str]] = {}
    for name in _TRACE_SETTINGS.keys() & document.keys():
        value = document[name]
        takes_many = _TRACE_SETTINGS[name].read is _all
        if value is None:
            given[name] = []
        elif takes_many and isinstance(value, list) and all(isinstance(x, str) for x in value):
            given[name] = value
        elif not takes_many and isinstance(value, str):
            given[name] = [value]
        else:
            expected = "an array of strings" if takes_many else "a string, for numbers too"
            kind = "array" if takes_many and not isinstance(value, list) else "string"
            raise wrong_value(not_a(kind), name, value, f"{expected}, or null")
    return _trace_change(given)


def encode_trace_settings(settings: TraceSettings) -> bytes:
    """Return the settings as .../trace/setting answers; of the file only its name."""
    members: dict[str, object] = {
        name: values if _TRACE_SETTINGS[name].read is _all else values[0]
        for name, values in _trace_as_json(settings).items()
    }
    return orjson.dumps(members | _collector_as_json(settings.collector))


def decode_trace_message(data: bytes) -> tuple[str, TraceChange]:
    """Return the change that a TraceSettingRequest asks for, behind the model that it is for.

    "" means all models without settings of their own. A setting without values is cleared. Raises
    InvalidRequest.
    """
    message = parse("inference.TraceSettingRequest", data)
    given = {
        name: list(message.settings[name].value)
        for name in _TRACE_SETTINGS
        if name in message.settings
    }
    return message.model_name, _trace_change(given)


def encode_trace_message(settings: TraceSettings) -> bytes:
    """Return the settings as a TraceSettingResponse."""
    collector = {name: [value] for name, value in _collector_as_json(settings.collector).items()}
    members = _trace_as_json(settings) | collector
    rows = {name: {"value": values} for name, values in members.items()}
    return encode("inference.TraceSettingResponse", settings=rows)


def _trace_change(given: Mapping[str, Sequence[str]]) -> TraceChange:
    changed: dict[str, Any] = {}
    for name, texts in given.items():
        field, read = _TRACE_SETTINGS[name]
        if texts:
            changed[field] = read(name, texts)
    cleared = frozenset(_TRACE_SETTINGS[name].field for name, texts in given.items() if not texts)
    return TraceChange(cleared=cleared, **changed)


def _one(name: str, texts: Sequence[str]) -> str:
    if len(texts) != 1:
        raise InvalidRequest(f"expect only 1 value for '{name}', got {len(texts)}")
    return texts[0]


def _all(_name: str, texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(texts)


def _number(least: int, most: int) -> Callable[[str, Sequence[str]], int]:
    def read(name: str, texts: Sequence[str]) -> int:
        number = whole_number(_one(name, texts))
        if number is None or not least <= number <= most:
            msg = f"{name} is {shown(texts[0])}, expected a whole number from {least} to {most}"
            raise InvalidRequest(msg)
        return number

    return read


class _TraceSetting(NamedTuple):
    field: str
    read: Callable[[str, Sequence[str]], Any]


_TRACE_SETTINGS = {
    "trace_level": _TraceSetting("levels", _all),
    "trace_rate": _TraceSetting("rate", _number(0, LARGEST)),
    "trace_count": _TraceSetting("count", _number(-1, LARGEST_COUNT)),
    "log_frequency": _TraceSetting("log_frequency", _number(0, LARGEST)),
    "trace_file": _TraceSetting("file", _one),
    "trace_mode": _TraceSetting("mode", _one),
}
"""The settings, in Triton's order."""


def _trace_as_json(settings: TraceSettings) -> dict[str, list[str]]:
    return {
        "trace_level": list(settings.levels) or [OFF],
        "trace_rate": [str(settings.rate)],
        "trace_count": [str(settings.count)],
        "log_frequency": [str(settings.log_frequency)],
        "trace_file": [settings.file.name if settings.file else ""],
        "trace_mode": [settings.mode],
    }


def _collector_as_json(collector: CollectorSettings | None) -> dict[str, str]:
    """Return the settings of mode opentelemetry that were given, the URL without credentials."""
    if collector is None:
        return {}
    parts = urlsplit(collector.url or "")
    # What stands before @ may be a password.
    host = parts.netloc.rpartition("@")[2]
    members = {
        "url": urlunsplit((parts.scheme, host, parts.path, "", "")),
        "bsp_max_queue_size": collector.bsp_max_queue_size,
        "bsp_schedule_delay": collector.bsp_schedule_delay,
        "bsp_max_export_batch_size": collector.bsp_max_export_batch_size,
    }
    return {name: str(value) for name, value in members.items() if value}
