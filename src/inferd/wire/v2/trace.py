"""V2's trace extension over REST and gRPC: decodes and encodes trace settings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import orjson

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
from inferd.wire.json.kinds import not_a
from inferd.wire.proto import encode, parse
from inferd.wire.v2.settings import read_object, shown, wrong_value


def decode_trace_request(body: memoryview) -> TraceChange:
    """Return the change that a POST to .../trace/setting asks for; unknown names are ignored.

    null, or an empty list of levels, clears a setting. Raises InvalidRequest for a value of the
    wrong type.
    """
    document = read_object(body)
    given: dict[str, Sequence[str]] = {}
    for name in _SETTINGS.keys() & document.keys():
        value = document[name]
        takes_many = _SETTINGS[name].read is _all
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
    return _change(given)


def encode_trace_settings(settings: TraceSettings) -> bytes:
    """Return the settings as .../trace/setting answers; of the file only its name."""
    members: dict[str, object] = {
        name: values if _SETTINGS[name].read is _all else values[0]
        for name, values in _as_json(settings).items()
    }
    return orjson.dumps(members | _collector_as_json(settings.collector))


def decode_trace_message(data: bytes) -> tuple[str, TraceChange]:
    """Return the change that a TraceSettingRequest asks for, behind the model that it is for.

    "" means all models without settings of their own. A setting without values is cleared. Raises
    InvalidRequest.
    """
    message = parse("inference.TraceSettingRequest", data)
    given = {
        name: list(message.settings[name].value) for name in _SETTINGS if name in message.settings
    }
    return message.model_name, _change(given)


def encode_trace_message(settings: TraceSettings) -> bytes:
    """Return the settings as a TraceSettingResponse."""
    collector = {name: [value] for name, value in _collector_as_json(settings.collector).items()}
    members = _as_json(settings) | collector
    rows = {name: {"value": values} for name, values in members.items()}
    return encode("inference.TraceSettingResponse", settings=rows)


def _change(given: Mapping[str, Sequence[str]]) -> TraceChange:
    changed: dict[str, Any] = {}
    for name, texts in given.items():
        field, read = _SETTINGS[name]
        if texts:
            changed[field] = read(name, texts)
    cleared = frozenset(_SETTINGS[name].field for name, texts in given.items() if not texts)
    return TraceChange(cleared=cleared, **changed)


def _one(name: str, texts: Sequence[str]) -> str:
    if len(texts) != 1:
        msg = f"expect only 1 value for '{name}', got {len(texts)}"
        raise InvalidRequest(msg)
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


_SETTINGS = {
    "trace_level": _TraceSetting("levels", _all),
    "trace_rate": _TraceSetting("rate", _number(0, LARGEST)),
    "trace_count": _TraceSetting("count", _number(-1, LARGEST_COUNT)),
    "log_frequency": _TraceSetting("log_frequency", _number(0, LARGEST)),
    "trace_file": _TraceSetting("file", _one),
    "trace_mode": _TraceSetting("mode", _one),
}
"""The settings, in Triton's order."""


def _as_json(settings: TraceSettings) -> dict[str, list[str]]:
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
