"""Paused: a coroutine that waits without a task, and how its result is delivered."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from inferd.core.later import Later, resumed


def bring(later: Later[Any], result: Any) -> None:
    """Deliver `result` to whatever waits for `later`."""
    later.set_result(result)
    then = later.then
    if then is not None:
        then()


def fail(later: Later[Any], error: BaseException) -> None:
    """Raise `error` in whatever waits for `later`."""
    later.set_exception(error)
    then = later.then
    if then is not None:
        then()


class Paused:
    """A coroutine that waits for `later` without a task.

    `wake` is called when the result is there; the code that paused the coroutine then calls
    `go_on`, not necessarily at once.
    """

    __slots__ = ("_has_gone_on", "later", "running")

    def __init__(
        self, running: Coroutine[Any, Any, Any], later: Later[Any], wake: Callable[[], None]
    ) -> None:
        self.running = running
        self.later = later
        self._has_gone_on = False
        later.then = wake

    def go_on(self) -> Any:
        """Resume it and return what it waits for next. Raises StopIteration, and its errors."""
        self._has_gone_on = True
        return self.running.send(None)

    def cancel(self) -> None:
        """Raise CancelledError in it, unless it has been resumed."""
        if self._has_gone_on:
            return
        self._has_gone_on = True
        self.later.then = None  # it refers to whoever paused this, and so does this to it
        try:
            waits_for = self.running.throw(asyncio.CancelledError())
        except (Exception, asyncio.CancelledError):  # noqa: BLE001  nobody awaits it any more
            return
        ending = resumed(self.running, waits_for)
        asyncio.get_running_loop().create_task(ending)
