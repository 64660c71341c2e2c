"""V2's logging extension over REST and gRPC: decodes and encodes log settings."""

from collections.abc import Mapping
from typing import NamedTuple

import orjson

from inferd.config.options.log import LogChange, LogSettings
from inferd.wire.json.document import JsonObject
from inferd.wire.json.kinds import not_a
from inferd.wire.proto import encode, parse
from inferd.wire.v2.settings import read_object, wrong_value

_LARGEST = 2**32 - 1  # gRPC carries the level as uint32


class _LogSetting(NamedTuple):
    field: str
    kind: type
    choice: str  # the member of gRPC's oneof
    expected: str


_BOOLEAN = "true or false"
_LEVEL = f"a whole number from 0 to {_LARGEST}"
_SETTINGS = {
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
    return _change(read_object(body))


def encode_log_settings(settings: LogSettings) -> bytes:
    """Return the six settings as /v2/logging answers; of the file only its name."""
    return orjson.dumps(_as_json(settings))


def decode_log_message(data: bytes) -> LogChange:
    """Return the changes that a LogSettingsRequest asks for. Raises as `decode_log_request`."""
    message = parse("inference.LogSettingsRequest", data)
    values: JsonObject = {}
    for name, setting in _SETTINGS.items():
        if name in message.settings:
            choice = message.settings[name]
            kind = choice.WhichOneof("parameter_choice")
            values[name] = kind and getattr(choice, kind)
            if kind not in (None, setting.choice):
                words = f"expect {_KINDS[setting.kind]} for '{name}'"
                expected = f"{setting.expected}, in {setting.choice}"
                raise wrong_value(words, name, values[name], expected)
    return _change(values)


def encode_log_message(settings: LogSettings) -> bytes:
    """Return the six settings as a LogSettingsResponse."""
    values = _as_json(settings)
    changes = {name: {_SETTINGS[name].choice: value} for name, value in values.items()}
    return encode("inference.LogSettingsResponse", settings=changes)


def _change(values: Mapping[str, object]) -> LogChange:
    changed: JsonObject = {}
    for name, setting in _SETTINGS.items():
        value = values.get(name)
        if value is None:
            continue
        # bool is an int in Python, and no level.
        if type(value) is not setting.kind or (type(value) is int and not 0 <= value <= _LARGEST):
            raise wrong_value(not_a(_KINDS[setting.kind]), name, value, setting.expected)
        changed[setting.field] = value
    return LogChange(**changed)


def _as_json(settings: LogSettings) -> JsonObject:
    values = {name: getattr(settings, setting.field) for name, setting in _SETTINGS.items()}
    # Only the name, since clients need not know the folders of the server.
    values["log_file"] = settings.file.name if settings.file else ""
    return values
