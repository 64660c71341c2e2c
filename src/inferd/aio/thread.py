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
    done: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()

    def ended(result: Any, error: BaseException | None) -> None:
        if not done.done():
            settle(done, result, error)
        # What was opened for a caller that has left must be closed by somebody.
        elif error is None and given_up is not None:
            given_up(result)

    start_thread(function, ended, name)
    return await done


def start_thread(
    function: Callable[[], object], ended: Callable[[object, BaseException | None], None], name: str
) -> None:
    """Run `function` in a daemon thread; its result or error goes to `ended`, on the event loop."""
    loop = asyncio.get_running_loop()

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

    # A framework that hangs must not keep the process from ending.
    threading.Thread(target=run, name=name, daemon=True).start()


def settle(done: "asyncio.Future[_Result]", result: _Result, error: BaseException | None) -> None:
    """Settle `done` with the `result`, or the error if there is one."""
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
