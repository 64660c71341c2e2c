"""No queue and no thread for a request: asynchronous models run many requests at once themselves.

Their event loops are not the server's. What a client gives up is cancelled there.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager, suppress

from inferd.core.interfaces import ConcurrentInstance
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import InferdError, Overloaded, Unavailable
from inferd.observe.stats import Counts
from inferd.schedulers.job import failure
from inferd.schedulers.policy import MAX_WAITING


class ConcurrentScheduler:
    """Gives each request at once to the instance that has the fewest under way."""

    def __init__(
        self, model: str, instances: Sequence[ConcurrentInstance], counts: Counts | None = None
    ) -> None:
        self._model = model
        self._instances = instances
        self._under_way = [0] * len(instances)
        self._clock = (counts or Counts()).clock
        self._is_closed = False
        self._idle = asyncio.Event()

    @property
    def pending_count(self) -> int:
        """See Scheduler.pending_count: whatever comes begins."""
        return 0

    async def run(self, request: InferRequest) -> InferResponse:
        """See Scheduler.run. Raises Overloaded when too many requests are under way."""
        with self._turn(request) as instance:
            return await asyncio.wrap_future(instance.submit(request))

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """See Scheduler.stream. Raises Overloaded when too many requests are under way."""
        items: asyncio.Queue[InferResponse | BaseException | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def put(item: InferResponse | BaseException | None) -> None:
            with suppress(RuntimeError):  # the loop has closed: nobody is left to tell
                loop.call_soon_threadsafe(items.put_nowait, item)

        with self._turn(request) as instance:
            flow = instance.flow(request, put)
            try:
                while (item := await items.get()) is not None:
                    if isinstance(item, BaseException):
                        raise failure(self._model, item)
                    flow.took_one()
                    yield item
            finally:
                flow.end()
                del item  # its traceback holds this frame

    async def close(self, timeout_s: float) -> None:
        """See Scheduler.close."""
        self._is_closed = True
        if any(self._under_way):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), timeout_s)
        closes = [asyncio.to_thread(instance.close) for instance in self._instances]
        await asyncio.gather(*closes)

    @contextmanager
    def _turn(self, request: InferRequest) -> Iterator[ConcurrentInstance]:
        """Count a request while it is under way, and put its failure into our words."""
        if self._is_closed:
            raise self._unloading()
        if sum(self._under_way) >= MAX_WAITING:
            msg = f"model '{self._model}' has {MAX_WAITING} requests under way; try again later"
            raise Overloaded(msg)
        number = self._under_way.index(min(self._under_way))
        self._under_way[number] += 1
        request.started_ns = self._clock()
        try:
            yield self._instances[number]
        except (InferdError, GeneratorExit):
            raise
        except asyncio.CancelledError as error:
            if self._is_closed:  # it did not end in time
                raise self._unloading() from error
            raise
        except Exception as error:
            raise failure(self._model, error) from error
        finally:
            request.ended_ns = self._clock()
            self._under_way[number] -= 1
            if self._is_closed and not any(self._under_way):
                self._idle.set()

    def _unloading(self) -> InferdError:
        return Unavailable(f"model '{self._model}' is being unloaded")
