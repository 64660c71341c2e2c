"""Instances of asynchronous functions, each with an event loop in a thread of its own.

So what blocks by mistake holds up its own model and not the server.
"""

import asyncio
import queue
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from threading import Thread

from inferd.backends.function.instance import Call, FunctionInstance
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import InferdError

AHEAD = 2
"""So many answers a generator may be ahead of who takes them."""

_LAST_WAIT_S = 5.0
"""So long what runs on a loop may take to end when it is cancelled."""

Put = Callable[[InferResponse | BaseException | None], None]
"""Takes an answer, an error, or None at the end, on the model's event loop."""


class AsyncFunctionInstance(FunctionInstance):
    """An asynchronous function; many of its requests may be under way."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name=f"inferd-{call.model}", daemon=True)
        self._thread.start()

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute; this thread waits for all of `requests`, which run at once."""
        futures = [
            asyncio.run_coroutine_threadsafe(self.answer(request), self.loop)
            for request in requests
        ]
        return [future.result() for future in futures]

    async def answer(self, request: InferRequest) -> InferResponse:
        """Return the answer of `request`; to be awaited on `loop`. Raises what the model does."""
        return self._call.answer(request, await self._call.begin(request))

    def close(self) -> None:
        """Cancel what runs, and end the loop; one that hangs is left behind."""
        with suppress(RuntimeError):  # it has ended already
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_LAST_WAIT_S)
        super().close()

    def _run(self) -> None:
        loop = self.loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


class AsyncStreamInstance(AsyncFunctionInstance):
    """An asynchronous generator function: any number of answers for each request."""

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute; a request with another number of answers needs `stream`."""
        return [self._call.one_of(list(self.stream(request))) for request in requests]

    def stream(self, request: InferRequest) -> Iterator[InferResponse]:
        """See DecoupledInstance.stream."""
        answers: queue.SimpleQueue[InferResponse | BaseException | None] = queue.SimpleQueue()
        flow = self.begin(request, answers.put)
        try:
            while (answer := answers.get()) is not None:
                if isinstance(answer, BaseException):
                    raise answer
                flow.took_one()
                yield answer
        finally:
            flow.end()

    def begin(self, request: InferRequest, put: Put) -> "Flow":
        """Have the answers of `request` made, as fast as they are taken, and given to `put`."""
        return Flow(self, request, put)


class Flow:
    """The answers of one request, made by one task on the model's event loop."""

    def __init__(self, instance: AsyncStreamInstance, request: InferRequest, put: Put) -> None:
        self._loop = instance.loop
        self._call = instance._call
        self._request = request
        self._put = put
        self._room = asyncio.Semaphore(AHEAD)
        self._task = asyncio.run_coroutine_threadsafe(self._make(), self._loop)

    def took_one(self) -> None:
        """Let one more be made; any thread may call this."""
        self._loop.call_soon_threadsafe(self._room.release)

    def end(self) -> None:
        """Make no more answers; any thread may call this."""
        self._task.cancel()

    async def _make(self) -> None:
        try:
            values = self._call.begin(self._request)
            try:
                async for value in values:
                    await self._room.acquire()
                    self._put(self._call.answer(self._request, value, final=False))
            finally:
                if hasattr(values, "aclose"):  # at once, and not when the garbage collector comes
                    await values.aclose()
        except BaseException as error:  # noqa: BLE001  whoever waits gets it
            self._put(error)
        else:
            self._put(None)
