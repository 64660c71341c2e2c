"""OwnerStream: a request of another process with any number of answers, as it runs here."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from inferd.core.request import InferRequest, InferResponse
from inferd.forward.failure import known
from inferd.forward.frame_line import FrameLine
from inferd.forward.line import FrameKind
from inferd.forward.message import encode_answer, encode_end
from inferd.forward.owned import Owned
from inferd.schedulers.execution.job import STREAM_AHEAD, share_of


class OwnerStream:
    """Sends the answers to `request` on `line`, never too far ahead of their reader.

    At the end `leave` is called with its number; it returns whether anybody still reads.
    """

    def __init__(
        self,
        line: FrameLine,
        leave: Callable[[int], bool],
        number: int,
        request: InferRequest,
        owned: Owned,
    ) -> None:
        self._line = line
        self._leave = leave
        self._number = number
        self.request = request
        self._room = STREAM_AHEAD
        self._has_room = asyncio.Event()
        # Streams are asynchronous generators, which need a task.
        self._task = asyncio.get_running_loop().create_task(self._run(owned))

    def give(self, share: int) -> None:
        """Let it be `share` further ahead."""
        self._room += share
        self._has_room.set()

    def cancel(self) -> None:
        """Note that nobody reads it any more."""
        self._task.cancel()

    async def _run(self, owned: Owned) -> None:
        error = None
        try:
            async with aclosing(owned.stream_here(self.request)) as answers:
                async for answer in answers:
                    await self._send(answer)
        except (Exception, asyncio.CancelledError) as failure:  # noqa: BLE001  it is the request's
            error = known(failure)
        # A cancelled stream has had its END already.
        if self._leave(self._number):
            self._line.send(FrameKind.END, self._number, encode_end(self.request, error))

    async def _send(self, answer: InferResponse) -> None:
        share = share_of(answer)
        # A share is at most STREAM_AHEAD, so an answer always fits in the end.
        while self._room < share:
            self._has_room.clear()
            await self._has_room.wait()
        self._room -= share
        head, data = encode_answer(self.request, answer)
        self._line.send(FrameKind.ANSWER, self._number, head, data)
