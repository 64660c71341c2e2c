"""Lane: what would hold up the event loop is done in a thread, one or a few at a time."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar, TypeVarTuple

from inferd.errors import Overloaded

MAX_WAITING = 1000
"""How many may wait for one lane; more are refused as Overloaded."""

_Args = TypeVarTuple("_Args")
_Result = TypeVar("_Result")


class Lane:
    """Runs functions in threads, one at a time: what comes here is big, two need twice the memory.

    `width` lets a few run at once, for what leaves the interpreter to others meanwhile. Who is
    cancelled while waiting leaves nothing behind. The thread is a daemon, made for each call (some
    50 µs, for calls that take milliseconds): there is nothing to close, and nothing that keeps the
    process from ending.
    """

    def __init__(self, name: str, width: int = 1) -> None:
        self._name = name
        self._free = asyncio.Semaphore(width)
        self._count = 0

    async def run(self, function: Callable[[*_Args], _Result], *args: *_Args) -> _Result:
        """Return `function(*args)`, run in a thread when those before have ended.

        Raises what the function raises, and Overloaded when too many wait.
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
        """Start the thread. No frame that an exception passes through keeps the future.

        The exception lies in the future and holds the frames, and with them the arguments: in such
        a circle all of it would stay until the garbage collector comes.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_Result] = loop.create_future()
        waiting = [done]

        def work() -> None:
            try:
                tell = partial(_succeed, function(*args))
            except BaseException as error:  # noqa: BLE001  whoever waits gets it
                tell = partial(_fail, error)
            with suppress(RuntimeError):  # the loop has closed: nobody is left to tell
                loop.call_soon_threadsafe(finish, tell)
            del tell

        def finish(tell: Callable[[asyncio.Future[_Result]], None]) -> None:
            # Here, not where the caller waits: it may have gone while the thread was still busy.
            self._leave()
            done = waiting.pop()
            if not done.done():
                tell(done)

        try:
            threading.Thread(target=work, name=self._name, daemon=True).start()
        except RuntimeError:  # the system has no more threads
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
