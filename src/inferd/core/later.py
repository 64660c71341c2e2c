"""Coroutines that are driven by hand, and what they wait for.

A handler that never waits costs no task: whoever has it starts it with `send(None)`. One that waits
for a Later, as most requests do that wait, is gone on with when that is there (paused.py, compiled
where this cannot be); for anything else a task takes over.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar, cast

T = TypeVar("T")


class Later(asyncio.Future[T]):
    """What one waits for, and somebody else on the event loop brings.

    To a task it is a future like any other. Who drives a coroutine sets `then` instead, which
    `bring` and `fail` call at once: no task, and no turn of the event loop to wake it.
    """

    then: Callable[[], None] | None = None


@coroutine
def resume(running: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Go on with a coroutine that has been started by hand and now waits for `waits_for`."""
    while True:
        try:
            try:
                got = yield waits_for
            except BaseException as error:  # noqa: BLE001  a cancellation is passed on as well
                waits_for = None  # it holds the error, whose traceback holds this frame
                waits_for = running.throw(error)
            else:
                waits_for = running.send(got)
        except StopIteration as done:
            return cast("T", done.value)


async def driven(running: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that may be compiled, in a task: see `resumed`."""
    return await running


async def resumed(running: Coroutine[Any, Any, T], waits_for: Any) -> T:
    """Go on as `resume` does, in a task: from Python 3.12 on that takes nothing but a coroutine."""
    return await resume(running, waits_for)
