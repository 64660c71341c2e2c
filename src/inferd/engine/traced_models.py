"""TracedModels: the server's models as a traced request sees them.

An untraced request never gets here. A traced one calls this instead of the models themselves, with
the same methods; the times it carries for the statistics become its trace.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from inferd.core.interfaces import Models
from inferd.core.request import InferRequest, InferResponse
from inferd.observe.tracing import trace as times
from inferd.observe.tracing.trace import Trace


class TracedModels:
    """Passes a request on to `models`, and records in `trace` what becomes of it."""

    def __init__(self, models: Models, trace: Trace) -> None:
        self._models = models
        self._trace = trace

    async def infer(self, request: InferRequest) -> InferResponse:
        """See Models.infer."""
        self._begin(request)
        try:
            response = await self._models.infer(request)
            self._note_answer(request, response)
            return response
        except BaseException as error:
            self._trace.fail(error)
            raise
        finally:
            self._end(request)

    def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """See Models.stream."""
        self._begin(request)
        try:
            responses = self._models.stream(request)
        except BaseException as error:
            self._trace.fail(error)
            self._end(request)
            raise
        return self._noted(request, responses)

    async def _noted(
        self, request: InferRequest, answers: AsyncGenerator[InferResponse, None]
    ) -> AsyncGenerator[InferResponse, None]:
        is_final = False
        try:
            async with aclosing(answers) as responses:
                async for response in responses:
                    self._note_answer(request, response)
                    is_final = response.final
                    yield response
        except BaseException as error:
            if not (is_final and isinstance(error, GeneratorExit)):  # otherwise nothing was lost
                self._trace.fail(error)
            raise
        finally:
            self._end(request)

    def _begin(self, request: InferRequest) -> None:
        trace = self._trace
        request.trace = trace
        # Ids come from clients, and traces are kept.
        trace.request_id = request.id[: times.MAX_TEXT]
        trace.stamp(times.REQUEST_START)

    def _note_answer(self, request: InferRequest, response: InferResponse) -> None:
        trace = self._trace
        trace.stamp(times.INFER_RESPONSE_COMPLETE)
        if response.error is not None:
            trace.fail(response.error)
        if trace.wants_tensors:
            self._note_inputs(request)
            trace.note_tensors(times.TENSOR_BACKEND_OUTPUT, response.outputs)

    def _note_inputs(self, request: InferRequest) -> None:
        """Record the inputs, once, of a request that has passed its model's check."""
        trace = self._trace
        # Only then has it passed the check; tensors of a refused request may not even be as long as
        # they say.
        if not trace.tensors and (request.queued_ns or request.started_ns):
            trace.note_tensors(times.TENSOR_QUEUE_INPUT, request.inputs)
            if request.started_ns:
                trace.repeat_tensors(times.TENSOR_QUEUE_INPUT, times.TENSOR_BACKEND_INPUT)

    def _end(self, request: InferRequest) -> None:
        trace = self._trace
        if trace.wants_tensors:
            self._note_inputs(request)
        if queued_ns := request.queued_ns or request.started_ns:
            # Stamped at the end from the times that requests carry anyway: an untraced request pays
            # nothing.
            trace.stamp(times.QUEUE_START, queued_ns)
        if started_ns := request.started_ns:
            ended_ns = request.ended_ns
            trace.stamp(times.COMPUTE_START, started_ns)
            trace.stamp(times.COMPUTE_INPUT_END, request.computing_ns or started_ns)
            trace.stamp(times.COMPUTE_OUTPUT_START, request.computed_ns or ended_ns)
            trace.stamp(times.COMPUTE_END, ended_ns)
        trace.stamp(times.REQUEST_END)


def traced_step(models: Models, request: InferRequest) -> Models:
    """Return `models` for a step's `request` to call: traced if the ensemble's request is."""
    child = request.trace.child(request.model) if request.trace else None
    request.trace = child
    return models if child is None else TracedModels(models, child)
