"""Feeds: what each reader of the dashboard hears of one subject."""

from collections.abc import Callable, Sequence, Set
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
            case "models":
                return _Models(board, self.shared)
            case "model":
                board.version_of(subject.model, subject.version)
                return _Model(board, subject)
            case "log":
                return _Lines(board, self.shared)
        return _Requests(board, self.shared)

    def shared(self, key: object, make: Callable[[], Event]) -> Event:
        """Return an event that several readers may hear, made once for each look."""
        event = self._made.get(key)
        if event is None:
            event = self._made[key] = make()
        return event


Shared = Callable[[object, Callable[[], Event]], Event]


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
        missed = board.history.between(before, board.tick_second)
        if not missed["time"]:
            return (event,)
        return (Event("rows", json_encoder.encode({"second": missed})), event)


class _Models:
    """First all rows, then those that have changed."""

    def __init__(self, board: FigureBoard, shared: Shared) -> None:
        self._board = board
        self._shared = shared
        self._seen: int | None = None

    def news(self) -> Sequence[Event]:
        """See Feed."""
        board, seen = self._board, self._seen
        if seen == board.number:
            return ()
        self._seen = board.number
        return (self._shared(("models", seen), lambda: _models(board, seen)),)


def _models(board: FigureBoard, seen: int | None) -> Event:
    after = seen or 0
    rows = [raw for number, raw in board.rows.values() if number > after]
    gone = [] if seen is None else [key for key, at in board.gone.items() if at > after]
    data = {"all": seen is None, "rows": rows, "gone": [f"{name}/{v}" for name, v in gone]}
    return Event("models", json_encoder.encode(data))


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


class _Lines:
    """The last lines, then new ones."""

    def __init__(self, board: FigureBoard, shared: Shared) -> None:
        self._board = board
        self._shared = shared
        self._seen: int | None = None

    def news(self) -> Sequence[Event]:
        """See Feed."""
        lines, seen = self._board.lines, self._seen
        if seen == lines.count:
            return ()
        self._seen = lines.count
        return (self._shared(("log", seen), lambda: self._event(seen)),)

    def _event(self, seen: int | None) -> Event:
        lines, dropped = self._board.lines.since(seen or 0)
        dropped = 0 if seen is None else dropped
        return Event("log", json_encoder.encode({"lines": lines, "dropped": dropped}))


class _Requests:
    """The slow and failed requests, then new ones."""

    def __init__(self, board: FigureBoard, shared: Shared) -> None:
        self._board = board
        self._shared = shared
        self._seen: int | None = None

    def news(self) -> Sequence[Event]:
        """See Feed."""
        requests, seen = self._board.requests, self._seen
        if seen == requests.count:
            return ()
        self._seen = requests.count
        return (self._shared(("requests", seen), lambda: self._event(seen)),)

    def _event(self, seen: int | None) -> Event:
        found, _ = self._board.requests.since(seen or 0)
        rows: list[Any] = found
        if seen is None:
            least = self._board.now_ms() - AGE_MS
            rows = [one for one in found if one.time >= least]
        return Event("requests", json_encoder.encode({"rows": rows, "all": seen is None}))
