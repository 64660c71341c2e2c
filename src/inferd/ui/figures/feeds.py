"""Feeds: what each reader of the dashboard hears of one subject."""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from inferd.errors import ModelNotFound
from inferd.ui.figures.board import FigureBoard, json_encoder
from inferd.ui.figures.notable import AGE_MS
from inferd.ui.topics import Event, Feed, Subject


class Figures:
    """See Topics: what readers hear of a `board`."""

    def __init__(self, board: FigureBoard) -> None:
        self._board = board
        self._made: dict[object, Event] = {}

    async def refresh(self, subjects: Set[Subject]) -> None:
        """See Topics."""
        versions = set()
        for subject in subjects:
            if subject.topic == "model":
                try:
                    version = self._board.version_of(subject.model, subject.version)
                except ModelNotFound:  # it has gone since
                    continue
                versions.add((subject.model, version))
        await self._board.look({subject.topic for subject in subjects}, versions)
        # What was shared is of the look before.
        self._made.clear()

    def feed(self, subject: Subject) -> Feed:
        """See Topics."""
        board = self._board
        match subject.topic:
            case "overview":
                return _Overview(board)
            case "model":
                board.version_of(subject.model, subject.version)
                return _Model(board, subject)
        return _Counted(self, board, subject.topic)

    def shared(self, key: object, make: Callable[[], Event]) -> Event:
        """Return an event that several readers may hear, made once for each look."""
        event = self._made.get(key)
        if event is None:
            event = self._made[key] = make()
        return event


class _Overview:
    """First the history, then what is new each second.

    Rows between two that it hears of, because a look was late or it took no more, come before the
    later one.
    """

    def __init__(self, board: FigureBoard) -> None:
        self._board = board
        self._seen: bytes | None = None
        self._second = 0

    def news(self) -> Sequence[Event]:
        """See Feed."""
        board, tick = self._board, self._board.tick
        # The same object: no other look has been taken.
        if tick is self._seen:
            return ()
        is_first, self._seen = self._seen is None, tick
        before, self._second = self._second, board.tick_second
        event = Event("tick", tick)
        if is_first:
            return (Event("history", board.columns()), event)
        missed = board.history.seconds.between(before, board.tick_second)
        if not missed["time"]:
            return (event,)
        return (Event("rows", json_encoder.encode({"second": missed})), event)


class _Model:
    """Everything about one version, whenever anything has changed."""

    def __init__(self, board: FigureBoard, subject: Subject) -> None:
        self._board = board
        self._subject = subject
        self._seen: bytes | None = None

    def news(self) -> Sequence[Event]:
        """See Feed."""
        subject = self._subject
        try:
            version = self._board.version_of(subject.model, subject.version)
        except ModelNotFound:
            data = json_encoder.encode(
                {"name": subject.model, "version": subject.version, "gone": True}
            )
        else:
            data = self._board.details.get((subject.model, version), b"")
        if not data or data == self._seen:
            return ()
        self._seen = data
        return (Event("model", data),)


class _Counted:
    """First all there is of a topic, then what is new: what has been seen is told by a number."""

    def __init__(self, figures: Figures, board: FigureBoard, topic: str) -> None:
        self._figures = figures
        self._board = board
        self._topic = topic
        self._seen: int | None = None

    def news(self) -> Sequence[Event]:
        """See Feed."""
        board, topic, seen = self._board, self._topic, self._seen
        count, data = _COUNTED[topic]
        if seen == (now := count(board)):
            return ()
        self._seen = now
        return (
            # The same for all readers who have seen as much.
            self._figures.shared(
                (topic, seen), lambda: Event(topic, json_encoder.encode(data(board, seen)))
            ),
        )


def _models(board: FigureBoard, seen: int | None) -> dict[str, Any]:
    """Return all rows, or those that have changed."""
    after = seen or 0
    rows = [raw for number, raw in board.rows.values() if number > after]
    gone = [] if seen is None else [key for key, at in board.gone.items() if at > after]
    return {"all": seen is None, "rows": rows, "gone": [f"{name}/{v}" for name, v in gone]}


def _lines(board: FigureBoard, seen: int | None) -> dict[str, Any]:
    lines, dropped = board.lines.since(seen or 0)
    return {"lines": lines, "dropped": 0 if seen is None else dropped}


def _requests(board: FigureBoard, seen: int | None) -> dict[str, Any]:
    """Return the slow and failed requests of the last time, or new ones."""
    rows, _ = board.requests.since(seen or 0)
    if seen is None:
        least = board.now_ms() - AGE_MS
        rows = [one for one in rows if one.time >= least]
    return {"rows": rows, "all": seen is None}


_Count = Callable[[FigureBoard], int]
_Data = Callable[[FigureBoard, int | None], dict[str, Any]]

_COUNTED: Mapping[str, tuple[_Count, _Data]] = {
    "models": (lambda board: board.number, _models),
    "log": (lambda board: board.lines.count, _lines),
    "requests": (lambda board: board.requests.count, _requests),
}
"""For each such topic, up to which number there is something, and what is new since another."""
