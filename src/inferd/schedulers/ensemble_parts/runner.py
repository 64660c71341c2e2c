"""StepRunner: the steps of one run of an ensemble, by requests to other models.

A step starts as soon as its inputs exist. Where only one step can run it is simply awaited, so a
chain of small models creates no task and stays on the event loop; steps that can run concurrently
do. Tensors pass from step to step under other names and are never copied. Each step is a request
like any other: it is batched, counted, and answered by whichever version serves at the time.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from math import prod

from inferd.core.interfaces import Models, PromptModels
from inferd.core.request import InferRequest, InferResponse, sequence_parameters
from inferd.errors import BackendFailed, InferdError, Unavailable
from inferd.schedulers.ensemble_parts.parallel_steps import BREATH_NS, run_side_by_side
from inferd.schedulers.ensemble_parts.plan import EnsemblePlan, Step
from inferd.schedulers.ensemble_parts.run import EnsembleRun, LineKey, SequenceOrder
from inferd.tensor.tensor import Tensor, reshaped

MAX_SHOWN = 4
"""How many inputs of a failed step the error message lists."""


class StepRunner:
    """Runs the steps of `plan` by requests to `models`; `clock` is in ns.

    The steps of the numbers `with_sequences` get the requests of a sequence in the order in which
    these come here. (Behind a decoupled step this holds for none: each answer is a request.) Each
    step has `slots` for max_inflight_requests of all runs, if that is not 0.
    """

    def __init__(
        self,
        plan: EnsemblePlan,
        models: Models,
        clock: Callable[[], int],
        with_sequences: Collection[int] = (),
    ) -> None:
        self.plan = plan
        self.order = SequenceOrder()
        self.models = models
        self._prompt = models if isinstance(models, PromptModels) else None
        self._clock = clock
        self.places = _places(plan, with_sequences)
        most = plan.max_inflight_requests
        self.slots = {step.number: asyncio.Semaphore(most) for step in plan.steps if most}

    def line_up(self, run: EnsembleRun) -> None:
        """Let a request that names a sequence take its turn at the steps that it needs.

        Not one that a model has sent: another of the sequence may wait for that model.
        """
        request = run.request
        sequence = request.sequence
        if sequence is None or not sequence.id or request.callers:
            return
        needed = [step.number for step in self.plan.needed(request.outputs)]
        places = [self.places[number] for number in needed if number in self.places]
        run.ticket = self.order.line_up(sequence.id, places)

    def inputs(self, request: InferRequest) -> dict[str, Tensor]:
        """Return the tensors that a run begins with."""
        tensors = {tensor.name: tensor for tensor in request.inputs}
        # The ensemble's own reshapes: its steps' models know nothing of them.
        for name, (dims, target) in self.plan.input_reshapes.items():
            if (one := tensors.get(name)) is not None:
                shape = reshaped(one.shape, dims, target)
                tensors[name] = Tensor(name, one.datatype, shape, one.data)
        return tensors

    def answer(self, run: EnsembleRun, *, is_final: bool = True) -> InferResponse:
        """Return the answer to the client, made from the tensors of `run`."""
        outputs = []
        for name in self.plan.outputs:
            one = run.tensors.get(name)
            if one is not None:  # else not asked for, or it needs a missing optional input
                outputs.append(Tensor(name, one.datatype, self._shape(name, one), one.data))
        request = run.request
        said = sequence_parameters(run.sequence)
        return InferResponse(request.model, "", request.id, outputs, said, final=is_final)

    def _shape(self, name: str, output: Tensor) -> tuple[int, ...]:
        """Return the shape that clients see. Raises BackendFailed when the reshape does not fit."""
        given = output.shape
        if (batch_dim := self.plan.output_batch_dims.get(name)) is not None:
            given = batch_dim.of(given)
        if name not in self.plan.output_reshapes:
            return given
        dims, target = self.plan.output_reshapes[name]
        shape = reshaped(given, target, dims)
        if prod(shape) != prod(given):
            raise BackendFailed(
                f"ensemble '{self.plan.name}': output '{name}' is {list(given)}, which its "
                f"reshape from {list(target)} to {list(dims)} does not fit"
            )
        return shape

    async def run_steps(self, run: EnsembleRun, steps: Sequence[Step]) -> None:
        """Run `steps`, each as soon as it can; the first failure ends all of them."""
        if not self.plan.is_chain:
            await run_side_by_side(steps, partial(self._run_step, run), self._clock)
            return
        since_ns = self._clock()
        for step in steps:
            await self._run_step(run, step)
            # Not after each step: a turn of the loop costs more than a small model.
            if (now_ns := self._clock()) - since_ns > BREATH_NS:
                await asyncio.sleep(0)  # all of it may have run on the event loop
                since_ns = now_ns

    async def _run_step(self, run: EnsembleRun, step: Step) -> None:
        if run.ticket is not None:
            await self.order.enter(run.ticket, self.places.get(step.number))
        slot = self.slots.get(step.number) if self.slots else None
        if slot is None:
            await self._ask(run, step)
            return
        await slot.acquire()
        try:
            await self._ask(run, step)
        finally:
            slot.release()

    async def _ask(self, run: EnsembleRun, step: Step) -> None:
        call = self.call(run, step)
        try:
            # No coroutine for a step that can run right here.
            response = self._prompt.infer_now(call) if self._prompt is not None else None
            if response is None:  # it has to wait for something
                response = await self.models.infer(call)
        except InferdError as error:
            raise self.failed(step, call, error) from error
        run.take(step, response)

    def call(self, run: EnsembleRun, step: Step) -> InferRequest:
        """Return the request to the model of `step`."""
        request, tensors = run.request, run.tensors
        inputs = [
            Tensor(inner, one.datatype, one.shape, one.data)
            for inner, outer in step.inputs
            if (one := tensors.get(outer)) is not None
        ]
        if step.batch_dims:
            for tensor in inputs:
                if (batch_dim := step.batch_dims.get(tensor.name)) is not None:
                    tensor.shape = batch_dim.of(tensor.shape)
        wanted = InferRequest(
            step.model,
            step.version,
            request.id,
            inputs,
            # Without an optional input some outputs may be missing, so none is asked for by name.
            step.wanted if len(inputs) == len(step.inputs) else [],
            request.parameters,
        )
        wanted.priority = request.priority
        # One limit for the whole request, as its client means it, not anew for each step.
        wanted.timeout_us = self._left_us(run, step) if request.timeout_us else 0
        wanted.sequence = run.sequence
        wanted.arrived_ns = request.arrived_ns
        wanted.callers = request.callers
        wanted.trace = request.trace
        return wanted

    def _left_us(self, run: EnsembleRun, step: Step) -> int:
        """Return how much of the request's timeout is left to `step`; the first steps get all.

        Raises Unavailable when nothing is left.
        """
        request = run.request
        spent_us = (self._clock() - request.started_ns) // 1000 if run.has_begun else 0
        if spent_us < request.timeout_us:
            return request.timeout_us - spent_us
        raise Unavailable(
            f"ensemble '{self.plan.name}', {step}: the request's timeout of {request.timeout_us} "
            f"microseconds has passed before"
        )

    def failed(self, step: Step, call: InferRequest, error: InferdError) -> InferdError:
        """Return `error` with its context added: the step and its inputs."""
        outer = dict(step.inputs)
        given = [
            f"input '{one.name}' is tensor '{outer[one.name]}', {one.datatype.value} "
            f"{list(one.shape)}"
            for one in call.inputs[:MAX_SHOWN]
        ]
        if more := len(call.inputs) - len(given):
            given.append(f"and {more} more")
        text = f"in ensemble '{self.plan.name}', {error.message}; {step}"
        # The kind stays, which decides status and code for the client.
        failed = type(error)(f"{text}: {'; '.join(given)}" if given else text)
        failed.__cause__ = error  # for the log; compiled, `raise ... from` would not set it
        return failed


def _places(plan: EnsemblePlan, with_sequences: Collection[int]) -> dict[int, LineKey]:
    """Return before which steps, by number, the requests of a sequence line up, and in which line.

    A line is that of a model, and if several steps call it, of the first, the second and so on: the
    numbers of the steps may be others when the ensemble is replaced.
    """
    places: dict[int, LineKey] = {}
    counts: Counter[str] = Counter()
    for step in plan.steps:
        if step.number in with_sequences and not step.depth:
            places[step.number] = step.model, counts[step.model]
            counts[step.model] += 1
    return places
