"""Turns: connections that were read in one loop iteration are answered together, then written.

Each system call slows down the Python code that runs after it: where the processor's mitigation
against speculative execution attacks flushes the branch predictor on every kernel entry, a small
request costs nearly twice as much if reading, answering and writing alternate per connection. So a
connection that has read something takes its turn after all the others have read, and the answers
are written at the end of the round.

A connection that was alone in the last round and reads again before any other is answered at once:
there is nobody to wait for, and it saves an event loop callback.
"""

import asyncio
import logging
from typing import Final

from inferd.aio.round_number import RoundNumber
from inferd.compiled import mypyc_attr

log = logging.getLogger("inferd.transport")

NO_TRANSPORT: Final = asyncio.Transport()
"""What a connection has before it is made."""

TURN_COUNT: Final = 32
"""How many connections are answered before their answers are written."""


@mypyc_attr(allow_interpreted_subclasses=True)
class PendingOutput:
    """What writes the answers of one connection."""

    def write_pending(self) -> None:
        """Write the answers."""
        raise NotImplementedError

    def abort(self) -> None:
        """Abort the connection."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Connection:
    """A connection that takes turns."""

    def take_turn(self) -> None:
        """Answer what has been read; leave what is to be written to a PendingOutput."""
        raise NotImplementedError

    def abort(self) -> None:
        """Abort the connection."""
        raise NotImplementedError

    def drain(self) -> None:
        """Tell the client that the connection ends; close it once nothing can be under way."""
        raise NotImplementedError

    def cut(self) -> None:
        """End what is under way and close the connection."""
        self.abort()

    def check_time(self, now: float) -> None:
        """Act on timeouts that have expired by `now`."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Turns:
    """The connections of one server that are waiting for a turn, or to have their output written.

    `round_number` gets the number of each round; no connection is read during a round.
    """

    def __init__(self, round_number: RoundNumber | None = None) -> None:
        self._round_number = round_number or RoundNumber()
        self._readers: list[Connection] = []
        self._writers: list[PendingOutput] = []
        self._is_running = False
        # id() of the connection that was alone in the last round. If a new object gets the same id,
        # that does no harm.
        self._alone = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def answer_read(self, connection: Connection) -> None:
        """Give a turn to `connection`, which has just read: at once, if it was alone last time.

        Only callbacks of the event loop may call this, since then nothing else is half done.
        """
        if id(connection) == self._alone and not self._is_running:
            self._readers.append(connection)
            self.run()
        else:
            self.answer_soon(connection)

    def answer_soon(self, connection: Connection) -> None:
        """Give `connection` a turn in this loop iteration, once all the others have read too."""
        self._readers.append(connection)
        if len(self._readers) == 1 and not self._is_running:
            self._alone = 0
            self._run_soon()

    def write_soon(self, output: PendingOutput) -> None:
        """Have the pending answers of `output` written at the end of this round."""
        if not self._writers and not self._is_running:
            self._run_soon()
        self._writers.append(output)

    def _run_soon(self) -> None:
        if self._loop is None:  # in Python 3.11 get_running_loop makes a system call
            self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self.run)

    def run(self) -> None:
        """Run a round: let every waiting connection take its turn, then write."""
        self._is_running = True
        round_number = self._round_number
        round_number.count += 1
        round_number.number = round_number.count
        readers = self._readers
        self._alone = id(readers[0]) if len(readers) == 1 else 0
        try:
            while readers or self._writers:  # a write may give its connection another turn
                self._readers = readers[TURN_COUNT:]
                for connection in readers[:TURN_COUNT]:
                    try:
                        connection.take_turn()
                    except Exception:  # noqa: BLE001  it must cost no other connection
                        _cut(connection)
                writers, self._writers = self._writers, []
                for output in writers:
                    try:
                        output.write_pending()
                    # As above: a fault in one must not keep the others from being written.
                    except Exception:  # noqa: BLE001
                        _cut(output)
                readers = self._readers
        finally:
            round_number.number = 0
            self._is_running = False


def _cut(one: Connection | PendingOutput) -> None:
    log.exception("unexpected failure on a connection, which is cut")
    one.abort()
