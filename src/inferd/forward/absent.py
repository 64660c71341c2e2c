"""AbsentScheduler: what stands where a version has no instances in this process."""

from collections.abc import AsyncGenerator

from inferd.core.request import InferRequest, InferResponse
from inferd.forward.owned import absent


class AbsentScheduler:
    """The local scheduler of a version all whose instances are in other processes."""

    @property
    def pending_count(self) -> int:
        """See Scheduler.pending_count."""
        return 0

    async def run(self, request: InferRequest) -> InferResponse:
        """Raise Unavailable: who sent it here does not know yet where the instances are."""
        raise absent(request.model, request.version)

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """See `run`."""
        raise absent(request.model, request.version)
        yield  # which makes this a generator

    async def close(self, timeout_s: float) -> None:
        """See Scheduler.close."""
