"""GrpcEndpoint: what the HTTP/2 connections of one port share, and what their streams see of it."""

import asyncio
from collections.abc import Callable
from typing import Any

from inferd.http.coding import Coder
from inferd.http.endpoint import Endpoint
from inferd.http.failure import FailureLog
from inferd.http.grpc.exchange import StreamExchange
from inferd.http.grpc.handler import Method
from inferd.http.grpc.messages import PREFIX_BYTES, SMALL_BYTES
from inferd.http.h1.endpoint import HttpEndpoint
from inferd.http.h2.sender import H2Sender
from inferd.http.limits import GrpcLimits
from inferd.http.request_log import ClientLog, RequestLog, address_of
from inferd.http.turns import Turns
from inferd.memory.capacity import Capacity

READ_BYTES = 3 << 18
"""How much is read at once; more than ReceiveLowWater's highest mark."""

# As gRPC's options name them; 6 is zlib's own default.
LEVELS = {"none": 0, "low": 1, "medium": 6, "high": 9}
"""zlib's levels by the names of compression levels."""


class GrpcEndpoint(Endpoint):
    """The connections of one port and the gRPC methods it offers, by path.

    Requests other than gRPC are answered as `rest` does, if there is one. `clock` is the time of
    the sweeps.
    """

    def __init__(  # noqa: PLR0913
        self,
        limits: GrpcLimits,
        methods: dict[bytes, Method],
        coder: Coder,
        failures: FailureLog,
        rest: HttpEndpoint | None,
        capacity: Capacity,
        turns: Turns,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(capacity, turns, clock())
        self.limits = limits
        self.methods = methods
        self.coder = coder
        self.failures = failures
        self.rest = rest
        self.clock = clock
        self.open_count = 0  # connections, except lingering ones
        # A message larger than could ever be in memory is refused by its declared length.
        most_bytes = max(capacity.max_bytes, SMALL_BYTES)
        self.max_message_bytes = int(min(limits.max_message_bytes, most_bytes))
        # All connections read into it: each read is consumed before the next one.
        self.scratch = memoryview(bytearray(READ_BYTES))


class Carrier:
    """One connection, as its streams see it.

    `flush` has what `sender` puts out written soon; `take_turn_soon` gives the connection a turn.
    Its calls leave lines in `log`, if there is one.
    """

    def __init__(
        self,
        endpoint: GrpcEndpoint,
        sender: H2Sender,
        flush: Callable[[], None],
        take_turn_soon: Callable[[], None],
        log: RequestLog | None,
    ) -> None:
        limits = endpoint.limits
        self.endpoint = endpoint
        self.sender = sender
        self.flush = flush
        self._take_turn_soon = take_turn_soon
        self.loop = asyncio.get_running_loop()
        self.peer = ""
        self.client: ClientLog | None = None
        self._log = log
        self.level = LEVELS[limits.compression_level]
        self.small_bytes = min(SMALL_BYTES, endpoint.max_message_bytes)
        # Answers up to this size are sent in one piece; none are if they might be compressed.
        self.small_answer_bytes = min(SMALL_BYTES - PREFIX_BYTES, limits.max_send_bytes)
        if self.level:
            self.small_answer_bytes = -1
        self.hurried: list[
            StreamExchange
        ] = []  # streams with a deadline that were opened in this turn
        self.resumed: list[StreamExchange] = []  # streams that go on in the next turn

    def begin(self, name: Any) -> None:
        """Note the peer's name, as its socket has it."""
        self.peer = _peer(name)
        if self._log is not None:
            self.client = self._log.client(address_of(name), "gRPC")

    def go_on_soon(self, exchange: StreamExchange) -> None:
        """Have `exchange` go on in the next turn."""
        self.resumed.append(exchange)
        if len(self.resumed) == 1:
            self._take_turn_soon()


def _peer(name: object) -> str:
    """Return a peer's address in gRPC's notation."""
    # A Unix socket's name is a path, or nothing.
    if not isinstance(name, tuple):
        return "unix:"
    host, port = name[:2]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
