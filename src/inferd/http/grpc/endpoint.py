"""GrpcEndpoint: what the HTTP/2 connections of one port share, and what their streams see of it."""

import asyncio
from collections.abc import Callable

from inferd.http.coder import Coder
from inferd.http.endpoint import Endpoint
from inferd.http.failure import FailureLog
from inferd.http.grpc.handler import Method
from inferd.http.grpc.messages import PREFIX_BYTES, SMALL_BYTES
from inferd.http.h1.endpoint import HttpEndpoint
from inferd.http.h2.stream import H2Stream
from inferd.http.limits import GrpcLimits
from inferd.http.turns import Turns
from inferd.memory.capacity import Capacity

READ_BYTES = 3 << 18
"""How much is read at once; more than ReceiveLowWater's highest mark."""

LEVELS = {"none": 0, "low": 1, "medium": 6, "high": 9}
"""zlib's levels by the names of compression levels."""


class GrpcEndpoint(Endpoint):
    """The connections of one port and the gRPC methods it offers, by path.

    Requests other than gRPC are answered as `rest` does, if there is one. `clock` is the time of
    the sweeps, one every `sweep_s`.
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
        sweep_s: float,
    ) -> None:
        super().__init__(capacity, turns, clock())
        self.limits = limits
        self.methods = methods
        self.coder = coder
        self.failures = failures
        self.rest = rest
        self.clock = clock
        self.sweep_s = sweep_s
        self.open_count = 0  # connections, except lingering ones
        # A message larger than could ever be in memory is refused by its declared length.
        most_bytes = max(capacity.max_bytes, SMALL_BYTES)
        self.max_message_bytes = int(min(limits.max_message_bytes, most_bytes))
        # All connections read into it: each read is consumed before the next one.
        self.scratch = memoryview(bytearray(READ_BYTES))


class Carrier:
    """One connection, as its streams see it.

    `flush` has pending output written soon; `take_turn_soon` gives the connection a turn.
    """

    def __init__(
        self,
        endpoint: GrpcEndpoint,
        flush: Callable[[], None],
        take_turn_soon: Callable[[], None],
    ) -> None:
        limits = endpoint.limits
        self.endpoint = endpoint
        self.flush = flush
        self._take_turn_soon = take_turn_soon
        self.loop = asyncio.get_running_loop()
        self.peer = ""
        self.level = LEVELS[limits.compression_level]
        self.small_bytes = min(SMALL_BYTES, endpoint.max_message_bytes)
        # Answers up to this size are sent in one piece; none are if they might be compressed.
        self.small_answer_bytes = min(SMALL_BYTES - PREFIX_BYTES, limits.max_send_bytes)
        if self.level:
            self.small_answer_bytes = -1
        self.hurried: list[H2Stream] = []  # streams with a deadline that were opened in this turn
        self.resumed: list[H2Stream] = []  # streams that go on in the next turn

    def go_on_soon(self, stream: H2Stream) -> None:
        """Have `stream` go on in the next turn."""
        self.resumed.append(stream)
        if len(self.resumed) == 1:
            self._take_turn_soon()
