"""Instances of functions that return one answer, or yield any number of them.

An asynchronous one has an event loop in a thread of its own. So a function that blocks by mistake
holds up its own model, not the server.
"""

import asyncio
import logging
import queue
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import aclosing, suppress
from threading import Thread
from typing import Any

from inferd.aio.event_loop import new_event_loop
from inferd.aio.promise import is_cancelled
from inferd.backends.function.signature import FunctionSignature
from inferd.core.request import InferRequest, InferResponse
from inferd.core.rows import INDEPENDENT, Verdict
from inferd.core.traits import InstanceTraits
from inferd.errors import BackendFailed, Cancelled, InferdError, foreign_text
from inferd.tensor.tensor import Tensor

log = logging.getLogger("inferd.backends")

_CLOSE_S = 1.0
"""How long to wait for an object to close; beyond that it goes on in its own thread."""


class FunctionCall:
    """A function, and how to call it with a request. `close` closes the object it belongs to."""

    def __init__(
        self,
        function: Callable[..., object],
        signature: FunctionSignature,
        model: str,
        version: int,
        close: Callable[[], object] | None = None,
    ) -> None:
        self.model = model
        self._function = function
        self._signature = signature
        self._version = str(version)
        self._is_batched = any(port.is_batched for port in signature.outputs.values())
        self._close = close

    def begin(self, request: InferRequest) -> Any:
        """Call the function and return its result. Raises InvalidRequest, or what it raises."""
        arguments, named = self._signature.arguments(request)
        return self._function(*arguments, **named)

    def answer(self, request: InferRequest, value: object, *, final: bool = True) -> InferResponse:
        """Return `value` as an answer. Raises BackendFailed."""
        tensors = self._signature.tensors(value, self.model)
        if self._is_batched:
            self._check_rows(tensors, request.batch_size)
        return InferResponse(request.model, self._version, request.id, tensors, final=final)

    def one_of(self, answers: Sequence[InferResponse]) -> InferResponse:
        """Return the only one of `answers`, marked as final. Raises BackendFailed."""
        if len(answers) != 1:
            raise BackendFailed(f"model '{self.model}' gave {len(answers)} answers, expected one")
        # It was made as one of a stream, whose end is told apart.
        answers[0].final = True
        return answers[0]

    def close(self) -> None:
        """Close the object; one that hangs is left behind."""
        if self._close is not None:
            thread = Thread(target=self._close_object, name=f"inferd-{self.model}", daemon=True)
            # In a thread of its own, as nothing bounds what a user's close() does.
            thread.start()
            thread.join(_CLOSE_S)

    def _close_object(self) -> None:
        try:
            assert self._close is not None
            self._close()
        except Exception:  # whatever it raises, the server goes on
            log.exception("model '%s' does not close", self.model)

    def _check_rows(self, tensors: Sequence[Tensor], rows: int) -> None:
        for tensor in tensors:
            if tensor.shape[0] != rows:
                raise BackendFailed(
                    f"model '{self.model}': output '{tensor.name}' has {tensor.shape[0]} rows, "
                    f"the batch has {rows}"
                )


class FunctionInstance:
    """A function that returns one answer. Each request is one call: batches arrive joined."""

    traits = InstanceTraits(
        verdict=Verdict(INDEPENDENT, "its author says that it takes batches"),
    )

    def __init__(self, call: FunctionCall) -> None:
        self._call = call

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute."""
        call = self._call
        return [call.answer(request, call.begin(request)) for request in requests]

    def close(self) -> None:
        """See Instance.close."""
        self._call.close()


class StreamInstance(FunctionInstance):
    """A generator function: each request is answered with all values that it yields."""

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute; any number of answers other than one needs `stream`."""
        return [self._call.one_of(list(self.stream(request))) for request in requests]

    def stream(self, request: InferRequest) -> Iterator[InferResponse]:
        """See DecoupledInstance.stream."""
        values = self._call.begin(request)
        try:
            for value in values:
                yield self._call.answer(request, value, final=False)
        finally:
            if hasattr(values, "close"):  # now, rather than at garbage collection
                values.close()


# One that is being sent and one that is ready; more would only hold memory.
AHEAD = 2
"""How many answers a generator may be ahead of its consumer."""

_LAST_WAIT_S = 5.0
"""How long the tasks on a loop may take to end once cancelled."""

Item = InferResponse | BaseException | None
"""An answer, an error, or the end."""


class AsyncFunctionInstance(FunctionInstance):
    """An asynchronous function that runs many requests at once. See ConcurrentInstance."""

    def __init__(self, call: FunctionCall) -> None:
        super().__init__(call)
        self.loop = new_event_loop()
        self._is_closed = False
        self._thread = Thread(target=self._run, name=f"inferd-{call.model}", daemon=True)
        self._thread.start()

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute; this thread waits for all of `requests`, which run concurrently."""
        futures = [self.submit(request) for request in requests]
        return [future.result() for future in futures]

    def submit(self, request: InferRequest) -> Future[InferResponse]:
        """See ConcurrentInstance.submit."""
        return asyncio.run_coroutine_threadsafe(self._guarded(request), self.loop)

    def flow(self, request: InferRequest, put: Callable[[Item], None]) -> "AnswerFlow":
        """See ConcurrentInstance.flow."""
        return AnswerFlow(self.answers(request), put, self.loop)

    async def answers(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """Yield the answers of `request`; to be iterated on `loop`. Raises what the model does."""
        yield await self.answer(request)

    async def answer(self, request: InferRequest) -> InferResponse:
        """Return the one answer of `request`; to be awaited on `loop`. Raises as `answers`."""
        return self._call.answer(request, await self._call.begin(request))

    async def _guarded(self, request: InferRequest) -> InferResponse:
        try:
            return await self.answer(request)
        except asyncio.CancelledError as error:
            # Only if this task itself was cancelled; otherwise the model
            # raised it, or awaited one that was.
            if is_cancelled():
                raise
            raise Cancelled(f"model '{self._call.model}' cancelled the request") from error
        # A task must not raise these: they would end its loop, or its waiter.
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            msg = f"model '{self._call.model}' failed: {foreign_text(error)}"
            raise BackendFailed(msg) from error

    def close(self) -> None:
        """Cancel what runs, and end the loop; a loop that hangs is left behind."""
        self._is_closed = True
        with suppress(RuntimeError):  # it has already ended
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_LAST_WAIT_S)
        super().close()

    def _run(self) -> None:
        loop = self.loop
        asyncio.set_event_loop(loop)
        try:
            while not self._is_closed:
                try:
                    loop.run_forever()
                except (SystemExit, KeyboardInterrupt):  # from a task created by the model
                    log.exception("model '%s'", self._call.model)
            # Ended here, on their own loop, so that their finally blocks run before it is closed.
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


class AsyncStreamInstance(AsyncFunctionInstance):
    """An asynchronous generator function: any number of answers for each request."""

    async def answers(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """Yield the answers of `request`; to be iterated on `loop`. Raises what the model does."""
        values = self._call.begin(request)
        try:
            async for value in values:
                yield self._call.answer(request, value, final=False)
        finally:
            if hasattr(values, "aclose"):  # now, rather than at garbage collection
                await values.aclose()

    async def answer(self, request: InferRequest) -> InferResponse:
        """Return the one answer of `request`; to be awaited on `loop`. Raises as `answers`."""
        async with aclosing(self.answers(request)) as answers:
            return self._call.one_of([answer async for answer in answers])

    def stream(self, request: InferRequest) -> Iterator[InferResponse]:
        """See DecoupledInstance.stream."""
        items: queue.SimpleQueue[Item] = queue.SimpleQueue()
        flow = self.flow(request, items.put)
        try:
            while (item := items.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                flow.took_one()
                yield item
        finally:
            flow.end()


class AnswerFlow:
    """The answers of one request, made by one task on the model's event loop. See Flow."""

    def __init__(
        self,
        answers: AsyncGenerator[InferResponse, None],
        put: Callable[[Item], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._loop = loop
        # A slow client holds its generator up, rather than have all answers gather in memory.
        self._room = asyncio.Semaphore(AHEAD)
        self._task = asyncio.run_coroutine_threadsafe(self._make(answers, put), loop)

    def took_one(self) -> None:
        """See Flow.took_one."""
        with suppress(RuntimeError):  # the model has been closed
            self._loop.call_soon_threadsafe(self._room.release)

    def end(self) -> None:
        """See Flow.end."""
        self._task.cancel()

    async def _make(
        self, answers: AsyncGenerator[InferResponse, None], put: Callable[[Item], None]
    ) -> None:
        try:
            async with aclosing(answers):
                async for answer in answers:
                    await self._room.acquire()
                    put(answer)
        except BaseException as error:  # noqa: BLE001  the consumer gets it
            put(error)
        else:
            put(None)
        finally:
            del put  # it refers to the error, and that to this frame
