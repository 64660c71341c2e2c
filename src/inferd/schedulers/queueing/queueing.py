"""The common part of schedulers that queue: how callers wait and leave, and how it all closes."""

import asyncio
from collections.abc import AsyncGenerator, Callable

from inferd.aio.promise import Promise
from inferd.aio.timer import Timer
from inferd.compiled import mypyc_attr
from inferd.core.request import InferRequest, InferResponse
from inferd.core.streaming import one_answer
from inferd.schedulers.queueing.queue import Done, Waiting
from inferd.schedulers.queueing.timing import BatchTiming, FixedTiming


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueingScheduler:
    """Lets callers wait for the requests that `_advance` starts."""

    def __init__(
        self,
        timing: BatchTiming,
        max_batch_size: int,
        timer: Callable[[Callable[[], None]], Timer],
    ) -> None:
        self._timing = timing
        self._max_batch_size = max_batch_size
        self._timer = timer(self._advance)
        self._clock = self._timer.clock
        self._loop: asyncio.AbstractEventLoop | None = None  # asking for it is a system call
        self._quiet: asyncio.Future[None] | None = None  # closing; done when nothing runs

    async def run(self, request: InferRequest) -> InferResponse:
        """See Scheduler.run."""
        done: Done = Promise(loop=self._loop or self._own_loop())
        waiting = self._enqueue(request, done)
        try:
            answer: InferResponse = await done
        except BaseException:
            self._leave(waiting)
            raise
        finally:
            del done  # it may hold an error whose traceback refers to this frame
        return answer

    def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """See Scheduler.stream. There is one answer unless the model is decoupled."""
        return one_answer(self.run, request)

    def hurry(self) -> None:
        """See GatheringScheduler.hurry."""
        # Nobody new is coming: waiting for more would only delay the end.
        self._timing = FixedTiming(self._max_batch_size, (), 0)
        self._advance()

    async def close(self, timeout_s: float) -> None:
        """See Scheduler.close. Requests that still wait when the time is over are refused."""
        # One limit for both waits.
        give_up_ns = self._clock() + int(timeout_s * 1e9)
        self._quiet = asyncio.get_running_loop().create_future()
        self.hurry()
        await asyncio.wait((self._quiet,), timeout=timeout_s)
        self._refuse_waiting()
        self._timer.close()
        await self._close_executions(max(0, give_up_ns - self._clock()) / 1e9)

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        return loop

    def _leave(self, waiting: Waiting) -> None:
        """Forget a request whose caller no longer waits: it was answered or cancelled."""
        done, waiting.done = waiting.done, None  # it may hold an error that refers to this frame
        if done is not None and done.done() and not done.cancelled():
            done.exception()  # mark it as retrieved: its caller may have been cancelled meanwhile
            return
        self._give_up(waiting)

    def _advance(self) -> None:
        """Do what is due now, and set the timer for what comes next."""
        raise NotImplementedError

    def _enqueue(self, request: InferRequest, done: Done) -> Waiting:
        """Queue `request` or begin it at once; `done` becomes its answer. Raises InferdError."""
        raise NotImplementedError

    def _give_up(self, waiting: Waiting) -> None:
        """Note that nobody waits any more for the answer to a waiting or running request."""
        raise NotImplementedError

    def _refuse_waiting(self) -> None:
        """Refuse all waiting requests; called when closing."""
        raise NotImplementedError

    async def _close_executions(self, timeout_s: float) -> None:
        """Close the instances."""
        raise NotImplementedError
