"""inferd, with a clock in its event loop that finds what holds the loop longest.

    python bench/ticking.py serve MODELS ...

On SIGUSR1 it begins, or ends and prints a line of JSON: the milliseconds of the longest stretches
for which the loop did one thing after the other without looking at its sockets. They are CPU time
of the loop's thread, so that they tell of the server and not of how busy the machine is. Stretches
that Python's garbage collector lengthened are among them; how long it took is told, too.
"""

import asyncio
import gc
import json
import signal
import sys
import time

from inferd.aio.event_loop import new_event_loop
from inferd.cli.main import main
from inferd.server import process

SHOWN = 5


class Ticker:
    """Runs a callback in each iteration of a loop, and keeps the time between two of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_on = False
        self._stretches_s: list[float] = []
        self._ticked_s = 0.0
        self._collections_s: list[float] = []
        self._collecting_s = 0.0
        gc.callbacks.append(self._collect)

    def toggle(self) -> None:
        """Begin, or end and print what was found."""
        self._is_on = not self._is_on
        if self._is_on:
            self._stretches_s.clear()
            self._collections_s.clear()
            self._ticked_s = time.thread_time()
            self._loop.call_soon(self._tick)
        else:
            found = {"stretches_ms": _longest(self._stretches_s)}
            found["collections_ms"] = _longest(self._collections_s)
            sys.stderr.write(json.dumps(found) + "\n")
            sys.stderr.flush()

    def _tick(self) -> None:
        self._stretches_s.append(time.thread_time() - self._ticked_s)
        self._ticked_s = time.thread_time()
        if self._is_on:
            self._loop.call_soon(self._tick)

    def _collect(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_s = time.thread_time()
        else:
            self._collections_s.append(time.thread_time() - self._collecting_s)


def _longest(seconds: list[float]) -> list[float]:
    return [round(one * 1000, 2) for one in sorted(seconds, reverse=True)[:SHOWN]]


def ticking_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that the server would have, with a Ticker."""
    loop = new_event_loop()
    loop.add_signal_handler(signal.SIGUSR1, Ticker(loop).toggle)
    return loop


if __name__ == "__main__":
    process.new_event_loop = ticking_loop
    sys.exit(main())
