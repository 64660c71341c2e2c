"""Endpoint: what the connections of one port share, and which there are."""

import asyncio

from inferd.compiled import mypyc_attr
from inferd.http.turns import Connection, Turns
from inferd.memory.capacity import Capacity


@mypyc_attr(allow_interpreted_subclasses=True)
class Endpoint:
    """The connections of one port, their turns, and the capacity their requests count in.

    `now` is the time of the last `sweep`.
    """

    def __init__(self, capacity: Capacity, turns: Turns, now: float) -> None:
        self.capacity = capacity
        self.turns = turns
        self.now = now
        self.connections: set[Connection] = set()
        self.is_draining = False
        self._all_gone = asyncio.Event()

    def forget(self, connection: Connection) -> None:
        """Remove a closed connection from `connections`."""
        self.connections.discard(connection)
        if not self.connections:
            self._all_gone.set()

    def sweep(self, now: float) -> None:
        """Have every connection check its timeouts."""
        self.now = now
        # Connections end while they are looked at.
        for connection in list(self.connections):
            connection.check_time(now)

    def drain(self) -> None:
        """Have every connection end softly, and those still to come: see Connection.drain."""
        self.is_draining = True
        for connection in list(self.connections):
            connection.drain()

    def cut(self) -> None:
        """End what is under way on all connections, and close them."""
        for connection in list(self.connections):
            connection.cut()

    def abort(self) -> None:
        """Abort all connections."""
        for connection in list(self.connections):
            connection.abort()

    async def wait_until_empty(self, timeout_s: float) -> bool:
        """Wait for all connections to close; return False if `timeout_s` passes first."""
        if not self.connections:
            return True
        self._all_gone.clear()
        try:
            await asyncio.wait_for(self._all_gone.wait(), timeout_s)
        except TimeoutError:
            return False
        return True
