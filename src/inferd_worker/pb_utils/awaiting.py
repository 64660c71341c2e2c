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

    from .calls import Calls, Describe, PendingCall
    from .response import InferenceResponse


def begin_run(calls: Calls, describe: Describe, *, decoupled: bool) -> object:
    """See InferenceRequest.async_exec.

    The request is written at once: whoever made its arrays may fill them anew while it runs.
    """
    loop = asyncio.get_running_loop()
    try:
        pending = calls.send(describe, decoupled=decoupled, loop=loop)
    except Exception as error:  # noqa: BLE001  whoever awaits it gets it
        # As an awaitable that fails, since Triton's async_exec raises when it is awaited.
        failed = loop.create_future()
        failed.set_exception(error)
        return failed
    replied = loop.create_task(_replied(calls, pending, loop, decoupled=decoupled))

    def end(_: Any) -> None:
        if replied.cancelled():  # maybe before it began
            calls.hang_up(pending)

    # Not within _replied: a task that is cancelled before its first step never runs its coroutine.
    replied.add_done_callback(end)
    return replied


async def _replied(calls: Calls, pending: PendingCall, loop: object, *, decoupled: bool) -> object:
    with _Reading(calls, loop):
        try:
            await _any(pending)
        except BaseException:
            calls.hang_up(pending)
            raise
    # The first response is waited for here, as in Triton: `for` would hold the event loop up.
    return Responses(calls, pending) if decoupled else pending.replies.pop(0)


async def _any(pending: PendingCall) -> None:
    """Wait until there is a reply."""
    while not pending.replies:
        pending.waiter = pending.loop.create_future()
        await pending.waiter


class Responses:
    """The responses of a decoupled model, as they come; the last may be empty."""

    def __init__(self, calls: Calls, pending: PendingCall) -> None:
        self._calls = calls
        self._pending = pending
        self._is_over = False

    def __iter__(self) -> Iterator[InferenceResponse]:
        return self

    def __next__(self) -> InferenceResponse:
        if self._is_over:
            raise StopIteration
        return self._taken(self._calls.wait(self._pending))

    def __aiter__(self) -> Responses:
        return self

    async def __anext__(self) -> InferenceResponse:
        if self._is_over:
            raise StopAsyncIteration
        # The loop that iterates need not be that of async_exec.
        loop = self._pending.loop = asyncio.get_running_loop()
        with _Reading(self._calls, loop):
            await _any(self._pending)
        return self._taken(self._pending.replies.pop(0))

    def _taken(self, response: InferenceResponse) -> InferenceResponse:
        self._is_over = self._pending.is_over and not self._pending.replies
        self._calls.credit(self._pending)
        return response

    def cancel(self) -> None:
        """Give up the remaining responses."""
        self._is_over = True
        self._calls.hang_up(self._pending)

    def __del__(self) -> None:
        if not self._is_over:
            # A finalizer may run when the line has gone already, and cannot raise.
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
        # asyncio has one reader for a descriptor: a second add_reader would replace the first.
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
