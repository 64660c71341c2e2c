"""Reads payload logs: each logged request, with the answers that it had."""

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from inferd.errors import InvalidConfig
from inferd.observe.payloads.event import REQUEST, RESPONSE
from inferd.replay.files import LogFile, RawEvent, open_log


class LoggedBody(NamedTuple):
    """A body of V2 over REST; `json_size` is None if all of it is JSON. `is_cut`: not whole."""

    data: bytes
    json_size: int | None
    is_cut: bool


class LoggedRequest(NamedTuple):
    """A request, where it is in the log, when it came (a time.time, or 0.0), and its answers."""

    where: str
    seconds: float
    id: str
    model: str
    version: str
    body: LoggedBody
    answers: list[LoggedBody]


class EventError(Exception):
    """An entry of a log is no event; the text says which, and why."""


class PayloadReader:
    """The events in the files `paths`, oldest first.

    Only where they are is kept, so that a log may be larger than the memory. `faults` says which
    entries are no events. Raises InvalidConfig for a file that cannot be read.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.faults: list[str] = []
        self._requests: list[tuple[str, _Place]] = []
        self._answers: dict[str, list[_Place]] = {}
        for path in paths:
            if path.exists() and not (path.is_file() or path.is_dir()):
                # Where requests and answers are is looked up first, and then they are read.
                msg = (
                    f"{path} is a pipe or a device, which cannot be read twice: write it to a file"
                )
                raise InvalidConfig(msg)
            try:
                self._look_through(path)
            except OSError as error:
                reason = error.strerror or str(error)
                raise InvalidConfig(f"cannot read {path}: {reason}") from error

    def __len__(self) -> int:
        """Return how many requests there are."""
        return len(self._requests)

    def _look_through(self, path: Path) -> None:
        with closing(open_log(path)) as file:
            for number, (at, raw) in enumerate(file.events(), 1):
                place = _Place(path, number, at)
                try:
                    event = _event(raw, place)
                except EventError as error:
                    # Noted, and not the end: the last line of a log that
                    # was cut off is half of one.
                    self.faults.append(str(error))
                    continue
                if event["type"] == REQUEST:
                    self._requests.append((event["id"], place))
                elif event["type"] == RESPONSE:
                    # By the id, as an answer may be logged many lines, or files, after
                    # its request; a stream has several.
                    self._answers.setdefault(event["id"], []).append(place)

    def requests(self) -> Iterator[LoggedRequest]:
        """Yield the requests in their order, each with its answers."""
        files: dict[Path, LogFile] = {}
        try:
            for id, place in self._requests:
                event = _read(files, place)
                answers = [_read(files, one) for one in self._answers.get(id, ())]
                yield LoggedRequest(
                    str(place),
                    _seconds(event),
                    id,
                    event.get("modelname") or "",
                    event.get("modelversion") or "",
                    _body(event),
                    [_body(one) for one in answers],
                )
        finally:
            for file in files.values():
                file.close()


class _Place(NamedTuple):
    """Where an event is: the `number` of its line or row for people, `at` for its LogFile."""

    path: Path
    number: int
    at: int

    def __str__(self) -> str:
        return f"{self.path}:{self.number}"


def _read(files: dict[Path, LogFile], place: _Place) -> dict[str, Any]:
    # Left open: answers of a request often lie in the next file of a rotated log.
    if place.path not in files:
        files[place.path] = open_log(place.path)
    return _event(files[place.path].event(place.at), place)


def _event(raw: RawEvent, place: _Place) -> dict[str, Any]:
    """Return what is a line of JSON, or the row of a table. Raises EventError."""
    try:
        event = json.loads(raw) if isinstance(raw, bytes) else raw
    except (ValueError, RecursionError) as error:
        raise EventError(f"{place}: this is no line of JSON, {error}") from None
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        raise EventError(f"{place}: this is no event of a payload log, it has no type")
    if not isinstance(event.get("id"), str):
        raise EventError(f"{place}: the event has no id")
    for name in ("modelname", "modelversion"):
        # Nothing of either is the same as no such member.
        if not _is_name(event.get(name) or ""):
            raise EventError(f"{place}: {name} of the event is no text that UTF-8 has")
    try:
        # Read here, so that a fault is told by its place before anything is sent.
        _body(event)
    except (ValueError, TypeError, binascii.Error) as error:
        raise EventError(f"{place}: the data of the event cannot be read, {error}") from None
    return event


def _is_name(value: object) -> bool:
    # JSON may escape half of a character.
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


def _seconds(event: dict[str, Any]) -> float:
    try:
        return datetime.fromisoformat(event["time"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return 0.0


def _body(event: dict[str, Any]) -> LoggedBody:
    if "data_base64" in event:
        data = base64.b64decode(event["data_base64"], validate=True)
    elif isinstance(event.get("data"), bytes):  # of a table
        data = event["data"]
    else:
        # JSON bodies are logged as JSON, so that people can read them; only their spaces are lost.
        data = json.dumps(event.get("data"), ensure_ascii=False).encode()
    size = event.get("inferenceheadercontentlength")
    # CloudEvents' extension attributes are texts in some encodings, booleans in others.
    is_cut = str(event.get("truncated", "false")).lower() == "true"
    return LoggedBody(data, None if size is None else int(size), is_cut)
