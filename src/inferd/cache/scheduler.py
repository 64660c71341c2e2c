"""CachingScheduler: answers a request like one before it without running the model.

It stands before a model version's own scheduler, so a hit waits in no queue. The model's answer is
kept as it is checked, before anything is made of it that hangs on how this client wants it: classes
and places in shared memory are made of kept answers as of new ones.

What clients may still write to is never trusted: inputs in shared memory are copied before they are
looked at, and no backend writes into a client's place an answer that is to be kept. Else one client
could have its own answer kept for the question of another.

Requests that belong to a sequence go past the cache: their answers hang on those before. So do
requests without a key. The same request may run more than once while its first answer is not there
yet.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable

from inferd.cache.answer import Answer, Piece, unpacked
from inferd.cache.key import key_of, private
from inferd.cache.store import Shelf, Store
from inferd.core.interfaces import GatheringScheduler, Scheduler
from inferd.core.request import InferRequest, InferResponse, WantedOutput
from inferd.observe.stats import Counts

log = logging.getLogger("inferd.cache")

INLINE_BYTES = 512 << 10
"""So much is hashed or copied on the event loop at once: a third of a millisecond."""

MAX_COPIED_BYTES = 256 << 20
"""Requests with more bytes of inputs in shared memory go past the cache."""

Identity = Callable[[], bytes | None]
"""Tells what answers now: other bytes when answers may be others. None: that is not known."""

Check = Callable[[InferRequest, InferResponse], None]
"""Raises InferdError for an answer that is not what the model's configuration says."""


class CachingScheduler:
    """Keeps the answers of `scheduler` in `store`; `identity` tells what it is that answers.

    An answer is kept when it passes `check`. Misses are counted in `counts`; hits are seen there
    by their times: they were never started.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        store: Store,
        identity: Identity,
        check: Check,
        counts: Counts,
    ) -> None:
        self._scheduler = scheduler
        self._store = store
        self._shelf: Shelf | None = store.shelf()
        self._identity = identity
        self._check = check
        self._counts = counts
        self._clock = counts.clock

    @property
    def pending_count(self) -> int:
        """See Scheduler.pending_count."""
        return self._scheduler.pending_count

    async def run(self, request: InferRequest) -> InferResponse:
        """See Scheduler.run."""
        shelf, identity = self._shelf, self._identity()
        sequence = request.sequence
        if shelf is None or identity is None or (sequence is not None and sequence.id):
            return await self._scheduler.run(request)
        began_ns = self._clock()
        key = await _key(request, identity)
        if key is None:
            return await self._scheduler.run(request)
        answer = _read(await shelf.find(key))
        looked_ns = self._clock() - began_ns
        counts = self._store.counts
        counts.lookup_ns += looked_ns
        if answer is not None:
            counts.hit_count += 1
            request.queued_ns, request.ended_ns = began_ns, began_ns + looked_ns
            request.shared = True  # with the request that ran
            return answer
        counts.miss_count += 1
        kept_ns = 0
        try:
            response = await self._run_apart(request)
            began_ns = self._clock()
            self._check(request, response)
            if self._shelf is shelf and self._identity() == identity:
                await self._keep(shelf, key, response)
            kept_ns = self._clock() - began_ns
            counts.insertion_ns += kept_ns
            # What the miss took is part of the request, but of no queue and no execution.
            answered_ns = request.answered_ns or request.ended_ns
            request.answered_ns = answered_ns + looked_ns + kept_ns
        finally:
            self._counts.add_cache_miss(looked_ns + kept_ns)
        return response

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """See Scheduler.stream; there is one answer."""
        yield await self.run(request)

    def hurry(self) -> None:
        """See GatheringScheduler.hurry."""
        if isinstance(self._scheduler, GatheringScheduler):
            self._scheduler.hurry()

    async def close(self, timeout_s: float) -> None:
        """See Scheduler.close. What was kept is forgotten at once."""
        shelf, self._shelf = self._shelf, None
        if shelf is not None:
            shelf.clear()
        await self._scheduler.close(timeout_s)

    async def _run_apart(self, request: InferRequest) -> InferResponse:
        """Run `request` so that nothing of the answer lies where its client can write."""
        if request.spans is None:
            return await self._scheduler.run(request)
        wanted = request.outputs
        request.outputs = [WantedOutput(one.name, one.binary, one.top_k) for one in wanted]
        try:
            return await self._scheduler.run(request)
        finally:
            request.outputs = wanted

    async def _keep(self, shelf: Shelf, key: bytes, response: InferResponse) -> None:
        answer = Answer(response)
        if answer.size_bytes > self._store.largest_bytes:
            return
        if answer.size_bytes <= INLINE_BYTES:
            piece = answer.packed()
        else:
            try:
                piece = await asyncio.to_thread(answer.packed_in_thread)
            except MemoryError:
                log.warning("no memory to keep an answer of %d bytes", answer.size_bytes)
                return
        if self._shelf is shelf:
            await shelf.keep(key, piece)


async def _key(request: InferRequest, identity: bytes) -> bytes | None:
    size_bytes = sum([tensor.size_bytes for tensor in request.inputs])
    if request.spans is None:
        if size_bytes <= INLINE_BYTES:
            return key_of(request, identity)
        return await asyncio.to_thread(key_of, request, identity)
    if size_bytes > MAX_COPIED_BYTES:
        return None
    return await asyncio.to_thread(_key_of_copies, request, identity)


def _key_of_copies(request: InferRequest, identity: bytes) -> bytes | None:
    try:
        request.inputs = [private(tensor) for tensor in request.inputs]
    except MemoryError:
        return None
    return key_of(request, identity)


def _read(piece: Piece | None) -> InferResponse | None:
    if piece is None:
        return None
    try:
        return unpacked(piece)
    except ValueError as error:
        log.warning("%s", error)
        return None
