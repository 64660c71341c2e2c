"""Logs: of the server (LogSettings), of requests, and of payloads (PayloadSettings)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from inferd.config.options.option import finite_number
from inferd.config.options.trace import whole_number
from inferd.errors import InvalidConfig

# The first two are Triton's words.
LOG_FORMATS = ("default", "ISO8601", "json")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What is logged and how; the names are those of Triton's logging extension.

    `file` None is standard error. `verbose` above 0 adds details (level DEBUG). The three
    booleans each switch one level, independently of the others.
    """

    format: str = "default"
    file: Path | None = None
    verbose: int = 0
    info: bool = True
    warning: bool = True
    error: bool = True


@dataclass(frozen=True, slots=True)
class LogChange:
    """New values of some LogSettings; None leaves a setting as it is.

    `file` is a name given by a client, "" for standard error.
    """

    format: str | None = None
    file: str | None = None
    verbose: int | None = None
    info: bool | None = None
    warning: bool | None = None
    error: bool | None = None


ACCESS_LOG_FORMATS = ("text", "json", "common")
"""The forms of the access log's lines."""

STANDARD_ERROR = "-"
"""In place of the name of a file."""


_PAYLOAD_LOG_CONFIG = "--payload-log-config"

PAYLOAD_MODES = ("all", "request", "response")

# A bound against slips of the keyboard: a larger file is no file that one reads.
_MOST_BYTES = 2**40


@dataclass(frozen=True, slots=True)
class PayloadPolicy:
    """Which payloads of a model are logged.

    `sample` is the part of its requests, from 0 to 1. `mode`: the requests, their answers, or both.
    Of a payload, at most `max_bytes` are kept.
    """

    sample: float = 1.0
    mode: str = "all"
    max_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class PayloadSettings:
    """The settings of the payload log: the `policy` of models that have none in `models`.

    Payloads that wait to be written or sent take `buffer_bytes` at most. A file has `file_bytes`,
    and there are `file_count` of them. `service` and `namespace` are those of KServe's events, and
    `source` what all events name as their source. A receiver over HTTPS has a certificate from an
    authority in `ca_file`, or one that the system knows; it is shown the one in `cert_file`.
    """

    policy: PayloadPolicy = PayloadPolicy()
    models: Mapping[str, PayloadPolicy] = field(default_factory=dict)
    # A receiver that is down costs no more than this; what does not fit is counted and dropped.
    buffer_bytes: int = 64 << 20
    file_bytes: int = 100 << 20
    file_count: int = 10
    service: str = ""
    namespace: str = ""
    source: str = "inferd"
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    @property
    def has_tls_files(self) -> bool:
        """Whether files for a receiver over HTTPS are named."""
        return bool(self.ca_file or self.cert_file)


def read_payload_config(texts: Sequence[str]) -> PayloadSettings:
    """Return the settings from the values of --payload-log-config, each [MODEL,]SETTING=VALUE.

    Raises InvalidConfig.
    """
    of_all: dict[str, Any] = {}
    of_models: dict[str, dict[str, Any]] = {}
    whole: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        # From the right: a model's name may have commas, a setting has none.
        model, comma, name = key.rpartition(",")
        if not equals:
            _refuse(text, "[MODEL,]SETTING=VALUE")
        if name in _OF_POLICY:
            of_model = of_models.setdefault(model, {}) if comma else of_all
            of_model[name.replace("-", "_")] = _value(text, name, value)
        elif name in _OF_WHOLE and not comma:
            whole[name.replace("-", "_")] = _value(text, name, value)
        else:
            known = ", ".join((*_OF_POLICY, *_OF_WHOLE))
            _refuse(text, f"one of the settings {known}; the first {len(_OF_POLICY)} of a model")
    policy = PayloadPolicy(**of_all)
    # Without a certificate, the key would be left aside without a word.
    if "key_file" in whole and "cert_file" not in whole:
        _refuse(f"key-file={whole['key_file']}", "a cert-file as well")
    models = {model: replace(policy, **own) for model, own in of_models.items()}
    return PayloadSettings(policy, models, **whole)


_OF_POLICY = ("sample", "mode", "max-bytes")
_TEXTS = ("service", "namespace", "source", "ca-file", "cert-file", "key-file")
_OF_WHOLE = ("buffer-bytes", "file-bytes", "file-count", *_TEXTS)


def _value(text: str, name: str, value: str) -> object:
    if name == "sample":
        number = finite_number(value)
        if number is None or not 0 <= number <= 1:
            _refuse(text, "a number from 0 to 1")
        # -0.0 is shown as it is by repr, and compares as 0.
        return number if math.copysign(1, number) > 0 else 0.0
    if name == "mode":
        if value not in PAYLOAD_MODES:
            _refuse(text, " or ".join(PAYLOAD_MODES))
        return value
    if name in _TEXTS:
        if not value or not value.isprintable():
            _refuse(text, "a text")
        return value
    # Under a thousand bytes not even the frame of an event fits.
    least = 1 if name == "file-count" else 1000
    count = whole_number(value)
    if count is None or not least <= count <= _MOST_BYTES:
        _refuse(text, f"a whole number from {least} on")
    return count


def _refuse(text: str, expected: str) -> NoReturn:
    raise InvalidConfig(f"{_PAYLOAD_LOG_CONFIG} {text}: expected {expected}")
