"""Streams of events: one look at the server a second, for all who read.

Nobody asks the server anything while nobody reads. A reader that is slow skips looks: what is new
is put together only when the connection takes more, and nothing waits for it anywhere.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence, Set

from inferd.errors import Overloaded, Unavailable
from inferd.http.failure import FailureLog
from inferd.ui.topics import Event, Feed, Subject, Topics

# Each is a connection that stays; people who look are few.
MOST_STREAMS = 64
"""How many streams a process has at most."""

SILENT_S = 15.0
"""A stream without news for so long gets a comment, which proxies and browsers wait for."""

_LEAST_S = 0.9  # what has been looked at more recently is not looked at again
_AFTER_S = 0.05  # after a full second, so that what belongs to it has been counted
_LAST_LOOK_S = 0.5
# Lines that begin with a colon are comments (HTML Standard, section 9.2.6).
_COMMENT = b": \n\n"

log = logging.getLogger("inferd.ui")


async def until_next_second(
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Wait until a little after the next full second of the wall clock."""
    await sleep(1.0 - (clock() - _AFTER_S) % 1.0)


class Hub:
    """Looks at the server with `topics` while there are streams, after each `pause`."""

    def __init__(
        self,
        topics: Topics,
        pause: Callable[[], Awaitable[None]] = until_next_second,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        self.look_count = 0
        self.is_ended = False
        self._topics = topics
        self._pause = pause
        self._streams: set[EventStream] = set()
        self._looked: dict[Subject, float] = {}
        # Asking all processes takes a while, in which another reader may come.
        self._lock = asyncio.Lock()
        self._turn = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._failures = FailureLog(log)

    async def snapshot(self, subjects: Iterable[Subject]) -> bytes:
        """Return the first events of each subject. Raises as Topics does, and Unavailable."""
        return _text(await self._opened(dict.fromkeys(subjects)))

    async def open(self, subjects: Iterable[Subject]) -> tuple[bytes, "EventStream"]:
        """Return the first events of each subject, and the stream of those that follow.

        Raises Overloaded if there are too many streams, and as `snapshot` does.
        """
        unique = dict.fromkeys(subjects)  # in the order in which they are asked for
        # Before anything is asked of the server on behalf of who is refused.
        if len(self._streams) >= MOST_STREAMS:
            raise Overloaded(f"{MOST_STREAMS} streams of events are open already; try again later")
        stream = EventStream(self, frozenset(unique))
        self._streams.add(stream)  # it counts from now on
        try:
            stream.feeds = await self._opened(unique)
            first = stream.begin()
        except BaseException:
            self.forget(stream)
            raise
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look_on())
        return first, stream

    def forget(self, stream: "EventStream") -> None:
        """Note that a stream has ended; with the last one, looking ends."""
        self._streams.discard(stream)
        # Nobody looks, so nothing is asked of the server.
        if not self._streams and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def next_look(self, after: int) -> None:
        """Wait until there was another look than `after`, or the streams end."""
        while self.look_count == after and not self.is_ended:
            await self._turn.wait()

    async def drain(self) -> None:
        """End all streams, after a last look; there will be no others."""
        if self._streams:
            subjects = frozenset(one for stream in self._streams for one in stream.subjects)
            try:
                async with asyncio.timeout(_LAST_LOOK_S):
                    # The last state is worth a look, even if the one before was just now.
                    await self._refresh(subjects, at_once=True)
            except Exception as error:  # noqa: BLE001  the streams end all the same
                self.note(error)
        self.close()

    def close(self) -> None:
        """End all streams now; there will be no others."""
        self.is_ended = True
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        self._have_turn()

    def note(self, error: Exception) -> None:
        """Log `error`, which the streams survive."""
        self._failures.note("/ui/events", error)

    async def _opened(self, subjects: Collection[Subject]) -> list[Feed]:
        if self.is_ended:
            raise Unavailable("the server is shutting down")
        feeds = [self._topics.feed(subject) for subject in subjects]
        await self._refresh(frozenset(subjects))
        return feeds

    async def _refresh(self, subjects: Set[Subject], *, at_once: bool = False) -> None:
        # Topics are not asked twice at the same time; who comes meanwhile finds it done.
        async with self._lock:
            now = self.clock()
            recent = {one: at for one, at in self._looked.items() if now - at < _LEAST_S}
            due = subjects if at_once else frozenset(subjects - recent.keys())
            if due:
                await self._topics.refresh(due)
            self._looked = recent | dict.fromkeys(due, now)

    async def _look_on(self) -> None:
        while True:
            await self._pause()
            try:
                subjects = frozenset(one for stream in self._streams for one in stream.subjects)
                await self._refresh(subjects)
            except Exception as error:  # noqa: BLE001  the next look may go better
                self.note(error)
            self._have_turn()

    def _have_turn(self) -> None:
        self.look_count += 1
        # A new event for the next turn, so that nobody misses one by being late.
        turn, self._turn = self._turn, asyncio.Event()
        turn.set()


class EventStream:
    """The events for one reader after its first: Pieces of an answer."""

    filler = _COMMENT

    def __init__(self, hub: Hub, subjects: frozenset[Subject]) -> None:
        self.subjects = subjects
        self.feeds: Sequence[Feed] = ()
        self._hub = hub
        self._seen = hub.look_count
        self._said_at = hub.clock()
        self._is_last = False

    def begin(self) -> bytes:
        """Return the first events; later looks bring others."""
        self._seen = self._hub.look_count
        return _text(self.feeds)

    def __aiter__(self) -> "EventStream":
        """Return self."""
        return self

    async def __anext__(self) -> bytes:
        """Return what is new, once there is something. Raises StopAsyncIteration."""
        hub = self._hub
        while not self._is_last:
            await hub.next_look(self._seen)
            # Read after the wait, so that the news of the last look are still sent.
            self._seen, self._is_last = hub.look_count, hub.is_ended
            text = self._news()
            if not text and hub.clock() - self._said_at >= SILENT_S:
                text = _COMMENT
            if text:
                self._said_at = hub.clock()
                return text
        raise StopAsyncIteration

    def _news(self) -> bytes:
        try:
            return _text(self.feeds)
        except Exception as error:  # noqa: BLE001  reading a stream raises nothing
            self._hub.note(error)
            return b""

    async def aclose(self) -> None:
        """Give up the rest."""
        self._is_last = True
        self._hub.forget(self)


def _text(feeds: Iterable[Feed]) -> bytes:
    """Return what is new as server-sent events (HTML Standard, section 9.2)."""
    return b"".join(_encoded(event) for feed in feeds for event in feed.news())


def _encoded(event: Event) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.name.encode(), event.data)
