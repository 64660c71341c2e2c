"""What schedulers share that let requests wait: how a caller waits, leaves, and how it all ends.

A decoupled model answers any number of times, as fast as its caller takes the answers. So the
scheduler does not run it: it tells a caller when an instance is free, the caller takes the answers
from there itself, one request on an instance at a time, and gives the instance back.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from inferd.core.request import InferRequest, InferResponse
from inferd.schedulers.alarm import Timer
from inferd.schedulers.batch import BatchPlan
from inferd.schedulers.pace import FixedPace, Pace
from inferd.schedulers.queue import Waiting


class QueueingScheduler:
    """Lets callers wait for what `_advance` starts, or, with `gives_turns`, for their turn."""

    def __init__(
        self,
        pace: Pace,
        plan: BatchPlan,
        alarm: Callable[[Callable[[], None]], Timer],
        *,
        gives_turns: bool,
    ) -> None:
        self._pace = pace
        self._plan = plan
        self._gives_turns = gives_turns
        self._alarm = alarm(self._advance)
        self._clock = self._alarm.clock
        self._quiet: asyncio.Future[None] | None = None  # closing; done when nothing runs

    async def run(self, request: InferRequest) -> InferResponse:
        """See Scheduler.run."""
        waiting = self._enqueue(request)
        try:
            assert waiting.done is not None
            answer = await waiting.done
            assert isinstance(answer, InferResponse)
            return answer
        finally:
            self._leave(waiting)

    def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """See Scheduler.stream; there is one answer unless the model is decoupled."""
        return self._all(request) if self._gives_turns else self._one(request)

    async def close(self, timeout_s: float) -> None:
        """See Scheduler.close. Those who still wait when the time is over are refused."""
        give_up_ns = self._clock() + int(timeout_s * 1e9)
        self._quiet = asyncio.get_running_loop().create_future()
        most = 1 if self._gives_turns else self._plan.max_batch_size
        self._pace = FixedPace(most, (), 0)  # nobody else will come
        self._advance()
        await asyncio.wait((self._quiet,), timeout=timeout_s)
        self._refuse_waiting()
        self._alarm.close()
        await self._close_executions(max(0, give_up_ns - self._clock()) / 1e9)

    async def _one(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        yield await self.run(request)

    async def _all(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        waiting = self._enqueue(request)
        done = waiting.done
        assert done is not None
        try:
            execution = await done
            assert not isinstance(execution, InferResponse)
            async with aclosing(execution.stream(request)) as answers:
                async for answer in answers:
                    yield self._noted(waiting, answer)
        finally:
            self._leave(waiting)
            if not done.cancelled() and done.exception() is None:
                self._end_turn(waiting)

    def _leave(self, waiting: Waiting) -> None:
        """Forget a request whose caller waits no longer: it has its answer, or was cancelled."""
        done, waiting.done = waiting.done, None  # it may hold an error, whose traceback leads here
        if done is not None and done.done() and not done.cancelled():
            done.exception()  # seen, though its caller was cancelled in the same moment
            return
        self._give_up(waiting)

    # --- what each scheduler does in its own way ---

    def _advance(self) -> None:
        """Do what can be done now, and set the alarm for what comes next."""
        raise NotImplementedError

    def _enqueue(self, request: InferRequest) -> Waiting:
        """Let `request` wait, or begin at once. Raises InferdError."""
        raise NotImplementedError

    def _give_up(self, waiting: Waiting) -> None:
        """Note that nobody waits for the answer of a request that waits or runs."""
        raise NotImplementedError

    def _noted(self, waiting: Waiting, answer: InferResponse) -> InferResponse:
        """Return an answer of a decoupled model, once what matters has been taken from it."""
        del waiting
        return answer

    def _end_turn(self, waiting: Waiting) -> None:
        """Take back the instance that a request of a decoupled model had."""
        raise NotImplementedError

    def _refuse_waiting(self) -> None:
        """Refuse all that wait; called when closing."""
        raise NotImplementedError

    async def _close_executions(self, timeout_s: float) -> None:
        """Close the instances."""
        raise NotImplementedError
