"""EnsembleScheduler: a request to an ensemble becomes requests to the models of its steps.

A step starts as soon as its inputs are there. Where only one can run it is simply awaited, so a
chain of small models makes no task and stays on the event loop; steps that can run side by side do.
Tensors go from step to step under other names and are never copied. Each step is a request like
any other: it is batched, counted, and answered by whichever version serves then.

The answers of a decoupled step come out in its order, though some may be worked on at once.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from math import prod

from inferd.core.interfaces import Models
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import BackendFailed, InferdError, Overloaded, Unavailable
from inferd.observe.stats import Counts
from inferd.schedulers.inorder import in_order
from inferd.schedulers.plan import Order, Plan, Stage, Step
from inferd.tensor.tensor import Tensor, reshaped

MAX_RUNNING = 10_000
"""How many requests to one ensemble may run; more are refused as Overloaded."""

INFLIGHT = 16
"""How many answers of a decoupled step are worked on where max_inflight_requests sets no limit."""

BREATH_NS = 1_000_000
"""After steps that took so long together others have their turn."""

MAX_SHOWN = 4
"""So many inputs of a step that failed are told."""


@dataclass(slots=True)
class _Run:
    """A request to the ensemble, the tensors there are so far, by name, and if a step made any."""

    request: InferRequest
    tensors: dict[str, Tensor]
    has_begun: bool = False


class EnsembleScheduler:
    """Runs requests as `plan` says, by requests to `models`; time is that of `counts`.

    The times of a request span its steps; what they wait and compute stands in their own counts.
    """

    def __init__(self, plan: Plan, models: Models, counts: Counts) -> None:
        self._plan = plan
        self._models = models
        self._clock = counts.clock
        self._running_count = 0
        self._is_closed = False
        self._ended: asyncio.Future[None] | None = None

    @property
    def pending_count(self) -> int:
        """See Scheduler.pending_count; the steps' models have the queues."""
        return 0

    async def run(self, request: InferRequest) -> InferResponse:
        """See Scheduler.run. Raises what a step raises, with the step and its tensors named."""
        self._begin(request)
        try:
            run = _Run(request, self._inputs(request))
            await self._run_steps(run, self._plan.needed(request.outputs))
            return self._answer(run)
        finally:
            self._end(request)

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """See Scheduler.stream."""
        self._begin(request)
        try:
            run = _Run(request, self._inputs(request))
            stages = self._plan.stages(self._plan.needed(request.outputs))
            async with aclosing(self._answers(run, stages)) as answers:
                async for answer in answers:
                    yield answer
        finally:
            self._end(request)

    async def close(self, timeout_s: float) -> None:
        """See Scheduler.close."""
        self._is_closed = True
        if self._running_count and self._ended is None:
            self._ended = asyncio.get_running_loop().create_future()
        if self._ended is not None:
            await asyncio.wait((self._ended,), timeout=timeout_s)

    def _begin(self, request: InferRequest) -> None:
        """Count a request. Raises Unavailable, and Overloaded when too many run."""
        name = self._plan.name
        if self._is_closed:
            msg = f"model '{name}' is being unloaded"
            raise Unavailable(msg)
        if self._running_count >= MAX_RUNNING:
            msg = f"{MAX_RUNNING} requests to ensemble '{name}' run already; try again later"
            raise Overloaded(msg)
        self._running_count += 1
        request.started_ns = self._clock()

    def _end(self, request: InferRequest) -> None:
        request.ended_ns = self._clock()
        self._running_count -= 1
        if self._ended is not None and not self._running_count and not self._ended.done():
            self._ended.set_result(None)

    # --- what goes in and comes out ---

    def _inputs(self, request: InferRequest) -> dict[str, Tensor]:
        tensors = {tensor.name: tensor for tensor in request.inputs}
        for name, (dims, target) in self._plan.input_reshapes.items():
            if (one := tensors.get(name)) is not None:
                shape = reshaped(one.shape, dims, target)
                tensors[name] = Tensor(name, one.datatype, shape, one.data)
        return tensors

    def _answer(self, run: _Run, *, is_final: bool = True) -> InferResponse:
        outputs = []
        for name in self._plan.outputs:
            one = run.tensors.get(name)
            if one is not None:  # or nobody asked, or an optional input it hangs on is missing
                outputs.append(Tensor(name, one.datatype, self._shape(name, one), one.data))
        request = run.request
        return InferResponse(request.model, "", request.id, outputs, final=is_final)

    def _shape(self, name: str, output: Tensor) -> tuple[int, ...]:
        """Return the shape that clients see. Raises BackendFailed for one that cannot be it."""
        if name not in self._plan.output_reshapes:
            return output.shape
        dims, target = self._plan.output_reshapes[name]
        shape = reshaped(output.shape, target, dims)
        if prod(shape) != prod(output.shape):
            msg = (
                f"ensemble '{self._plan.name}': output '{name}' is {list(output.shape)}, which its "
                f"reshape from {list(target)} to {list(dims)} does not fit"
            )
            raise BackendFailed(msg)
        return shape

    # --- steps that answer once ---

    async def _run_steps(self, run: _Run, steps: Sequence[Step]) -> None:
        """Run `steps`, each as soon as it can; what the first that fails raises ends all."""
        if not self._plan.is_chain:
            await self._run_side_by_side(run, steps)
            return
        since_ns = self._clock()
        for step in steps:
            await self._run_step(run, step)
            if (now_ns := self._clock()) - since_ns > BREATH_NS:
                await asyncio.sleep(0)  # it may all have been on the event loop
                since_ns = now_ns

    async def _run_side_by_side(self, run: _Run, steps: Sequence[Step]) -> None:
        order = Order(steps)
        ready = order.first
        since_ns = self._clock()
        running: dict[asyncio.Task[None], Step] = {}
        ended: asyncio.Queue[asyncio.Task[None]] = asyncio.Queue()
        try:
            while ready or running:
                if len(ready) == 1 and not running:
                    [step] = ready
                    await self._run_step(run, step)
                    ready = order.after(step)
                    if (now_ns := self._clock()) - since_ns > BREATH_NS:
                        await asyncio.sleep(0)
                        since_ns = now_ns
                    continue
                for step in ready:
                    task = asyncio.create_task(self._run_step(run, step))
                    task.add_done_callback(ended.put_nowait)
                    running[task] = step
                task = await ended.get()
                await task
                ready = order.after(running.pop(task))
        finally:
            if running:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)

    async def _run_step(self, run: _Run, step: Step) -> None:
        call = self._call(run, step)
        try:
            response = await self._models.infer(call)
        except InferdError as error:
            raise self._failed(step, call, error) from error
        _take(run, step, response)

    # --- steps that answer any number of times ---

    async def _answers(
        self, run: _Run, stages: Sequence[Stage]
    ) -> AsyncGenerator[InferResponse, None]:
        (steps, decoupled), *later = stages
        await self._run_steps(run, steps)
        if decoupled is None:
            yield self._answer(run)
            return
        parts = self._parts(run, decoupled)
        if len(later) == 1:
            limit = self._plan.max_inflight_requests or INFLIGHT
            finish = partial(self._finished, later[0].steps)
            answers = in_order(parts, finish, limit)
        else:
            answers = self._nested(parts, later)
        async with aclosing(answers):
            async for answer in answers:
                yield answer

    async def _parts(self, run: _Run, step: Step) -> AsyncGenerator[tuple[_Run, bool], None]:
        """Yield the run as it goes on with each answer of `step`, and whether that is the last."""
        call = self._call(run, step)
        try:
            async with aclosing(self._models.stream(call)) as responses:
                async for response in responses:
                    part = _Run(run.request, dict(run.tensors))
                    _take(part, step, response)
                    yield part, response.final
        except InferdError as error:
            raise self._failed(step, call, error) from error

    async def _finished(self, steps: Sequence[Step], part: tuple[_Run, bool]) -> InferResponse:
        run, is_final = part
        await self._run_steps(run, steps)
        return self._answer(run, is_final=is_final)

    async def _nested(
        self, parts: AsyncGenerator[tuple[_Run, bool], None], stages: Sequence[Stage]
    ) -> AsyncGenerator[InferResponse, None]:
        async with aclosing(parts):
            async for run, is_final in parts:
                async with aclosing(self._answers(run, stages)) as answers:
                    async for answer in answers:
                        answer.final = answer.final and is_final
                        yield answer

    def _call(self, run: _Run, step: Step) -> InferRequest:
        request, tensors = run.request, run.tensors
        inputs = [
            Tensor(inner, one.datatype, one.shape, one.data)
            for inner, outer in step.inputs
            if (one := tensors.get(outer)) is not None
        ]
        return InferRequest(
            step.model,
            step.version,
            request.id,
            inputs,
            # Without an optional input some outputs may be missing: then none is asked for by name.
            step.wanted if len(inputs) == len(step.inputs) else [],
            request.parameters,
            priority=request.priority,
            timeout_us=self._left_us(run, step) if request.timeout_us else 0,
            sequence=request.sequence,
            arrived_ns=request.arrived_ns,
            trace=request.trace,
        )

    def _left_us(self, run: _Run, step: Step) -> int:
        """Return what `step` may wait of the request's timeout; the first steps get all of it.

        Raises Unavailable when nothing is left.
        """
        request = run.request
        spent_us = (self._clock() - request.started_ns) // 1000 if run.has_begun else 0
        if spent_us < request.timeout_us:
            return request.timeout_us - spent_us
        msg = (
            f"ensemble '{self._plan.name}', {step}: the request's timeout of {request.timeout_us} "
            f"microseconds has passed before"
        )
        raise Unavailable(msg)

    def _failed(self, step: Step, call: InferRequest, error: InferdError) -> InferdError:
        """Return `error` with the place where it happened: the step, and what it was given."""
        outer = dict(step.inputs)
        given = [
            f"input '{one.name}' is tensor '{outer[one.name]}', {one.datatype.value} "
            f"{list(one.shape)}"
            for one in call.inputs[:MAX_SHOWN]
        ]
        if more := len(call.inputs) - len(given):
            given.append(f"and {more} more")
        told = f"ensemble '{self._plan.name}', {step}: {error.message}"
        return type(error)(f"{told} ({'; '.join(given)})" if given else told)


def _take(run: _Run, step: Step, response: InferResponse) -> None:
    """Put the outputs of a step where the ensemble knows them."""
    run.has_begun = True
    names = step.outputs
    for tensor in response.outputs:
        outer = names.get(tensor.name)
        if outer is not None:
            run.tensors[outer] = tensor
