"""Later: what one request waits for, and somebody else on the event loop brings.

To a task it is a future like any other. Who drives a coroutine without a task sets `then` instead,
which is called at once: no task, and no turn of the event loop to wake it.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Later(asyncio.Future[T]):
    """A result that one waits for; `then` is called when it is there."""

    then: Callable[[], None] | None = None

    def bring(self, result: T) -> None:
        """Give it to who waits."""
        self.set_result(result)
        if self.then is not None:
            self.then()

    def fail(self, error: BaseException) -> None:
        """Raise `error` where it is waited for."""
        self.set_exception(error)
        if self.then is not None:
            self.then()
