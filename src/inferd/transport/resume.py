"""Going on with a coroutine that was started without a task.

A handler that never waits costs no task: its connection starts it with `send(None)`. One that waits
once, as most inferences do that wait at all, goes on in a callback of the future it waits for,
which costs a third of what a task does. Only then a task takes over. So an inference may run
outside of any task, and what needs one there, such as asyncio.timeout, makes one.
"""

import asyncio
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar, cast

T = TypeVar("T")


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


class Later:
    """Begins with `running` at once, and has it go on when what it waits for has come.

    It may be cancelled like a task, but not waited for.
    """

    __slots__ = ("_future", "_is_cancelled", "_running", "_task")

    def __init__(self, running: Coroutine[Any, Any, None]) -> None:
        self._running = running
        self._is_cancelled = False
        self._future: asyncio.Future[Any] | None = None
        self._task: asyncio.Task[None] | None = None
        try:
            waits_for = running.send(None)
        except StopIteration:
            return
        if getattr(waits_for, "_asyncio_future_blocking", False):
            waits_for._asyncio_future_blocking = False  # which says that it has been seen
            waits_for.add_done_callback(self._go_on)
            self._future = waits_for
        else:
            self._task = asyncio.get_running_loop().create_task(_rest_of(running, waits_for))

    def cancel(self) -> None:
        """Raise CancelledError where it waits, unless it has ended; not from within."""
        if self._task is not None:
            self._task.cancel()
        elif self._future is not None and not self._future.cancel():
            self._is_cancelled = True  # what it waits for is there, and it was about to go on

    def _go_on(self, future: "asyncio.Future[Any]") -> None:
        self._future = None
        try:
            if self._is_cancelled:
                waits_for = self._running.throw(asyncio.CancelledError())
            else:
                waits_for = self._running.send(None)
        except (StopIteration, asyncio.CancelledError):
            return
        self._task = future.get_loop().create_task(_rest_of(self._running, waits_for))


async def _rest_of(running: Coroutine[Any, Any, None], waits_for: Any) -> None:
    await resume(running, waits_for)
