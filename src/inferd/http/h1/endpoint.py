"""HttpEndpoint: what the HTTP/1.1 connections of one port share."""

import asyncio
from collections.abc import Callable

from inferd.http.endpoint import Endpoint
from inferd.http.h1.logged_routes import LoggedRoutes
from inferd.http.limits import HttpLimits
from inferd.http.request_log import RequestLog
from inferd.http.routes import Routes
from inferd.http.turns import Connection, Turns
from inferd.memory.capacity import Capacity

TakeOver = Callable[[asyncio.Transport, bytes], bool]


class HttpEndpoint(Endpoint):
    """The connections of one port, and the routes that answer their requests.

    Each request leaves a line in `log`, if there is one. `take_over`, if set, gets the transport
    and the first bytes of a connection that does not begin as HTTP/1.1 does; it returns True if the
    connection now speaks another protocol.
    """

    def __init__(
        self,
        limits: HttpLimits,
        routes: Routes,
        capacity: Capacity,
        turns: Turns,
        now: float,
        log: RequestLog | None = None,
    ) -> None:
        super().__init__(capacity, turns, now)
        self.limits = limits
        self.routes = routes
        self.take_over: TakeOver | None = None
        self._turned_away: set[Connection] = set()
        self.is_logged = log is not None
        self._log = log

    def admit(self, connection: Connection) -> bool:
        """Add a new connection; return False if there are as many as may be: turn it away then.

        Connections turned away linger for a while; they do not count against the limit.
        """
        # Those turned away, too, so that they are swept and cut.
        self.connections.add(connection)
        if len(self.connections) - len(self._turned_away) <= self.limits.max_connections:
            return True
        self._turned_away.add(connection)
        return False

    def forget(self, connection: Connection) -> None:
        """See Endpoint.forget."""
        self._turned_away.discard(connection)
        super().forget(connection)

    def is_taken_over(self, transport: asyncio.Transport, received: bytes) -> bool:
        """Offer a connection to `take_over`; return whether it now speaks another protocol."""
        return self.take_over is not None and self.take_over(transport, received)

    def routes_for(self, address: str, protocol: str) -> Routes:
        """Return the routes of a connection from `address` that speaks `protocol`."""
        if self._log is None:
            return self.routes
        return LoggedRoutes(self.routes, self._log.client(address, protocol))
