"""Turns: connections that were read in one loop iteration are answered together, then written.

Each system call makes the Python code after it slow: where the processor's defence against
speculation attacks empties its branch predictor on every entry to the kernel, a small request
costs nearly twice as much if reading, answering and writing alternate connection by connection.
So a connection that has read something takes its turn after all of them have read, and what they
answer is written at the end. With one connection nothing waits for anything.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger("inferd.transport")

TURN_COUNT = 32
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


class Turns:
    """The connections of one server that wait for their turn, or for their writing."""

    def __init__(self) -> None:
        self._readers: list[Connection] = []
        self._writers: list[Connection] = []
        self._is_running = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def answer_soon(self, connection: Connection) -> None:
        """Give `connection` a turn in this loop iteration, when all others have read too."""
        if not self._readers and not self._is_running:
            self._begin()
        self._readers.append(connection)

    def write_soon(self, connection: Connection) -> None:
        """Have the pending answers of `connection` written when this round of turns ends."""
        if not self._writers and not self._is_running:
            self._begin()
        self._writers.append(connection)

    def _begin(self) -> None:
        if self._loop is None:  # asking for it costs a system call
            self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self.run)

    def run(self) -> None:
        """Let everyone take their turn, and write."""
        self._is_running = True
        try:
            while self._readers or self._writers:  # a write may let its connection go on
                now, self._readers = self._readers[:TURN_COUNT], self._readers[TURN_COUNT:]
                for connection in now:
                    self._guard(connection, connection.take_turn)
                self._write()
        finally:
            self._is_running = False

    def _write(self) -> None:
        writers, self._writers = self._writers, []
        for connection in writers:
            self._guard(connection, connection.write_pending)

    @staticmethod
    def _guard(connection: Connection, step: Callable[[], None]) -> None:
        """Take one step; whatever goes wrong costs that connection and no other."""
        try:
            step()
        except Exception:
            log.exception("unexpected failure on a connection, which is cut")
            connection.abort()
