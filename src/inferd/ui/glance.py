"""Glance: the topic that needs no history, the state of this process as it is now."""

import time
from collections import Counter
from collections.abc import Sequence, Set

import orjson

import inferd
from inferd.core.metadata import ModelState, ServerState
from inferd.engine.engine import Engine
from inferd.errors import Unsupported
from inferd.ui.topics import Event, Feed, Subject

_STATES = {
    ServerState.INITIALIZING: "starting",
    ServerState.READY: "ready",
    ServerState.EXITING: "draining",
    ServerState.FAILED_TO_INITIALIZE: "not ready",
}


class Glance:
    """Topics: the overview of one `engine`, which is called `name`, and had its start at some time.

    `clock` is that of the wall.
    """

    def __init__(self, engine: Engine, server_id: str | None) -> None:
        self._engine = engine
        self._id = server_id
        self._started = _now_ms()
        self._event = Event("tick", b"{}")

    async def refresh(self, subjects: Set[Subject]) -> None:
        """See Topics."""
        del subjects
        counts = Counter(entry.state for entry in self._engine.index())
        failed = counts[ModelState.UNAVAILABLE]
        tick = {
            "time": _now_ms(),
            "server": {
                "name": "inferd",
                "version": inferd.__version__,
                "started": self._started,
                "state": _STATES[self._engine.state()],
                "id": self._id,
            },
            "models": {
                "ready": counts[ModelState.READY],
                "loading": counts[ModelState.LOADING],
                "failed": failed,
                "unloaded": counts[None],
            },
        }
        self._event = Event("tick", orjson.dumps(tick))

    def feed(self, subject: Subject) -> Feed:
        """See Topics."""
        if subject.topic != "overview":
            msg = f"there are no events of {subject.topic} yet"
            raise Unsupported(msg)
        return _Ticks(self)

    def event(self) -> Event:
        """Return the latest event."""
        return self._event


class _Ticks:
    """The latest event, once for each."""

    def __init__(self, glance: Glance) -> None:
        self._glance = glance
        self._seen: Event | None = None

    def news(self) -> Sequence[Event]:
        """See Feed."""
        event = self._glance.event()
        if event is self._seen:
            return ()
        self._seen = event
        return (event,)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
