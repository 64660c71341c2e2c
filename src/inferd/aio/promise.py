"""Coroutines that are driven by hand, and what they wait for.

A coroutine that never waits costs no task if it is driven by hand. One that waits for a Promise, as
most requests that wait do, is resumed when the result is there; if it waits for anything else, a
task takes over: see driver.py, which is compiled; this module cannot be.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import TypeVar, cast

T = TypeVar("T")


class Promise(asyncio.Future[T]):
    """A result to wait for, which something else on the event loop delivers.

    To a task it is a future like any other. A Driver sets `then` instead, which `fulfil` and
    `reject` call at once: no task, and no loop iteration to wake it.
    """

    then: Callable[[], None] | None = None


def is_cancelled() -> bool:
    """Return whether the current task is to end; a CancelledError may have other reasons.

    Not a method of whoever knows the task: the frame of an error must not refer to the task, which
    refers to the error.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@coroutine
def resume(running: Coroutine[object, None, T], waits_for: object) -> Generator[object, None, T]:
    """Resume a coroutine that was started by hand and now waits for `waits_for`."""
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
            # StopIteration.value is Any.
            return cast("T", done.value)


# A compiled coroutine is of another class than the interpreter's, which alone a task takes.
async def driven(running: Coroutine[object, None, T]) -> T:
    """Run a coroutine that may be compiled, in a task: see `resumed`."""
    return await running


async def resumed(running: Coroutine[object, None, T], waits_for: object) -> T:
    """Resume as `resume` does, in a task: from Python 3.12 on, a task takes only coroutines."""
    return await resume(running, waits_for)
