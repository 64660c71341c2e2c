"""PointLoad: sends the requests of a point over connections, and records what comes of them.

With a concurrency, each connection sends its next request when it has its answer (a closed loop).
At a rate, requests are due at times that do not depend on answers (an open loop): one that finds no
free connection waits, and its latency counts from when it was due. So a slow server cannot slow
down the clock that it is measured by (coordinated omission).
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any

from inferd.aio.timer import PreciseTimer
from inferd.bench.arrivals import arrivals, part_of, recorded
from inferd.bench.generator.connection import LoadConnection, now_ns
from inferd.bench.generator.grpc import GrpcLoadConnection
from inferd.bench.generator.record import LoadRecord, usage
from inferd.bench.generator.rest import RestLoadConnection
from inferd.bench.plan import LEAST_SEQUENCE, MOST_SEQUENCES, LoadProgress, LoadSample, Plan, Point
from inferd.errors import InferdError, Unavailable

# A timer of the event loop is that exact at best on a busy machine.
LATE_NS = 1_000_000
CONNECT_S = 10.0
TICK_S = 0.2
GRACE_S = 1.0
LONGEST_GRACE_S = 10.0
"""How long the answers that are due are waited for, when a load was stopped or has ended."""
MOST_FAILURES = 20
"""How many requests in a row may fail, without one that is answered, before a point is given up."""


class PointLoad:
    """The load of one point. `tell` is called a few times a second."""

    def __init__(self, plan: Plan, point: Point, tell: Callable[[LoadProgress], object]) -> None:
        self._plan = plan
        self._point = point
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._record = LoadRecord()
        self._connections: list[LoadConnection] = []
        self._free: deque[LoadConnection] = deque()
        self._waiting: deque[int] = deque()  # when requests are due that wait for a connection
        self._opening = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._next_message = point.part
        # Recorded requests are sent at their own times, of which each process has a part.
        self._message_step = point.parts if point.offsets_s else 1
        # Sequence numbers that no run before has used: a server may still keep its sequences.
        self._next_sequence = now_ns() * 7919 + point.part
        self._failures = 0
        self._reason = ""
        self._is_ending = self._is_stopped = False
        self._end_ns = 0
        self._times: Any = None
        self._due = 0
        self._timer: PreciseTimer | None = None
        self._is_measured = not point.warmup_s
        self._context = _context(plan)

    async def run(self, at_ns: int) -> LoadSample:
        """Load the server from `at_ns`; return what was measured. Raises InferdError."""
        point = self._point
        measured_ns = at_ns + int(point.warmup_s * 1e9)
        self._end_ns = measured_ns + int(point.seconds * 1e9)
        try:
            await self._open_all()
            # All processes begin at the same moment of a clock they share.
            await asyncio.sleep(max(0, at_ns - now_ns()) / 1e9)
            if point.concurrency:
                for one in list(self._connections):
                    self._send(one, now_ns())
            else:
                self._begin_rate(at_ns)
            await self._wait_until(measured_ns)
            before, began_ns = usage(), measured_ns
            self._is_measured = True
            if self._is_ending or self._done.done():
                began_ns = at_ns
            else:
                self._record.forget_errors()  # those of the warm-up
            await self._wait_until(self._end_ns)
            after, ended_ns = usage(), min(self._end_ns, now_ns())
            self._is_ending = True
            await self._finish()
        finally:
            self._close()
        if self._reason and not self._record.answered_count:
            raise Unavailable(self._reason)
        return self._record.sample(began_ns, ended_ns, before, after)

    def stop(self) -> None:
        """End the point now: what was measured until now counts."""
        self._is_ending = self._is_stopped = True
        self._end_ns = min(self._end_ns, now_ns())
        self._settle()

    async def _open_all(self) -> None:
        # At a rate, connections are opened when requests wait for one.
        count = self._point.concurrency or min(4, self._point.connections)
        try:
            self._connections = list(
                await asyncio.gather(*(self._open(place) for place in range(count)))
            )
        except (OSError, InferdError) as error:
            raise Unavailable(_connect_text(self._plan, error)) from error
        self._free.extend(self._connections)

    async def _open(self, place: int) -> LoadConnection:
        address = self._plan.address
        kind = GrpcLoadConnection if address.is_grpc else RestLoadConnection
        async with asyncio.timeout(CONNECT_S):
            _, connection = await self._loop.create_connection(
                lambda: kind(self._plan, self._ended),
                address.host,
                address.port,
                ssl=self._context,
                # asyncio refuses a name without TLS.
                server_hostname=address.host if self._context else None,
            )
        connection.place = place
        return connection

    def _reopen(self, place: int) -> None:
        self._opening += 1
        task = self._loop.create_task(self._opened(place))
        # Tasks are held weakly by the event loop.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _opened(self, place: int) -> None:
        """Open a connection and use it; what cannot be opened is a request that failed."""
        try:
            connection = await self._open(place)
        except (OSError, InferdError) as error:
            self._fail(_connect_text(self._plan, error))
            if self._point.concurrency and not self._is_ending:
                # A server that refuses connections must not be asked in a tight loop.
                await asyncio.sleep(TICK_S)
                self._reopen(place)
            return
        finally:
            self._opening -= 1
        self._connections.append(connection)
        if self._point.concurrency:
            self._send(connection, now_ns())
        else:
            self._put(connection)

    def _send(self, connection: LoadConnection, due_ns: int) -> None:
        is_over = self._is_ending or due_ns >= self._end_ns
        if self._point.concurrency and is_over and not connection.step:
            self._settle()  # a sequence that has begun is sent to its end, not to be left there
            return
        connection.due_ns = due_ns
        connection.answers = 0
        connection.send(self._content(connection))

    def _content(self, connection: LoadConnection) -> bytes:
        """Return the next request."""
        plan = self._plan
        length = plan.sequence_length
        if not length:
            message = plan.messages[self._next_message % len(plan.messages)]
            self._next_message += self._message_step
            return message.before
        if not connection.step:
            self._next_sequence += self._point.parts
            # Within ten digits and five bytes of a varint: the message keeps its length.
            connection.number = LEAST_SEQUENCE + self._next_sequence % (MOST_SEQUENCES // 2)
        kind = 0 if not connection.step else 2 if connection.step == length - 1 else 1
        if length == 1:
            kind = 3
        connection.step = (connection.step + 1) % length
        return plan.messages[kind].numbered(connection.number, is_varint=plan.address.is_grpc)

    def _ended(self, connection: LoadConnection, error: str) -> None:
        """Take the end of a request; send the next one."""
        ended_ns = now_ns()
        if error:
            # The next request begins another sequence: the state of this one is not known.
            connection.step = 0
            self._fail(error)
        else:
            self._failures = 0
            self._record.answered(
                connection.due_ns, ended_ns, connection.first_ns, connection.answers
            )
        if connection.is_lost:
            if connection in self._connections:
                self._connections.remove(connection)
            if self._point.concurrency and not self._is_ending:
                self._reopen(connection.place)
            elif not self._point.concurrency:
                self._use_more()
            self._settle()
        elif self._point.concurrency:
            self._send(connection, ended_ns)
        else:
            self._put(connection)

    def _fail(self, error: str) -> None:
        self._record.failed(error)
        self._failures += 1
        # Nothing was ever answered: the rest of the time would tell no more.
        if self._failures >= MOST_FAILURES and not self._record.answered_count:
            self._reason = error
            self.stop()

    def _begin_rate(self, at_ns: int) -> None:
        point = self._point
        seconds = point.warmup_s + point.seconds
        if point.offsets_s:
            times = recorded(point.offsets_s, point.speed)
        else:
            times = arrivals(point.arrivals, point.rate, seconds, point.seed)
        self._times = (part_of(times, point.part, point.parts) + at_ns).tolist()
        self._timer = PreciseTimer(self._send_due)
        if self._times:
            self._timer.set(self._times[0])

    def _send_due(self) -> None:
        """Send what is due by now."""
        times, now = self._times, now_ns()
        # All that is due: a loop that was late has several to send.
        while self._due < len(times) and times[self._due] <= now and not self._is_ending:
            due_ns = times[self._due]
            self._due += 1
            if self._is_measured:
                self._record.due_count += 1
                self._record.late_count += now - due_ns > LATE_NS
            connection = self._take()
            if connection is None:
                # Its latency counts from when it was due, so the wait is in it.
                self._waiting.append(due_ns)
                self._record.waiting_count += self._is_measured
                self._use_more()
            else:
                self._send(connection, due_ns)
                # Sending takes time, in which more may be due.
                now = now_ns()
        if self._due < len(times) and self._timer is not None and not self._is_ending:
            self._timer.set(times[self._due])

    def _take(self) -> LoadConnection | None:
        """Return a free connection: the one used last, whose memory is warm."""
        while self._free:
            # The last one first: so as few connections are used as the load needs.
            connection = self._free.pop()
            if not connection.is_lost:
                return connection
            if connection in self._connections:
                self._connections.remove(connection)
        return None

    def _put(self, connection: LoadConnection) -> None:
        if self._waiting and not connection.is_lost:
            self._send(connection, self._waiting.popleft())
        else:
            self._free.append(connection)
            self._settle()

    def _use_more(self) -> None:
        open_count = len(self._connections) + self._opening
        if open_count < self._point.connections and self._opening < len(self._waiting):
            self._reopen(open_count)

    async def _wait_until(self, at_ns: int) -> None:
        """Wait until a time, or the end; say meanwhile how it goes."""
        while not self._is_ending and (left_ns := at_ns - now_ns()) > 0:
            await asyncio.wait([self._done], timeout=min(TICK_S, left_ns / 1e9))
            self._report()

    def _report(self) -> None:
        record = self._record
        self._tell(LoadProgress(record.answered_count, record.error_count, record.recent))
        record.recent = []
        limit_ns = now_ns() - int(self._plan.timeout_s * 1e9)
        # `fail` changes it.
        for one in list(self._connections):
            if one.is_busy and one.due_ns < limit_ns:
                one.fail(f"no answer within {self._plan.timeout_s:g} s")

    async def _finish(self) -> None:
        """Wait for answers that are due."""
        self._settle()
        try:
            async with asyncio.timeout(GRACE_S if self._is_stopped else LONGEST_GRACE_S):
                await self._done
        except TimeoutError:
            for one in self._connections:
                if one.is_busy:
                    self._record.failed("no answer in time")
                    one.is_busy = False
        # Requests that were due and never sent are failures of the server at this rate.
        for _ in self._waiting:
            self._record.failed("not sent: the server did not keep up")

    def _settle(self) -> None:
        """Note that all is done, if it is."""
        if not self._is_ending and now_ns() < self._end_ns:
            return
        if not any(one.is_busy for one in self._connections) and not self._done.done():
            self._done.set_result(None)

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.close()
        for task in list(self._tasks):
            task.cancel()
        for one in self._connections:
            # First: closing must not count as a failure.
            one.is_busy = False
            one.close()


def _context(plan: Plan) -> ssl.SSLContext | None:
    address = plan.address
    if not address.is_tls:
        return None
    context = ssl.create_default_context(cafile=address.ca_file or None)
    context.set_alpn_protocols(["h2"] if address.is_grpc else ["http/1.1"])
    if address.cert_file:
        context.load_cert_chain(address.cert_file, address.key_file or None)
    return context


def _connect_text(plan: Plan, error: BaseException) -> str:
    address = plan.address
    where = f"{address.host}:{address.port}"
    if isinstance(error, TimeoutError):
        return f"no connection to {where} within {CONNECT_S:.0f} s"
    if isinstance(error, ConnectionRefusedError):
        return f"no connection to {where}: nobody listens there"
    return f"no connection to {where}: {getattr(error, 'strerror', None) or error}"
