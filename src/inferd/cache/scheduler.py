"""CachingScheduler: answers a repeated request from the cache, without running the model.

It wraps a model version's own scheduler, so a hit waits in no queue. The model's answer is kept as
soon as it is checked, before it is adapted to how this client wants it: classification and writing
to shared memory happen to kept answers as to new ones.

Memory that clients may still write to is never trusted: inputs in shared memory are copied before
they are read, and no backend writes an answer that is to be kept into a client's memory. Otherwise
one client could have its own answer kept for the request of another.

Requests that belong to a sequence bypass the cache: their answers depend on those before. So do
requests without a key. The same request may run more than once until its first answer is there.

A *key* is everything an answer depends on, as 32 bytes: the SHA-256 of the identity of what
answers, and of everything in the request that a model can see: names, datatypes, shapes and bytes
of the inputs in their order, parameters, sequence flags, and the wanted outputs. Two requests with
one key are the same request; nobody can construct a different one with the same key, so a client
cannot put its answers in place of someone else's. How outputs are sent, and which classes of them
are wanted, is left out: that is applied to the answer later.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec
import numpy as np

from inferd.cache.store import CachedAnswer, Packed, Shelf, Store, unpacked
from inferd.core.interfaces import GatheringScheduler, Scheduler
from inferd.core.request import InferRequest, InferResponse, WantedOutput
from inferd.core.streaming import one_answer
from inferd.observe.stats import Counts
from inferd.tensor.tensor import Tensor

_LENGTH_BYTES = 8


def key_of(request: InferRequest, identity: bytes) -> bytes | None:
    """Return the key of a checked `request`, None when it has none.

    It has none if a parameter is an integer beyond 64 bits, or text that is not valid Unicode.
    """
    inputs = request.inputs
    views = [tensor.view() for tensor in inputs]
    words = (
        identity,
        [
            (t.name, t.datatype, t.shape, len(view), _in_order(t.parameters))
            for t, view in zip(inputs, views, strict=True)
        ],
        _in_order(request.parameters),
        [wanted.name for wanted in request.outputs],
        (sequence.start, sequence.end) if (sequence := request.sequence) is not None else None,
    )
    try:
        # MessagePack prefixes lengths, so that two different lists never give the same bytes.
        head = msgspec.msgpack.encode(words)
    except (OverflowError, UnicodeEncodeError):
        return None
    # The length first, so that bytes of an input cannot pass for a part of the head.
    digest = hashlib.sha256(len(head).to_bytes(_LENGTH_BYTES, "little"))
    digest.update(head)
    for view in views:
        digest.update(view)
    return digest.digest()


def private(tensor: Tensor) -> Tensor:
    """Return `tensor` with a copy of its bytes, which no client can change. Raises MemoryError."""
    view = tensor.view()
    copy = np.empty(len(view), np.uint8)
    np.copyto(copy, np.frombuffer(view, np.uint8))  # other threads may run meanwhile
    return Tensor(tensor.name, tensor.datatype, tensor.shape, copy.data, tensor.parameters)


def _in_order(parameters: Any) -> Any:
    # JSON objects and protobuf maps have no order.
    return sorted(parameters.items()) if parameters else None


log = logging.getLogger("inferd.cache")

INLINE_BYTES = 512 << 10
"""The most that is hashed or copied on the event loop at once: a third of a millisecond."""

MAX_COPIED_BYTES = 256 << 20
"""Requests with shared memory whose inputs have more bytes bypass the cache."""

Identify = Callable[[], bytes | None]
"""Identifies what answers now: the bytes differ when answers may differ. None: not known."""

CheckResponse = Callable[[InferRequest, InferResponse], None]
"""Raises InferdError for an answer that does not match the model's configuration."""


class CachingScheduler:
    """Keeps the answers of `scheduler` in `store`; `identity` identifies what answers.

    An answer is kept when it passes `check`. Misses are counted in `counts`; hits are recognized
    there by their times: they were never started.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        store: Store,
        identity: Identify,
        check: CheckResponse,
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
            request.shared = True  # with the request that was run
            return answer
        counts.miss_count += 1
        insertion_ns = 0
        try:
            response = await self._run_apart(request)
            began_ns = self._clock()
            self._check(request, response)
            # The model may have been reloaded while it ran; its answer
            # then belongs to neither identity.
            if self._shelf is shelf and self._identity() == identity:
                await self._keep(shelf, key, response)
            insertion_ns = self._clock() - began_ns
            counts.insertion_ns += insertion_ns
            # What the miss took is part of the request, but of no queue and no execution.
            answered_ns = request.answered_ns or request.ended_ns
            request.answered_ns = answered_ns + looked_ns + insertion_ns
        finally:
            self._counts.add_cache_miss(looked_ns + insertion_ns)
        return response

    def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """See Scheduler.stream; there is one answer."""
        return one_answer(self.run, request)

    def hurry(self) -> None:
        """See GatheringScheduler.hurry."""
        if isinstance(self._scheduler, GatheringScheduler):
            self._scheduler.hurry()

    async def close(self, timeout_s: float) -> None:
        """See Scheduler.close. Clears the shelf at once."""
        shelf, self._shelf = self._shelf, None
        if shelf is not None:
            shelf.clear()
        await self._scheduler.close(timeout_s)

    async def _run_apart(self, request: InferRequest) -> InferResponse:
        """Run `request` so that no part of the answer is where its client can write."""
        if request.spans is None:
            return await self._scheduler.run(request)
        wanted = request.outputs
        # Without the places in shared memory: the backend then writes into memory of its own.
        request.outputs = [WantedOutput(one.name, one.binary, one.top_k) for one in wanted]
        try:
            return await self._scheduler.run(request)
        finally:
            request.outputs = wanted

    async def _keep(self, shelf: Shelf, key: bytes, response: InferResponse) -> None:
        answer = CachedAnswer(response)
        if answer.size_bytes > self._store.largest_bytes:
            return
        if answer.size_bytes <= INLINE_BYTES:
            packed = answer.packed()
        else:
            try:
                packed = await asyncio.to_thread(answer.packed_in_thread)
            except MemoryError:
                log.warning("no memory to keep an answer of %d bytes", answer.size_bytes)
                return
        # Again, after the wait for the thread.
        if self._shelf is shelf:
            await shelf.keep(key, packed)


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
        # For the model, too, which must compute the answer from the bytes that the key was made of.
        request.inputs = [private(tensor) for tensor in request.inputs]
    except MemoryError:
        return None
    return key_of(request, identity)


def _read(packed: Packed | None) -> InferResponse | None:
    if packed is None:
        return None
    try:
        return unpacked(packed)
    except ValueError as error:
        log.warning("%s", error)
        return None
