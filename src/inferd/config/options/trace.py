"""TraceSettings: which requests are traced and where traces go, as given by --trace-config."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from inferd.errors import InvalidConfig

# The order is that in which settings are shown.
TIMESTAMPS, TENSORS = LEVELS = ("TIMESTAMPS", "TENSORS")
OFF = "OFF"
TRITON, OPENTELEMETRY = MODES = ("triton", "opentelemetry")

LARGEST = 2**32 - 1
"""The largest rate and log frequency: Triton has them in uint32."""

# Triton has the count in int32, since -1 means no limit.
LARGEST_COUNT = 2**31 - 1

_OTHER_LEVELS = {
    "MIN": TIMESTAMPS,
    "MAX": TIMESTAMPS,
    "TRUE": TIMESTAMPS,
    "ON": TIMESTAMPS,
    "FALSE": OFF,
}
"""Other words of Triton's command line, which takes them, as all levels, in any case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """What is traced; the names are those of Triton's trace extension.

    No `levels` means OFF. Every `rate`-th request is traced, none if it is 0, until `count` traces
    have been made; -1 is no limit. Every `log_frequency` traces go to a file of their own, named
    `file` and a number; 0 puts all into `file`. `mode` is where traces go: "triton" to that file,
    "opentelemetry" to `collector`, which clients cannot change.
    """

    levels: tuple[str, ...] = ()
    # Triton's defaults.
    rate: int = 1000
    count: int = -1
    log_frequency: int = 0
    file: Path | None = None
    mode: str = TRITON
    collector: "CollectorSettings | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceChange:
    """New values of some TraceSettings; None leaves a setting as it is.

    `levels` are names given by a client, which may include OFF; `file` is a name, not a path. The
    fields in `cleared` are reset, as if they had never been set.
    """

    levels: tuple[str, ...] | None = None
    rate: int | None = None
    count: int | None = None
    log_frequency: int | None = None
    file: str | None = None
    mode: str | None = None
    cleared: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorSettings:
    """Where and how spans are sent in mode opentelemetry; None leaves it to OTEL_... variables.

    `url` is that of the spans, including the path. `resource` has the server's attributes by key.
    `bsp_schedule_delay` is in milliseconds.
    """

    url: str | None = None
    resource: tuple[tuple[str, str], ...] = ()
    bsp_max_queue_size: int | None = None
    bsp_schedule_delay: int | None = None
    bsp_max_export_batch_size: int | None = None


def in_effect(collector: CollectorSettings, environment: Mapping[str, str]) -> CollectorSettings:
    """Return `collector` completed by the OTEL_... variables in `environment` and the defaults.

    This is only to show the settings: OpenTelemetry itself applies the variables and its defaults.
    An invalid number counts as absent, as it does there.
    """
    # The variables' meaning, and that the general one gets a path and the particular one does not:
    # OpenTelemetry, OTLP exporter, "Endpoint URLs for OTLP/HTTP".
    base = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or "http://localhost:4318"
    url = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

    def number(name: str, usual: int) -> int:
        return whole_number(environment.get(f"OTEL_BSP_{name}", "")) or usual

    return CollectorSettings(
        url=collector.url or url or f"{base.removesuffix('/')}/v1/traces",
        resource=collector.resource,
        # These three are the defaults of the specification's batch span processor.
        bsp_max_queue_size=collector.bsp_max_queue_size or number("MAX_QUEUE_SIZE", 2048),
        bsp_schedule_delay=collector.bsp_schedule_delay or number("SCHEDULE_DELAY", 5000),
        bsp_max_export_batch_size=(
            collector.bsp_max_export_batch_size or number("MAX_EXPORT_BATCH_SIZE", 512)
        ),
    )


def read_trace_config(entries: Sequence[str]) -> tuple[TraceSettings, CollectorSettings]:
    """Return the settings from the values of --trace-config, each `[mode,]setting=value`.

    If a setting is repeated, the last value counts; levels and resource attributes add up. Raises
    InvalidConfig, which names the entry.
    """
    given = _Given(entries)
    settings = TraceSettings(
        levels=_levels(given),
        mode=given.choice("mode", MODES, TRITON),
        # Of Triton's mode even where another is chosen: clients may change the mode later.
        file=Path(given.text("triton,file")) if given.text("triton,file") else None,
        rate=given.number("rate", 0, LARGEST, TraceSettings().rate),
        count=given.number("count", -1, LARGEST_COUNT, TraceSettings().count),
        log_frequency=given.number("triton,log-frequency", 0, LARGEST, 0),
    )
    # A span has attributes and events, and neither is made for megabytes.
    if TENSORS in settings.levels and settings.mode == OPENTELEMETRY:
        _refuse("level", TENSORS, f"{TIMESTAMPS}: mode={OPENTELEMETRY} has no tensors")
    return settings, _collector(given)


class _Given:
    """The values given for each setting, by its name including the mode."""

    def __init__(self, entries: Sequence[str]) -> None:
        self._values: dict[str, list[str]] = {}
        for entry in entries:
            name, equals, value = entry.partition("=")
            if name not in _KNOWN or not equals:
                known = ", ".join(f"{name}=" for name in _KNOWN)
                raise InvalidConfig(f"--trace-config {entry}: expected one of {known}")
            self._values.setdefault(name, []).append(value)

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def text(self, name: str) -> str:
        return self.all(name)[-1] if self.all(name) else ""

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        text = self.text(name) or default
        value = text.lower()
        # As Triton, in any case.
        if value not in choices:
            _refuse(name, text, " or ".join(choices))
        return value

    def number(self, name: str, least: int, most: int, default: int) -> int:
        if not self.all(name):
            return default
        number = whole_number(self.text(name))
        if number is None or not least <= number <= most:
            _refuse(name, self.text(name), f"a whole number from {least} to {most}")
        return number


_BSP = "opentelemetry,bsp_"
_KNOWN = (
    "level",
    "rate",
    "count",
    "mode",
    "triton,file",
    "triton,log-frequency",
    "opentelemetry,url",
    "opentelemetry,resource",
    f"{_BSP}max_queue_size",
    f"{_BSP}schedule_delay",
    f"{_BSP}max_export_batch_size",
)


def _levels(given: _Given) -> tuple[str, ...]:
    names = []
    for text in given.all("level"):
        name = _OTHER_LEVELS.get(text.upper(), text.upper())
        if name not in (*LEVELS, OFF):
            _refuse("level", text, f"{OFF}, {' or '.join(LEVELS)}")
        names.append(name)
    # Triton refuses it, too; its wish could be read either way.
    if OFF in names and set(names) != {OFF}:
        raise InvalidConfig(f"--trace-config level={OFF} goes with no other level")
    return tuple(level for level in LEVELS if level in names)


def _collector(given: _Given) -> CollectorSettings:
    resource = []
    for text in given.all("opentelemetry,resource"):
        key, equals, value = text.partition("=")
        if not (key and equals):
            _refuse("opentelemetry,resource", text, "KEY=VALUE")
        resource.append((key, value))
    queue = given.number(f"{_BSP}max_queue_size", 1, 1_000_000, 0)
    batch = given.number(f"{_BSP}max_export_batch_size", 1, 1_000_000, 0)
    # OpenTelemetry's processor raises ValueError for this, at the first span rather than at the
    # start.
    if 0 < queue < batch:
        _refuse(f"{_BSP}max_export_batch_size", str(batch), f"at most max_queue_size, {queue}")
    url = given.text("opentelemetry,url")
    if url and "://" not in url:
        url = f"http://{url}"
    return CollectorSettings(
        url=url or None,
        resource=tuple(resource),
        bsp_max_queue_size=queue or None,
        bsp_schedule_delay=given.number(f"{_BSP}schedule_delay", 1, 3_600_000, 0) or None,
        bsp_max_export_batch_size=batch or None,
    )


def _refuse(name: str, value: str, expected: str) -> NoReturn:
    raise InvalidConfig(f"--trace-config {name}={value}: expected {expected}")


def whole_number(text: str) -> int | None:
    """Return the integer that `text` spells in decimal digits, None if it is not one."""
    digits = text.removeprefix("-")
    # isdigit() is true for superscripts, which int() refuses.
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 20
    return int(text) if is_number else None
