"""Runs work that waits for disks, models or frameworks in threads that never delay an exit."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

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
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Result] = loop.create_future()

    def succeed(result: _Result) -> None:
        if not done.done():
            done.set_result(result)
        elif given_up is not None:
            given_up(result)

    def fail(error: BaseException) -> None:
        if not done.done():
            done.set_exception(error)

    def work() -> None:
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001  the caller gets it
            with suppress(RuntimeError):  # the loop has closed: no caller is left
                loop.call_soon_threadsafe(fail, error)
        else:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(succeed, result)

    threading.Thread(target=work, name=name, daemon=True).start()
    return await done
