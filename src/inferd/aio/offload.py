"""Offload: runs in threads what would hold up the event loop, for all protocols of a server."""

import asyncio
import os
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import TypeVar, TypeVarTuple

from inferd.aio.thread import started
from inferd.errors import Overloaded

MAX_WAITING = 1000
"""How many calls may run or wait in one server; more are refused as Overloaded."""


class Work(Enum):
    """The kinds of work: calls of one kind wait for each other, not for those of other kinds."""

    DECODE = "decode"
    DECODE_SLOWLY = "decode-slowly"  # takes seconds, which other large requests need not wait
    ENCODE = "encode"
    INFLATE = "inflate"
    DEFLATE = "deflate"
    LOAD_REQUEST = "load-request"
    CONFIG = "config"
    STATUS = "status"
    PROCESS_METRICS = "process-metrics"
    DEVICE_METRICS = "device-metrics"


# zlib releases the interpreter lock, but each inflating thread needs its own memory.
_CODING_WIDTH = min(4, os.cpu_count() or 1)

WIDTHS: Mapping[Work, int] = MappingProxyType(
    {Work.INFLATE: _CODING_WIDTH, Work.DEFLATE: _CODING_WIDTH}
)
"""How many calls of a kind run at once, if more than one."""

_UNCOUNTED = (Work.PROCESS_METRICS, Work.DEVICE_METRICS)  # wanted most when too many calls wait

_Args = TypeVarTuple("_Args")
_Result = TypeVar("_Result")


class Offload:
    """Runs functions in threads, of each kind one at a time: two large ones need twice the memory.

    That bounds the memory because a server has one Offload, which all its protocols share.
    `widths` lets a few of a kind run at once, for work that releases the interpreter lock. A caller
    cancelled while waiting leaves nothing behind. Each call gets a new daemon thread (about 50 µs,
    for calls that take milliseconds): there is nothing to close, and nothing keeps the process from
    exiting.
    """

    def __init__(self, widths: Mapping[Work, int] = WIDTHS) -> None:
        # asyncio's are fair: calls run in the order in which they came.
        self._free = {work: asyncio.Semaphore(widths.get(work, 1)) for work in Work}
        self._count = 0

    async def run(
        self, work: Work, function: Callable[[*_Args], _Result], *args: *_Args
    ) -> _Result:
        """Return `function(*args)`, run in a thread once earlier calls of its kind have ended.

        Raises what the function raises, and Overloaded if too many calls wait.
        """
        size = 0 if work in _UNCOUNTED else 1
        if size and self._count >= MAX_WAITING:
            msg = f"{MAX_WAITING} large requests are waiting to be read or written; try again later"
            raise Overloaded(msg)
        self._count += size
        try:
            await self._free[work].acquire()
        except BaseException:
            # A caller that is cancelled while it waits gives its place back.
            self._count -= size
            raise
        leave = partial(self._leave, work, size)
        return await started(partial(function, *args), f"inferd-{work.value}", left=leave)

    def _leave(self, work: Work, size: int) -> None:
        self._free[work].release()
        self._count -= size
