"""An event loop whose time passes only while everybody waits, and instances that run in that time.

What takes seconds takes none, and what is due at a time happens at that very nanosecond.
"""

import asyncio
import selectors

from inferd.core.interfaces import Opened
from inferd.core.request import InferResponse
from inferd.errors import InferdError
from inferd.schedulers.execution.execution import Execution

MS = 1_000_000
PATIENCE_S = 30


class _Selector(selectors.DefaultSelector):
    """Lets time pass instead of waiting."""

    def __init__(self):
        super().__init__()
        self.now_ns = MS
        self.check = None

    def select(self, timeout=None):
        events = super().select(0)
        if not events and timeout is None:  # for a thread, whose time is real
            events = super().select(PATIENCE_S)
            assert events, "everybody waits for ever"
        if not events and timeout:
            self._check()
            self.now_ns += max(1, round(timeout * 1e9))
        return events

    def _check(self):
        check, self.check = self.check, None  # once it has failed, the tasks are still to be ended
        if check is not None:
            check()
            self.check = check


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Time stands still while something is ready to run."""

    def __init__(self):
        self._selector_of_time = _Selector()
        super().__init__(self._selector_of_time)

    def time(self):
        return self._selector_of_time.now_ns / 1e9

    def now_ns(self):
        return self._selector_of_time.now_ns

    def call_exception_handler(self, context):
        if "handle" in context:
            raise context["exception"]  # of a callback, which nobody else would see
        super().call_exception_handler(context)

    def check_before_time_passes(self, check):
        """Call `check` whenever all has been done that can be done at a time."""
        self._selector_of_time.check = check


def simulate(serve):
    """Run the coroutine function `serve` in simulated time."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(serve())


async def passes(milliseconds):
    """Let so much time pass."""
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(milliseconds / 1e3, over.set)
    await over.wait()


def now_ms():
    return round(asyncio.get_running_loop().now_ns() / MS - 1, 6)


class SimulatedTimer:
    """See PreciseTimer."""

    def __init__(self, wake):
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._handles = []
        self.clock = self._loop.now_ns

    def set(self, due_ns):
        self._handles.append(self._loop.call_at(due_ns / 1e9, self._wake))

    def set_soon(self):
        self._handles.append(self._loop.call_soon(self._wake))

    def close(self):
        for handle in self._handles:
            handle.cancel()


class SimulatedExecution(Execution):
    """See Execution. A batch takes `takes_ms(requests)`; with `is_quick` it runs on the loop.

    `started` holds (when, ids) of each batch, `cancelled` ids. An answer has its request's
    id; `outcome`, if set, makes another outcome of the requests. With `tells_little` the backend
    does not say when the framework had done its work. `cpu_share` of the time is CPU time.
    """

    def __init__(self, count=1, takes_ms=10, *, is_quick=False):
        super().__init__("m", [Opened(None, None)] * count, may_run_inline=True)
        self.takes_ms = takes_ms if callable(takes_ms) else lambda _requests: takes_ms
        self.is_quick = is_quick
        self.outcome = None
        self.tells_little = False
        self.cpu_share = 0.0
        self.running = 0
        self.started = []
        self.uncounted = []
        self.cancelled = []
        self.rounds = []
        self.is_closed = False

    @property
    def has_room(self):
        return self.running < self.instance_count

    def run_now(self, requests):
        if not self.is_quick:
            return None
        return self._outcome_of(requests)

    def begin(self, requests, finish, wanted=None, *, is_counted=True):
        if is_counted:
            self.start(requests, finish, wanted)
        else:
            self._start_uncounted(requests, finish)

    def start(self, requests, finish, wanted=None):
        assert self.running < self.instance_count, "more run than there are instances"
        self.running += 1
        outcome, took_ms = self._outcome_of(requests, raises=False), self.takes_ms(requests)
        loop = asyncio.get_running_loop()
        requests[0].started_ns = loop.now_ns()
        requests[0].ended_ns = loop.now_ns() + round(took_ms * MS)
        if not self.tells_little:
            requests[0].computed_ns = requests[0].ended_ns
        requests[0].cpu_ns = round(self.cpu_share * took_ms * MS)
        loop.call_later(took_ms / 1e3, self._finish, finish, outcome)

    def _start_uncounted(self, requests, finish):
        """Run them when an instance is free, before what may be started after that."""
        if self.running < self.instance_count:
            started = self.started
            self.started = self.uncounted
            self.start(requests, finish)
            self.started = started
        else:
            asyncio.get_running_loop().call_later(1e-4, self._start_uncounted, requests, finish)

    def cancel(self, request):
        self.cancelled.append(request.id)

    async def stream(self, request, policy=None):
        """Answer once for each letter of the request's id, each time it takes so long."""
        self.running += 1
        assert self.running <= self.instance_count
        self.started.append((now_ms(), [request.id]))
        loop = asyncio.get_running_loop()
        request.started_ns = loop.now_ns()
        if self.has_room and self.on_room is not None:
            self.on_room()
        try:
            for letter in request.id:
                await passes(self.takes_ms([request]))
                if self.outcome is not None:
                    yield self.outcome(letter, request)
                else:
                    yield InferResponse("m", "1", letter, final=False)
        finally:
            request.ended_ns = loop.now_ns()
            self.running -= 1

    def count_round(self, request, *, failed):
        self.rounds.append((request.id, failed))

    def grow(self, instance):
        self._instances.instance_count += 1

    def shrink(self, kind=None):
        self._instances.instance_count -= self.instance_count > 1

    def beside(self, instance):
        """Another one, which a test hands in as `instance`."""
        return instance

    async def close(self, timeout_s):
        self.is_closed = True
        self.close_timeout_s = timeout_s

    def batches(self):
        """The ids of each batch."""
        return ["".join(ids) for _, ids in self.started]

    def _outcome_of(self, requests, *, raises=True):
        self.started.append((now_ms(), [request.id for request in requests]))
        outcome = [InferResponse("m", "1", request.id) for request in requests]
        if self.outcome is not None:
            outcome = self.outcome(requests)
        if raises and isinstance(outcome, InferdError):
            raise outcome
        return outcome

    def _finish(self, finish, outcome):
        self.running -= 1
        finish(outcome)
