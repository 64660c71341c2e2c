"""DirectScheduler: no queue of its own; each request runs alone once an instance is free."""

from collections.abc import AsyncGenerator, Hashable, Sequence

from inferd.core.interfaces import Instance, Opened
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import InferdError
from inferd.schedulers.execution.execution import Execution
from inferd.schedulers.queueing.policy import Levels


class DirectScheduler:
    """Runs each request by itself, at once.

    If a request must wait for an instance, the default policy of `levels` applies; a stream waits
    under the policy of its own level, behind all requests of higher ones.
    """

    def __init__(self, execution: Execution, levels: Levels | None = None) -> None:
        self._execution = execution
        self._levels = levels or Levels(None)
        self._policy = self._levels.policy(0)
        self.may_be_prompt = execution.may_run_inline

    @property
    def pending_count(self) -> int:
        """See Scheduler.pending_count."""
        return self._execution.pending_count

    def run_now(self, request: InferRequest) -> InferResponse | None:
        """See PromptScheduler.run_now."""
        answers = self._execution.run_now((request,))
        if answers is None:
            return None
        [answer] = answers
        if isinstance(answer, InferdError):
            try:
                raise answer
            finally:
                del answer, answers  # its traceback holds this frame, which holds the request
        return answer

    async def run(self, request: InferRequest) -> InferResponse:
        """See Scheduler.run."""
        # Read here, so that a model that never runs on the loop pays no call.
        if self.may_be_prompt:
            response = self.run_now(request)
            if response is not None:
                return response
        [answer] = await self._execution.run((request,), self._policy)
        if isinstance(answer, InferdError):
            try:
                raise answer
            finally:
                del answer  # as above
        return answer

    def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """See Scheduler.stream."""
        level = self._levels.of(request)
        return self._execution.stream(request, self._levels.policy(level), level)

    @property
    def instances(self) -> Sequence[Instance]:
        """See Resizable.instances."""
        return self._execution.instances

    def grow(self, instance: Opened) -> None:
        """See Resizable.grow."""
        self._execution.grow(instance)

    def shrink(self, kind: Hashable = None) -> None:
        """See Resizable.shrink."""
        self._execution.shrink(kind)

    async def close(self, timeout_s: float) -> None:
        """See Scheduler.close."""
        await self._execution.close(timeout_s)
