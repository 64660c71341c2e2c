"""Driven: a coroutine that waits without a task, and how its result is delivered."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from inferd.aio.promise import Promise, resumed


def fulfil(later: Promise[Any], result: Any) -> None:
    """Deliver `result` to whatever waits for `later`."""
    later.set_result(result)
    then = later.then
    if then is not None:
        then()


def reject(later: Promise[Any], error: BaseException) -> None:
    """Raise `error` in whatever waits for `later`."""
    later.set_exception(error)
    then = later.then
    if then is not None:
        then()


class Driven:
    """A coroutine that waits for a result without a task.

    `wake` is called when the result is there; the code that paused the coroutine then calls
    `go_on`, not necessarily at once. Then, or if it is cancelled, it lets go of the result: what
    that refers to, its error's frames or whoever is to be woken, refers to this.
    """

    __slots__ = ("_later", "running")

    def __init__(
        self, running: Coroutine[Any, Any, Any], later: Promise[Any], wake: Callable[[], None]
    ) -> None:
        self.running = running
        self._later: Promise[Any] | None = later
        later.then = wake

    def is_due(self) -> bool:
        """Return whether the result is there and `go_on` has not been called."""
        later = self._later
        return later is not None and later.done()

    def go_on(self) -> Any:
        """Resume it and return what it waits for next. Raises StopIteration, and its errors."""
        self._later = None
        return self.running.send(None)

    def cancel(self) -> None:
        """Raise CancelledError in it, unless it has been resumed."""
        later, self._later = self._later, None
        if later is None:
            return
        later.then = None
        try:
            waits_for = self.running.throw(asyncio.CancelledError())
        except (Exception, asyncio.CancelledError):  # noqa: BLE001  nobody awaits it any more
            return
        ending = resumed(self.running, waits_for)
        asyncio.get_running_loop().create_task(ending)
