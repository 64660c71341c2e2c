"""Awaiting: replies to calls, awaited on an event loop.

This module is not compiled: the awaitables have to be the interpreter's own coroutines.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from ..line import LineClosed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .calls import Calls, Describe, Slot
    from .response import InferenceResponse


def begin_run(calls: Calls, describe: Describe, *, decoupled: bool) -> Any:
    """See InferenceRequest.async_exec."""
    return asyncio.ensure_future(_run(calls, describe, decoupled=decoupled))


async def _run(calls: Calls, describe: Describe, *, decoupled: bool) -> Any:
    loop = asyncio.get_running_loop()
    slot = calls.send(describe, decoupled=decoupled, loop=loop)
    if decoupled:
        return Responses(calls, slot)
    with _Reading(calls, loop):
        try:
            return await _next(slot)
        except BaseException:
            calls.hang_up(slot)
            raise


async def _next(slot: Slot) -> Any:
    while not slot.replies:
        slot.waiter = slot.loop.create_future()
        await slot.waiter
    return slot.replies.pop(0)


class Responses:
    """The responses of a decoupled model, as they come; the last may be empty."""

    def __init__(self, calls: Calls, slot: Slot) -> None:
        self._calls = calls
        self._slot = slot
        self._is_over = False

    def __iter__(self) -> Iterator[InferenceResponse]:
        return self

    def __next__(self) -> InferenceResponse:
        if self._is_over:
            raise StopIteration
        return self._taken(self._calls.wait(self._slot))

    def __aiter__(self) -> Responses:
        return self

    async def __anext__(self) -> InferenceResponse:
        if self._is_over:
            raise StopAsyncIteration
        loop = self._slot.loop = asyncio.get_running_loop()
        with _Reading(self._calls, loop):
            return self._taken(await _next(self._slot))

    def _taken(self, response: InferenceResponse) -> InferenceResponse:
        self._is_over = self._slot.is_over and not self._slot.replies
        self._calls.credit(self._slot)
        return response

    def cancel(self) -> None:
        """Give up the remaining responses."""
        self._is_over = True
        self._calls.hang_up(self._slot)

    def __del__(self) -> None:
        if not self._is_over:
            with contextlib.suppress(LineClosed):
                self.cancel()


class _Reading:
    """Has an event loop read the line while it is entered, unless that loop does so anyway."""

    def __init__(self, calls: Calls, loop: Any) -> None:
        self._calls = calls
        self._loop = loop

    def __enter__(self) -> None:
        calls, loop = self._calls, self._loop
        if loop is calls.loop:
            return
        count = calls.readers.get(loop, 0)
        calls.readers[loop] = count + 1
        if not count:
            loop.add_reader(calls.line.fileno(), calls.line.look)

    def __exit__(self, *_: object) -> None:
        calls, loop = self._calls, self._loop
        if loop is calls.loop:
            return
        calls.readers[loop] -= 1
        if not calls.readers[loop]:
            del calls.readers[loop]
            loop.remove_reader(calls.line.fileno())
