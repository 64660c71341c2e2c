"""HttpEndpoint: what the HTTP/1.1 connections of one port share."""

from inferd.http.endpoint import Endpoint
from inferd.http.h1.logged_routes import LoggedRoutes
from inferd.http.limits import HttpLimits
from inferd.http.request_log import RequestLog
from inferd.http.routes import Routes
from inferd.http.turns import Turns
from inferd.memory.capacity import Capacity


class HttpEndpoint(Endpoint):
    """The connections of one port, and the routes that answer their requests.

    Each request leaves a line in `log`, if there is one.
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
        self.turned_away_count = 0
        self.is_logged = log is not None
        self._log = log

    def routes_for(self, address: str, protocol: str) -> Routes:
        """Return the routes of a connection from `address` that speaks `protocol`."""
        if self._log is None:
            return self.routes
        return LoggedRoutes(self.routes, self._log.client(address, protocol))
