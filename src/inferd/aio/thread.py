"""Runs work that waits for disks, models or frameworks in threads that never delay an exit."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

_Result = TypeVar("_Result")


async def in_daemon_thread(
    function: Callable[[], _Result],
    given_up: Callable[[_Result], None] | None = None,
    name: str = "inferd-load",
) -> _Result:
    """Return `function()`, run in a thread of its own; raise what it raises.

    If it hangs, the thread does not keep the process from ending. When the caller is cancelled the
    function runs on, and its result is then passed to `given_up`, on the event loop.
    """
    return await started(function, name, given_up)


def started(
    function: Callable[[], _Result],
    name: str,
    given_up: Callable[[_Result], None] | None = None,
    left: Callable[[], None] | None = None,
) -> "asyncio.Future[_Result]":
    """Start the thread; `left` is called on the event loop when it has ended, or cannot be started.

    No frame that an exception passes through may keep the future. It holds the exception, which
    holds the frames and with them the arguments: such a cycle would keep all of it in memory until
    the garbage collector runs. Raises RuntimeError when the system is out of threads.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Result] = loop.create_future()
    # A list, so that `ended` can take the future out and leave no reference to it in a frame.
    waiting = [done]

    def ended(result: Any, error: BaseException | None) -> None:
        # Not by the caller: it may have been cancelled while the thread was still busy.
        if left is not None:
            left()
        done = waiting.pop()
        if done.done():
            # What was opened for a caller that has left must be closed by somebody.
            if error is None and given_up is not None:
                given_up(result)
        elif error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def run() -> None:
        result = error = None
        try:
            result = function()
        # KeyboardInterrupt and SystemExit of a model must not end the thread in silence.
        except BaseException as raised:  # noqa: BLE001  the caller gets it
            error = raised
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(ended, result, error)
        del result, error  # the frames that the error holds include this one

    try:
        # A framework that hangs must not keep the process from ending.
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError:
        if left is not None:
            left()
        raise
    return done
