"""No queue and no thread per request: asynchronous models run many requests at once themselves.

Their event loops are not the server's. A request that its client gives up is cancelled there.
"""

import asyncio
from collections.abc import AsyncGenerator, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from operator import attrgetter

from inferd.aio.promise import is_cancelled
from inferd.core.interfaces import ConcurrentInstance, Instance, Opened
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import InferdError, Overloaded
from inferd.observe.stats import Counts
from inferd.schedulers.execution.job import failure, tell
from inferd.schedulers.queueing.policy import MAX_WAITING, unloading


class _InstanceLoad:
    """An instance and the number of requests it has under way."""

    def __init__(self, opened: Opened) -> None:
        assert isinstance(opened.alone, ConcurrentInstance)
        self.instance = opened.alone
        self.kind = opened.kind
        self.under_way = 0
        self.is_leaving = False  # it gets no more requests and is closed after the last one


class ConcurrentScheduler:
    """Gives each request at once to the instance with the fewest requests under way."""

    def __init__(
        self, model: str, instances: Sequence[Opened], counts: Counts | None = None
    ) -> None:
        self._model = model
        self._loads = [_InstanceLoad(one) for one in instances]
        self._closing: set[asyncio.Task[None]] = set()
        self._clock = (counts or Counts()).clock
        self._is_closed = False
        self._idle = asyncio.Event()

    @property
    def pending_count(self) -> int:
        """See Scheduler.pending_count. Every request begins at once."""
        return 0

    async def run(self, request: InferRequest) -> InferResponse:
        """See Scheduler.run. Raises Overloaded when too many requests are under way."""
        with self._turn(request) as instance:
            # The instance has an event loop of its own in another thread.
            return await asyncio.wrap_future(instance.submit(request))

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """See Scheduler.stream. Raises Overloaded when too many requests are under way."""
        items: asyncio.Queue[InferResponse | BaseException | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        with self._turn(request) as instance:
            # call_soon_threadsafe, since answers come from that thread.
            flow = instance.flow(request, partial(tell, loop, items.put_nowait))
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
        if self._under_way():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), timeout_s)
        # Closing waits for the model's loop, which the server's must not.
        closes = [asyncio.to_thread(load.instance.close) for load in self._loads]
        await asyncio.gather(*closes, *self._closing)

    @property
    def instances(self) -> Sequence[Instance]:
        """See Resizable.instances."""
        return [load.instance for load in self._loads if not load.is_leaving]

    def grow(self, instance: Opened) -> None:
        """See Resizable.grow."""
        load = _InstanceLoad(instance)
        self._loads.append(load)
        if self._is_closed:
            self._dismiss(load)

    def shrink(self, kind: Hashable = None) -> None:
        """See Resizable.shrink. The instance with the fewest requests under way goes."""
        staying = [load for load in self._loads if not load.is_leaving]
        some = [load for load in staying if kind in (None, load.kind)]
        # The last one stays, because a request must always find one.
        if len(staying) > 1 and some and not self._is_closed:
            load = min(some, key=attrgetter("under_way"))
            load.is_leaving = True
            if not load.under_way:
                self._dismiss(load)

    def _dismiss(self, load: _InstanceLoad) -> None:
        self._loads.remove(load)
        closing = asyncio.get_running_loop().create_task(asyncio.to_thread(load.instance.close))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _under_way(self) -> int:
        return sum([load.under_way for load in self._loads])

    @contextmanager
    def _turn(self, request: InferRequest) -> Iterator[ConcurrentInstance]:
        """Count a request while it is under way, and turn its failure into an InferdError."""
        if self._is_closed:
            raise unloading(self._model)
        # There is no queue here whose length could be bounded, so what runs is.
        if self._under_way() >= MAX_WAITING:
            msg = f"model '{self._model}' has {MAX_WAITING} requests under way; try again later"
            raise Overloaded(msg)
        # Not round robin: requests of asynchronous models differ in length by orders of magnitude.
        load = min([one for one in self._loads if not one.is_leaving], key=attrgetter("under_way"))
        load.under_way += 1
        request.started_ns = self._clock()
        try:
            yield load.instance
        # A reader that leaves is no failure of the model.
        except (InferdError, GeneratorExit):
            raise
        except asyncio.CancelledError as error:
            if self._is_closed:  # it did not end in time
                raise unloading(self._model) from error
            if is_cancelled():
                raise
            raise failure(self._model, error) from error  # the model's own task was cancelled
        except Exception as error:
            raise failure(self._model, error) from error
        finally:
            request.ended_ns = self._clock()
            load.under_way -= 1
            if self._is_closed and not self._under_way():
                self._idle.set()
            elif load.is_leaving and not load.under_way and not self._is_closed:
                self._dismiss(load)
