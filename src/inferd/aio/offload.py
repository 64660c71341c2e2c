"""Offload: runs work that would hold up the event loop in threads, one or a few at a time."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar, TypeVarTuple

from inferd.errors import Overloaded

MAX_WAITING = 1000
"""How many calls may use one lane or wait for it; more are refused as Overloaded."""

_Args = TypeVarTuple("_Args")
_Result = TypeVar("_Result")


class Offload:
    """Runs functions in threads, one at a time: the work is large, and two need twice the memory.

    `width` lets a few run at once, for work that releases the interpreter lock. A caller cancelled
    while waiting leaves nothing behind. Each call gets a new daemon thread (about 50 µs, for calls
    that take milliseconds): there is nothing to close, and nothing keeps the process from exiting.
    """

    def __init__(self, name: str, width: int = 1) -> None:
        self._name = name
        self._free = asyncio.Semaphore(width)
        self._count = 0

    async def run(self, function: Callable[[*_Args], _Result], *args: *_Args) -> _Result:
        """Return `function(*args)`, run in a thread once earlier calls have ended.

        Raises what the function raises, and Overloaded if too many calls wait.
        """
        if self._count >= MAX_WAITING:
            msg = f"{MAX_WAITING} large requests are waiting to be read or written; try again later"
            raise Overloaded(msg)
        self._count += 1
        try:
            await self._free.acquire()
        except BaseException:
            self._count -= 1
            raise
        return await self._started(function, args)

    def _started(
        self, function: Callable[[*_Args], _Result], args: tuple[*_Args]
    ) -> "asyncio.Future[_Result]":
        """Start the thread. No frame that an exception passes through may keep the future.

        The future holds the exception, which holds the frames and with them the arguments: such a
        cycle would keep all of it in memory until the garbage collector runs.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_Result] = loop.create_future()
        waiting = [done]

        def work() -> None:
            try:
                tell = partial(_succeed, function(*args))
            except BaseException as error:  # noqa: BLE001  the caller gets it
                tell = partial(_fail, error)
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(finish, tell)
            del tell

        def finish(tell: Callable[[asyncio.Future[_Result]], None]) -> None:
            # Not in the caller: it may have been cancelled while the thread was still busy.
            self._leave()
            done = waiting.pop()
            if not done.done():
                tell(done)

        try:
            threading.Thread(target=work, name=self._name, daemon=True).start()
        except RuntimeError:  # the system is out of threads
            self._leave()
            raise
        return done

    def _leave(self) -> None:
        self._free.release()
        self._count -= 1


def _succeed(result: _Result, done: "asyncio.Future[_Result]") -> None:
    done.set_result(result)


def _fail(error: BaseException, done: "asyncio.Future[_Result]") -> None:
    done.set_exception(error)
