"""Peers: a link to each of the other processes of the server, as they come and go."""

import asyncio
from collections.abc import Collection
from contextlib import suppress

from inferd.aio.driver import fulfil
from inferd.aio.promise import Promise
from inferd.core.processes import Processes
from inferd.forward.origin_end import OriginEnd

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
"""Between attempts to connect to a process that is said to be ready."""


class Peers:
    """Links to the ready ones among `processes`. Used on one event loop.

    While this process is replaced there are two of its number. Each has a link to the other: the
    new one to its `predecessor`, as long as that keeps sequences; the old one by their number.
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._links: dict[int, OriginEnd] = {}
        self._retired: set[OriginEnd] = set()
        self._predecessor: OriginEnd | None = None
        self._connecting: dict[int, tuple[str, asyncio.Task[None]]] = {}
        # A promise for each who waits, and the processes of which any will do.
        self._waits: dict[Promise[None], Collection[int]] = {}
        self._is_closed = False
        self._has_clients = True
        processes.on_change.append(self._follow)

    def link(self, number: int) -> OriginEnd | None:
        """Return the link to process `number`, None if there is none at this moment."""
        return self._links.get(number)

    @property
    def predecessor(self) -> OriginEnd | None:
        """A link to the process whose place this one has taken, None if it is not needed."""
        link = self._predecessor
        return link if link is not None and not link.is_retired else None

    @property
    def are_two(self) -> bool:
        """Whether there may be another process of this one's number."""
        return self._predecessor is not None or self._processes.number in self._links

    async def wait(self, numbers: Collection[int], timeout_s: float) -> None:
        """Wait until there is a link to one of `numbers`, or the time is over."""
        # The first request may come before the first change is told.
        self._follow()
        loop = asyncio.get_running_loop()
        opened: Promise[None] = Promise(loop=loop)
        timer = loop.call_later(timeout_s, _end_wait, opened)
        self._waits[opened] = numbers
        try:
            if not self._is_closed:
                await opened
        finally:
            timer.cancel()
            del self._waits[opened]

    def say_last(self) -> None:
        """Tell the others, and those to come, that this process has no more clients."""
        self._has_clients = False
        for link in self._all():
            link.say_last()

    def close(self) -> None:
        """End all links; what is under way fails."""
        self._is_closed = True
        with suppress(ValueError):
            self._processes.on_change.remove(self._follow)
        for _, task in self._connecting.values():
            task.cancel()
        for link in self._all():
            link.close()
        self._predecessor = None
        self._connecting.clear()
        self._links.clear()
        self._retired.clear()
        for opened in list(self._waits):
            _end_wait(opened)

    def _all(self) -> list[OriginEnd]:
        last = [self._predecessor] if self._predecessor is not None else []
        # The predecessor as well: it waits for this process's last word.
        return [*self._links.values(), *self._retired, *last]

    def _follow(self) -> None:
        """Connect to the processes that are ready now, and let go of those that are not."""
        sockets = self._processes.sockets
        for number, link in list(self._links.items()):
            # Same number and path: the same process.
            if sockets.get(number) == link.path:
                continue
            del self._links[number]
            # The link of this number was to the process that this one replaces.
            if self._is_own(number, sockets.get(number)):
                self._predecessor = link
            else:
                self._retired.add(link)
                link.retire()
        for number, (path, task) in list(self._connecting.items()):
            if sockets.get(number) != path:
                del self._connecting[number]
                task.cancel()
        for number, path in sockets.items():
            if not self._is_own(number, path) and number not in self._links:
                self._connect(number, path)

    def _is_own(self, number: int, path: str | None) -> bool:
        """Tell whether the process of that number, at `path`, is this one."""
        # Before this process is told its path, its own number is never another's.
        return number == self._processes.number and self._processes.path in ("", path)

    def _connect(self, number: int, path: str, pause_s: float = 0.0) -> None:
        if number in self._connecting or self._is_closed:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # before the server runs: the first who waits connects
            return
        task = loop.create_task(self._connected(number, path, pause_s))
        self._connecting[number] = path, task

    async def _connected(self, number: int, path: str, pause_s: float) -> None:
        loop = asyncio.get_running_loop()
        # A fresh end for each connection: numbers of requests begin at 1 again.
        link = OriginEnd(number, path, self._gone)
        while not link.is_open:
            await asyncio.sleep(pause_s)
            # A process that is said to be ready may have ended since.
            with suppress(OSError):
                await loop.create_unix_connection(lambda: link.line, path)
            pause_s = min(max(FIRST_PAUSE_S, 2 * pause_s), LONGEST_PAUSE_S)
        del self._connecting[number]
        self._links[number] = link
        if not self._has_clients:
            link.say_last()
        for opened, numbers in list(self._waits.items()):
            if number in numbers:
                _end_wait(opened)

    def _gone(self, link: OriginEnd) -> None:
        self._retired.discard(link)
        if self._predecessor is link:
            self._predecessor = None
        if self._links.get(link.number) is link:
            del self._links[link.number]
            # It is still said to be ready: the link broke, not the process.
            if self._processes.sockets.get(link.number) == link.path:
                self._connect(link.number, link.path, FIRST_PAUSE_S)


def _end_wait(opened: Promise[None]) -> None:
    if not opened.done():
        fulfil(opened, None)
