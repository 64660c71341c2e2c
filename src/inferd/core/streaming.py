"""The one answer of a model that is not decoupled, as a stream."""

from collections.abc import AsyncGenerator, Awaitable, Callable

from inferd.core.request import InferRequest, InferResponse


async def one_answer(
    run: Callable[[InferRequest], Awaitable[InferResponse]], request: InferRequest
) -> AsyncGenerator[InferResponse, None]:
    """Yield the only answer, that of `run`."""
    # An asynchronous generator, which mypyc cannot compile: hence this module
    # (docs/decisions/0010-compiled.md).
    yield await run(request)
