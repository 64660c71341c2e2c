"""Driver: drives a coroutine by hand; and how promises, which it waits for, are kept or broken."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from inferd.aio.promise import Promise, resume, resumed

T = TypeVar("T")


def fulfil(promise: Promise[T], result: T) -> None:
    """Deliver `result` to whatever waits for `promise`."""
    # Before `then`, which looks for the result. If a task waits instead, the future wakes it.
    promise.set_result(result)
    then = promise.then
    if then is not None:
        then()


def reject(promise: Promise[T], error: BaseException) -> None:
    """Raise `error` in whatever waits for `promise`."""
    promise.set_exception(error)
    then = promise.then
    if then is not None:
        then()


class Driver:
    """Drives a coroutine; a task takes over only if it waits for something other than promises.

    `wake` is called when the promise it waits for is there; its owner then calls `go_on`, not
    necessarily at once. `ended` gets its result or the error that ended it, in the place that made
    it end; it must not raise that error, whose traceback would then hold `ended`'s frame, and that
    frame the error. At each step, or if it is cancelled, it lets go of the promise: what that
    refers to, its error's frames or whoever is to be woken, refers to this. The owner lets go of it
    in `ended`. `has_task` tells whether a task has taken over.
    """

    def __init__(
        self,
        running: Coroutine[object, None, Any],
        wake: Callable[[], None],
        ended: Callable[[Any, BaseException | None], None],
    ) -> None:
        self._running = running
        self._wake = wake
        self._ended = ended
        self._promise: Promise[Any] | None = None
        self._task: asyncio.Task[None] | None = None
        self.has_task = False

    def step(self) -> None:
        """Run it until it waits or ends."""
        self._promise = None
        try:
            waits_for = self._running.send(None)
        except StopIteration as done:
            result = done.value
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  it is its owner's
            self._ended(None, error)
            return
        else:
            # Exactly: a subclass may mean something else by `then`.
            if type(waits_for) is Promise:
                self._promise = waits_for
                waits_for.then = self._wake
            else:
                self.has_task = True
                running = self._take_over(waits_for)
                # What it waits for is asyncio's, which only a task can await.
                self._task = asyncio.get_running_loop().create_task(running)
            return
        self._ended(result, None)

    def is_due(self) -> bool:
        """Return whether what it waited for is there, and `go_on` has not been called."""
        promise = self._promise
        return promise is not None and promise.done()

    def go_on(self) -> None:
        """Continue if it is due."""
        if self.is_due():
            self.step()

    def cancel(self) -> None:
        """Raise CancelledError in it, unless it has ended."""
        if self._task is not None:
            self._task.cancel()
            return
        promise, self._promise = self._promise, None
        if promise is None:
            return
        # The promise may still be fulfilled, and must not wake what has ended.
        promise.then = None
        try:
            waits_for = self._running.throw(asyncio.CancelledError())
        except (Exception, asyncio.CancelledError):  # noqa: BLE001  nobody awaits it any more
            return
        # Its `finally` blocks wait for something, so they need a task to run to their end.
        ending = resumed(self._running, waits_for)
        self._task = asyncio.get_running_loop().create_task(ending)

    async def _take_over(self, waits_for: object) -> None:
        try:
            result = await resume(self._running, waits_for)
        except asyncio.CancelledError as error:
            self._task = None  # it keeps the error, and with its frames what they hold
            self._ended(None, error)
            raise
        except Exception as error:  # noqa: BLE001  it is its owner's
            self._task = None
            self._ended(None, error)
            return
        self._task = None
        self._ended(result, None)


def cancel_soon(running: "Driver | asyncio.Task[None]") -> None:
    """Cancel what has been started by hand, or in a task of its own.

    Not at once: a task that has never run would not pass the cancellation on to the coroutine it
    took over.
    """
    asyncio.get_running_loop().call_soon(running.cancel)
