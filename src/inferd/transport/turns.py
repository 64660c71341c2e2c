"""Turns: connections that were read in one loop iteration are answered together, then written.

Each system call makes the Python code after it slow: where the processor's defence against
speculation attacks empties its branch predictor on every entry to the kernel, a small request
costs nearly twice as much if reading, answering and writing alternate connection by connection.
So a connection that has read something takes its turn after all of them have read, and what they
answer is written at the end.

A connection that was alone in the last round and reads again before any other is answered at once:
there is nobody to wait for, and a callback less of the event loop.
"""

import asyncio
import logging
from typing import Final, Protocol

from inferd.compiled import mypyc_attr
from inferd.core.moment import Moment

log = logging.getLogger("inferd.transport")

TURN_COUNT: Final = 32
"""So many connections are answered before their answers are written."""


class Connection(Protocol):
    """What takes turns."""

    def take_turn(self) -> None:
        """Answer what has been read; hand what is to be written to `write_pending`."""
        ...

    def write_pending(self) -> None:
        """Write what has been answered."""
        ...

    def abort(self) -> None:
        """Cut the connection now."""
        ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Turns:
    """The connections of one server that wait for their turn, or for their writing.

    `moment` is told of each round: nothing is read from a connection meanwhile.
    """

    def __init__(self, moment: Moment | None = None) -> None:
        self._moment = moment or Moment()
        self._readers: list[Connection] = []
        self._writers: list[Connection] = []
        self._is_running = False
        # The id of the only one of the last round. One that is used anew does no harm.
        self._alone = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def answer_read(self, connection: Connection) -> None:
        """Give a turn to `connection`, which has just read: at once, if it has been alone.

        Only what the event loop itself calls may ask for this: nothing else is half done then.
        """
        if id(connection) == self._alone and not self._is_running:
            self._readers.append(connection)
            self.run()
        else:
            self.answer_soon(connection)

    def answer_soon(self, connection: Connection) -> None:
        """Give `connection` a turn in this loop iteration, when all others have read too."""
        self._readers.append(connection)
        if len(self._readers) == 1 and not self._is_running:
            self._alone = 0
            self._run_soon()

    def write_soon(self, connection: Connection) -> None:
        """Have the pending answers of `connection` written when this round of turns ends."""
        if not self._writers and not self._is_running:
            self._run_soon()
        self._writers.append(connection)

    def _run_soon(self) -> None:
        if self._loop is None:  # asking for it is a system call in Python 3.11
            self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self.run)

    def run(self) -> None:
        """Let everyone take their turn, and write."""
        self._is_running = True
        moment = self._moment
        moment.count += 1
        moment.number = moment.count
        readers = self._readers
        self._alone = id(readers[0]) if len(readers) == 1 else 0
        try:
            while readers or self._writers:  # a write may let its connection go on
                self._readers = readers[TURN_COUNT:]
                for connection in readers[:TURN_COUNT]:
                    try:
                        connection.take_turn()
                    except Exception:  # noqa: BLE001  it costs that connection and no other
                        _cut(connection)
                writers, self._writers = self._writers, []
                for connection in writers:
                    try:
                        connection.write_pending()
                    except Exception:  # noqa: BLE001
                        _cut(connection)
                readers = self._readers
        finally:
            moment.number = 0
            self._is_running = False


def _cut(connection: Connection) -> None:
    log.exception("unexpected failure on a connection, which is cut")
    connection.abort()
