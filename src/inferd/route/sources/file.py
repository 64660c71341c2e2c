"""The places written in a file, which is read again when it changes."""

import asyncio
import json
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

from inferd.config.names import is_model_name
from inferd.errors import InvalidConfig
from inferd.route.place import Place, PlaceState, SourceFailed

LOOK_S = 0.5
"""The seconds between two looks at the file."""

_MAX_BYTES = 16 << 20
_KEYS = ("name", "host", "http_port", "grpc_port", "models", "state")


class FileSource:
    """Follows a file of places, TOML or JSON (.json); see docs/guide/scaling.md for what it says.

    The file may be replaced by another, or be rewritten: what cannot be read is not taken.
    """

    def __init__(self, path: Path, look_s: float = LOOK_S) -> None:
        self.name = f"the file {path}"
        self._path = path
        self._look_s = look_s

    def wake(self, name: str) -> None:
        """See Source; nothing sleeps here."""

    def read(self) -> tuple[Place, ...]:
        """Return the places that the file has now. Raises InvalidConfig."""
        return read_places(self._path)

    async def follow(self) -> AsyncIterator[tuple[Place, ...]]:
        """See Source."""
        last: tuple[Place, ...] | None = None
        while True:
            try:
                # In a thread: a file system of another machine may not answer.
                places = await asyncio.to_thread(self.read)
            except InvalidConfig as error:
                raise SourceFailed(error.message) from error
            if places != last:
                last = places
                yield places
            await asyncio.sleep(self._look_s)


def read_places(path: Path) -> tuple[Place, ...]:
    """Return the places in a file. Raises InvalidConfig, which names the file, place and key."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InvalidConfig(f"cannot read the places in {path}: {error.strerror}") from error
    if len(data) > _MAX_BYTES:
        raise InvalidConfig(f"{path} is larger than {_MAX_BYTES} bytes, so it is no file of places")
    try:
        text = data.decode()
        document: object = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:  # those of both readers, and of UTF-8
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise InvalidConfig(f"{path} is not valid {kind}: {error}") from error
    except RecursionError as error:
        raise InvalidConfig(f"{path} is nested too deeply") from error
    return places_in(document, str(path))


def places_in(document: object, where: str) -> tuple[Place, ...]:
    """Return the places in a document that was read from `where`. Raises InvalidConfig."""
    if not isinstance(document, dict) or set(document) - {"places"}:
        raise InvalidConfig(f"{where} has to say nothing but places: a list of [[places]]")
    entries = document.get("places", [])
    if not isinstance(entries, list):
        raise InvalidConfig(f"{where}: places is {_shown(entries)}, expected a list")
    places = tuple(
        _place(entry, f"{where}: place {number}") for number, entry in enumerate(entries, 1)
    )
    names = [place.name for place in places]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise InvalidConfig(f"{where}: two places are called '{name}'")
    return places


def _place(entry: object, where: str) -> Place:
    if not isinstance(entry, dict):
        raise InvalidConfig(f"{where} is {_shown(entry)}, expected {', '.join(_KEYS)}")
    if unknown := sorted(set(entry) - set(_KEYS)):
        msg = f"{where} has the unknown key {unknown[0]}; there are {', '.join(_KEYS)}"
        raise InvalidConfig(msg)
    host = _text(entry, "host", where)
    http_port = _port(entry, "http_port", where)
    return Place(
        name=_text(entry, "name", where) if "name" in entry else f"{host}:{http_port}",
        host=host,
        http_port=http_port,
        grpc_port=_port(entry, "grpc_port", where),
        models=_models(entry["models"], where) if "models" in entry else None,
        state=_state(entry.get("state", "ready"), where),
    )


def _text(entry: dict[str, object], key: str, where: str) -> str:
    value = entry.get(key)
    # Names are words in HAProxy's configuration.
    if not isinstance(value, str) or not value.isprintable() or not value or " " in value:
        raise InvalidConfig(f"{where}: {key} is {_shown(value)}, expected a text without spaces")
    return value


def _port(entry: dict[str, object], key: str, where: str) -> int:
    value = entry.get(key)
    # True is an int in Python.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 65536:
        raise InvalidConfig(f"{where}: {key} is {_shown(value)}, expected a port")
    return value


def _models(value: object, where: str) -> frozenset[str]:
    if not isinstance(value, list):
        raise InvalidConfig(f"{where}: models is {_shown(value)}, expected a list of names")
    for one in value:
        if not isinstance(one, str) or not is_model_name(one):
            raise InvalidConfig(f"{where}: models has {_shown(one)}, which is no name of a model")
    return frozenset(value)


def _state(value: object, where: str) -> PlaceState:
    for state in (PlaceState.READY, PlaceState.DRAINING):
        if value == state.value:
            return state
    raise InvalidConfig(f"{where}: state is {_shown(value)}, expected ready or draining")


def _shown(value: object) -> str:
    return "missing" if value is None else f"{value!r:.60}"
