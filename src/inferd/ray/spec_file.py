"""Reads a models.toml: what is to run where. Errors name the file, the line and the key.

The reader of the standard library tells lines of what is no TOML only, so those of keys are looked
for here.
"""

import math
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from inferd.config.options.option import options_of
from inferd.config.server import ServerConfig
from inferd.config.sources import nearest, read_options
from inferd.errors import InvalidConfig
from inferd.ray.spec import DEFAULT_NAME, DeploymentSpec, GroupSpec, ScalingRule

# Lines of a file that tomllib has accepted, so little is needed to tell headers from keys.
_HEADER = re.compile(r"^\s*\[\[?([^\[\]]+)\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""^\s*((?:[\w.\s-]|"[^"]*"|'[^']*')+?)\s*=""")

# A label of DNS (RFC 1123), and above all without colons, which
# separate the parts of actors' names.
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?)?B?")
_UNITS = {
    "": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip
_OURS = (
    "allow_http",
    "allow_metrics",
    "config",
    "grpc_port",
    "grpc_unix_socket",
    "http_port",
    "http_unix_socket",
    "http_use_ssl_mutual",
    "metrics_port",
    "model_repository",
)
"""Options that are not for a replica: it has ports of its own, and is asked how it is there."""

_MOST_REPLICAS = 10_000
_MARGIN_S = 30.0
"""How much longer than all its own times a server may take for its end."""


class TomlValue(NamedTuple):
    """A value of the file, and what an error about it begins with."""

    value: Any
    where: str

    def refuse(self, expected: str) -> NoReturn:
        """Raise InvalidConfig."""
        raise InvalidConfig(f"{self.where} is {self.value!r}, expected {expected}")


TomlReader = Callable[[TomlValue], Any]


class TomlTable:
    """A table of the file, whose keys are taken from it; those that are left are unknown."""

    def __init__(self, text: str, file: str, path: tuple[str, ...], given: object) -> None:
        self._text = text
        self._file = file
        self._path = path
        if not isinstance(given, dict):
            self.whole(given).refuse("a table")
        self._given: dict[str, Any] = dict(given)
        self._known: list[str] = []

    def where(self, *keys: str) -> str:
        """Return what an error about a key begins with."""
        path = (*self._path, *keys)
        line = line_of(self._text, path)
        place = f"{self._file}, line {line}" if line else self._file
        return f"{place}: {'.'.join(path)}" if path else place

    def whole(self, given: object) -> TomlValue:
        """Return what an error about the table itself is made from."""
        return TomlValue(given, self.where())

    def has(self, key: str) -> bool:
        """Return whether there is a key that has not been taken."""
        return key in self._given

    def take(self, key: str, read: TomlReader, default: Any) -> Any:
        """Return the value of `key` as `read` makes it, or `default` if there is none."""
        self._known.append(key)
        if key not in self._given:
            return default
        return read(TomlValue(self._given.pop(key), self.where(key)))

    def table(self, key: str) -> "TomlTable | None":
        """Return the table at `key`, None if there is none."""
        self._known.append(key)
        if key not in self._given:
            return None
        return TomlTable(self._text, self._file, (*self._path, key), self._given.pop(key))

    def each(self, key: str, read: TomlReader) -> dict[str, Any]:
        """Return a table whose keys may be any, with its values as `read` makes them."""
        if (inner := self.table(key)) is None:
            return {}
        return {name: inner.take(name, read, None) for name in list(inner._given)}

    def rest(self) -> dict[str, Any]:
        """Return all keys that are left, which are taken with that."""
        rest, self._given = self._given, {}
        return rest

    def end(self) -> None:
        """Raise InvalidConfig if a key is left."""
        for key in self._given:
            raise InvalidConfig(f"{self.where(key)} is not known{nearest(key, self._known)}")


def line_of(text: str, path: tuple[str, ...]) -> int:
    """Return the number of the line that gives the key at `path`, or what it is part of; else 0."""
    best, found = 0, 0
    for number, known in _keys(text):
        # The longest that fits: a key of an inline table is on the line of the table.
        if len(known) > best and path[: len(known)] == known:
            best, found = len(known), number
    return found or next((n for n, known in _keys(text) if known[: len(path)] == path), 0)


def _keys(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield each line that begins a table or gives a value, and its path."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _path(header[1])
            yield number, table
        elif key := _KEY.match(line):
            yield number, (*table, *_path(key[1]))


def _path(dotted: str) -> tuple[str, ...]:
    """Return the parts of a dotted key, () for what is none."""
    try:
        # The library's own rules for quotes and dots.
        inner = tomllib.loads(f"{dotted} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    path = []
    while isinstance(inner, dict):
        [(name, inner)] = inner.items()
        path.append(name)
    return tuple(path)


def read_spec_file(path: Path) -> DeploymentSpec:
    """Return what a file says. Raises InvalidConfig, also where the file cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidConfig(f"{path}: cannot be read: {reason}") from error
    return read_spec(text, str(path), path.absolute().parent)


def read_spec(text: str, file: str, folder: Path) -> DeploymentSpec:
    """Return what `text` says; relative paths of models begin at `folder`. Raises InvalidConfig."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # Python's errors have line and column in their text only, until 3.14.
        found = re.search(r"^(.*) \(at line (\d+), column (\d+)\)$", str(error))
        place = f"{file}, line {found[2]}, column {found[3]}" if found else file
        raise InvalidConfig(f"{place}: {found[1] if found else error}") from error
    whole = TomlTable(text, file, (), document)
    name = whole.take("name", _name, DEFAULT_NAME)
    groups = whole.table("groups")
    whole.end()
    if groups is None or not (names := list(groups.rest())):
        msg = f"{file}: there is no group; write [groups.NAME], and models = [PATH] below it"
        raise InvalidConfig(msg)
    tables = [TomlTable(text, file, ("groups", one), document["groups"][one]) for one in names]
    read = [_group(one, table, folder) for one, table in zip(names, tables, strict=True)]
    return DeploymentSpec(name=name, groups=tuple(read))


def _group(name: str, table: TomlTable, folder: Path) -> GroupSpec:
    _name(TomlValue(name, table.where()))
    if not table.has("models"):
        raise InvalidConfig(f"{table.where()} has no models; write models = [PATH]")
    options = table.table("options")
    arguments, stop_s = ((), 60.0) if options is None else _arguments(options)
    spec = GroupSpec(
        name=name,
        models=tuple(_absolute(one, folder) for one in table.take("models", _models, ())),
        arguments=arguments,
        environment=table.each("environment", _text),
        cpus=table.take("cpus", _amount, 1.0),
        gpus=table.take("gpus", _gpus, 0.0),
        memory_bytes=table.take("memory", _memory, 0),
        resources=table.each("resources", _amount),
        scaling=_scaling(table),
        surge=table.take("surge", _count, 1),
        ready_timeout_s=table.take("ready-timeout-secs", _seconds, 600.0),
        stop_timeout_s=stop_s,
    )
    table.end()
    return spec


def _scaling(table: TomlTable) -> ScalingRule:
    if (rule := table.table("autoscale")) is None:
        count = table.take("replicas", _count, 1)
        return ScalingRule(least=count, most=count)
    if table.has("replicas"):
        msg = f"{table.where('replicas')} and autoscale exclude each other: min and max are bounds"
        raise InvalidConfig(msg)
    default = ScalingRule()
    least = rule.take("min", _count, 1)
    read = ScalingRule(
        least=least,
        most=rule.take("max", _count, max(least, 1)),
        pending=rule.take("pending", _seconds, default.pending),
        cpu=rule.take("cpu", _seconds, default.cpu),
        latency_ms=rule.take("latency-ms", _amount, default.latency_ms),
        up_after_s=rule.take("up-after-secs", _amount, default.up_after_s),
        down_after_s=rule.take("down-after-secs", _amount, default.down_after_s),
        idle_s=rule.take("idle-secs", _amount, default.idle_s),
    )
    rule.end()
    if read.most < max(read.least, 1):
        msg = f"{rule.where('max')} is {read.most}, expected at least {max(read.least, 1)}"
        raise InvalidConfig(msg)
    return read


def _arguments(table: TomlTable) -> tuple[tuple[str, ...], float]:
    """Return the options as arguments of `inferd serve`, and how long its end may take."""
    known = options_of(ServerConfig)
    given: dict[str, object] = {}
    arguments: list[str] = []
    for key, value in table.rest().items():
        name = key.replace("-", "_")
        where = table.where(key)
        if name not in known:
            keys = [each.key for each in known.values()]
            raise InvalidConfig(f"{where} is no option of inferd serve{nearest(key, keys)}")
        if name in _OURS:
            msg = f"{where} is not for replicas, which have ports of their own and are asked there"
            raise InvalidConfig(msg)
        read = known[name].read_toml(value, where)
        given[name] = value
        for one in read if isinstance(read, tuple) else (read,):
            text = str(one).lower() if isinstance(one, bool) else str(one)
            arguments.append(f"{known[name].flag}={text}")
    try:
        # All together, as some exclude each other: better here than in a replica's log.
        config = read_options(given)
    except InvalidConfig as error:
        raise InvalidConfig(f"{table.where()}: {error.message}") from error
    return tuple(arguments), config.exit_timeout_secs + config.drain_delay + _MARGIN_S


def _absolute(model: str, folder: Path) -> str:
    # The file's folder, not that of whoever deploys: the same path has to be on each node.
    return model if "://" in model else str((folder / model).absolute())


def _name(given: TomlValue) -> str:
    if not isinstance(given.value, str) or not _NAME.fullmatch(given.value):
        given.refuse("a name of a-z, 0-9 and hyphens")
    return given.value


def _models(given: TomlValue) -> list[str]:
    models = [given.value] if isinstance(given.value, str) else given.value
    if not isinstance(models, list) or not models:
        given.refuse("a list of paths")
    if not all(isinstance(one, str) and one for one in models):
        given.refuse("a list of paths")
    return models


def _text(given: TomlValue) -> str:
    if not isinstance(given.value, str):
        given.refuse("a text")
    return given.value


def _amount(given: TomlValue) -> float:
    value = given.value
    # True is an int for Python.
    if isinstance(value, bool) or not isinstance(value, int | float):
        given.refuse("a number")
    if not (math.isfinite(value) and value >= 0):
        given.refuse("a number that is not negative")
    return float(value)


def _seconds(given: TomlValue) -> float:
    value = _amount(given)
    if not value:
        given.refuse("a number above 0")
    return value


def _gpus(given: TomlValue) -> float:
    value = _amount(given)
    # Ray's rule for GPUs: several of them cannot be shared in parts.
    if value > 1 and value != int(value):
        given.refuse("a part of one GPU, or a whole number")
    return value


def _count(given: TomlValue) -> int:
    value = given.value
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_REPLICAS:
        given.refuse(f"a whole number from 0 to {_MOST_REPLICAS}")
    return value


def _memory(given: TomlValue) -> int:
    value = given.value
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    found = _MEMORY.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        given.refuse('a number of bytes, or a text like "4GiB"')
    return int(float(found[1]) * _UNITS[found[2] or ""])
