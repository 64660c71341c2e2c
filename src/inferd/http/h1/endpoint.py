"""HttpEndpoint: what the HTTP/1.1 connections of one port share."""

import msgspec
from mypy_extensions import mypyc_attr

from inferd.http.endpoint import Endpoint
from inferd.http.routes import Routes
from inferd.http.turns import Turns
from inferd.memory.capacity import Capacity


@mypyc_attr(allow_interpreted_subclasses=True)
class HttpLimits(msgspec.Struct, frozen=True):
    """The limits of the connections; sizes in bytes, times in seconds."""

    max_header_bytes: int
    max_body_bytes: int
    max_connections: int
    idle_timeout_s: float
    header_timeout_s: float
    body_timeout_s: float
    write_timeout_s: float


class HttpEndpoint(Endpoint):
    """The connections of one port, and the routes that answer their requests."""

    def __init__(
        self, limits: HttpLimits, routes: Routes, capacity: Capacity, turns: Turns, now: float
    ) -> None:
        super().__init__(capacity, turns, now)
        self.limits = limits
        self.routes = routes
        self.turned_away_count = 0
