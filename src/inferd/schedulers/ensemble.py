"""EnsembleScheduler: a request to an ensemble becomes requests to the models of its steps.

How these run is the business of `ensemble_parts`. The answers of a decoupled step come out in
order, though several may be processed at once.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection

from inferd.core.interfaces import Models
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import Overloaded
from inferd.observe.stats import Counts
from inferd.schedulers.ensemble_parts.plan import EnsemblePlan
from inferd.schedulers.ensemble_parts.run import EnsembleRun
from inferd.schedulers.ensemble_parts.runner import StepRunner
from inferd.schedulers.ensemble_parts.stream import answers_of
from inferd.schedulers.queueing.policy import unloading

# As many as may wait for one model (MAX_WAITING).
MAX_RUNNING = 10_000
"""How many requests to one ensemble may run at once; more are refused as Overloaded."""


class EnsembleScheduler:
    """Runs requests as `plan` says, by requests to `models`; the clock is that of `counts`.

    The times of a request span its steps; what they wait and compute stands in their own counts.
    For `with_sequences` see StepRunner.
    """

    def __init__(
        self,
        plan: EnsemblePlan,
        models: Models,
        counts: Counts,
        with_sequences: Collection[int] = (),
    ) -> None:
        self._plan = plan
        self.runner = StepRunner(plan, models, counts.clock, with_sequences)
        self._clock = counts.clock
        self._running_count = 0
        self._is_closed = False
        self._ended: asyncio.Future[None] | None = None

    @property
    def pending_count(self) -> int:
        """See Scheduler.pending_count. Requests queue only at the models of the steps."""
        return 0

    async def run(self, request: InferRequest) -> InferResponse:
        """See Scheduler.run. Raises a step's error, with the step and its inputs named."""
        run = self._begin(request)
        try:
            await self.runner.run_steps(run, self._plan.needed(request.outputs))
            return self.runner.answer(run)
        finally:
            self._end(run)

    def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """See Scheduler.stream."""
        return answers_of(self.runner, lambda: self._begin(request), self._end)

    def follow(self, replaced: "EnsembleScheduler") -> None:
        """Let no request overtake those of its sequence that `replaced` has; before the first."""
        # Taken over as a whole, so that requests of both line up in one line while the old one
        # drains.
        self.runner.order = replaced.runner.order

    async def close(self, timeout_s: float) -> None:
        """See Scheduler.close."""
        self._is_closed = True
        if self._running_count and self._ended is None:
            # Made only by a close: most requests of an ensemble end while nobody waits for that.
            self._ended = asyncio.get_running_loop().create_future()
        if self._ended is not None:
            await asyncio.wait((self._ended,), timeout=timeout_s)

    def _begin(self, request: InferRequest) -> EnsembleRun:
        """Count a request, until `_end`, and let it take its turn among those of its sequence.

        Raises Unavailable, and Overloaded when too many run.
        """
        name = self._plan.name
        if self._is_closed:
            raise unloading(name)
        if self._running_count >= MAX_RUNNING:
            msg = f"{MAX_RUNNING} requests to ensemble '{name}' run already; try again later"
            raise Overloaded(msg)
        # Before it is counted: a reshape that fails must leave no count behind.
        run = EnsembleRun(request, self.runner.inputs(request))
        self._running_count += 1
        request.started_ns = self._clock()
        if request.sequence is not None and self.runner.places:
            self.runner.line_up(run)
        return run

    def _end(self, run: EnsembleRun) -> None:
        """Note that a request has been answered, or will not be."""
        run.request.ended_ns = self._clock()
        if run.ticket is not None:
            self.runner.order.leave(run.ticket)
        self._running_count -= 1
        if self._ended is not None and not self._running_count and not self._ended.done():
            self._ended.set_result(None)
