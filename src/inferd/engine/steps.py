"""Steps: the models as called by an ensemble, whose own request is counted already."""

from collections.abc import AsyncGenerator

from inferd.core.interfaces import Models, PromptModels
from inferd.core.request import InferRequest, InferResponse
from inferd.engine.streaming import step_answers
from inferd.engine.traced_models import traced_step
from inferd.memory.capacity import Capacity


class Steps:
    """Runs steps on `models`, taking no more of `capacity` than their ensemble's request does.

    An ensemble's request that was admitted is not refused half way: the cost of its first steps
    would be wasted. So a step gives the place of that request to its own, which `models` counts,
    and takes it back at the end.

    A step whose request has the trace of its ensemble's gets a child of that trace.
    """

    def __init__(self, models: Models, capacity: Capacity) -> None:
        self._models = models
        self._prompt = models if isinstance(models, PromptModels) else None
        self._capacity = capacity

    async def infer(self, request: InferRequest) -> InferResponse:
        """See Models.infer."""
        # The place of the ensemble's own request, which waits meanwhile.
        self._capacity.request_count -= 1
        try:
            models = self._models
            if request.trace is not None:
                models = traced_step(models, request)
            return await models.infer(request)
        finally:
            self._capacity.request_count += 1

    def infer_now(self, request: InferRequest) -> InferResponse | None:
        """See PromptModels.infer_now. It takes no place in `capacity`; a traced step gets None."""
        prompt = self._prompt
        # A traced step takes the way on which its times are noted.
        return prompt.infer_now(request) if prompt is not None and request.trace is None else None

    def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """See Models.stream; all errors are raised while iterating."""
        return step_answers(self._models, request, self._capacity)
