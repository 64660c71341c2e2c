"""HttpEndpoint: what the HTTP/1.1 connections of one port share."""

from inferd.http.endpoint import Endpoint
from inferd.http.limits import HttpLimits
from inferd.http.routes import Routes
from inferd.http.turns import Turns
from inferd.memory.capacity import Capacity


class HttpEndpoint(Endpoint):
    """The connections of one port, and the routes that answer their requests."""

    def __init__(
        self, limits: HttpLimits, routes: Routes, capacity: Capacity, turns: Turns, now: float
    ) -> None:
        super().__init__(capacity, turns, now)
        self.limits = limits
        self.routes = routes
        self.turned_away_count = 0
