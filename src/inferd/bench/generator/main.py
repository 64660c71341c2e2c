"""The program of a generator: takes a plan and points from standard input, gives back samples.

python -m inferd.bench.generator.main
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from inferd.aio.event_loop import new_event_loop
from inferd.bench.generator.load import PointLoad
from inferd.bench.plan import (
    Plan,
    PointFailed,
    Ready,
    StartPoint,
    StopPoint,
    ToGenerator,
    packed,
    read_packed,
)
from inferd.errors import InferdError


def main() -> int:
    """Measure what standard input says, until it ends. Ctrl-C is for who started this."""
    # Ctrl-C reaches all of a terminal's processes; the parent decides what becomes of the
    # measurement.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.dup(1)
    os.dup2(2, 1)  # so that nothing else is written there
    plan = read_packed(sys.stdin.buffer, Plan)
    if plan is None:
        return 1

    def tell(message: Any) -> None:
        content = packed(message)
        while content:
            content = content[os.write(out, content) :]

    tell(Ready())
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            runner.run(_serve(plan, tell))
        except BrokenPipeError:  # who started this has ended, and nobody is left to be told
            # Not by returning: the thread that reads standard input would hold Python up.
            os._exit(1)
    return 0


async def _serve(plan: Plan, tell: Callable[[Any], None]) -> None:
    loop = asyncio.get_running_loop()
    commands: asyncio.Queue[StartPoint | None] = asyncio.Queue()
    current: list[PointLoad] = []

    def stop() -> None:
        for one in current:
            one.stop()

    def read() -> None:
        while True:
            command = read_packed(sys.stdin.buffer, ToGenerator)
            if command is None or isinstance(command, StopPoint):
                loop.call_soon_threadsafe(stop)
            if not isinstance(command, StopPoint):
                loop.call_soon_threadsafe(commands.put_nowait, command)
            if command is None:
                return

    # A thread, as pipes on standard input cannot be watched on every system.
    threading.Thread(target=read, daemon=True).start()
    while (command := await commands.get()) is not None:
        load = PointLoad(plan, command.point, tell)
        current[:] = [load]
        try:
            tell(await load.run(command.at_ns))
        except (InferdError, OSError) as error:
            tell(PointFailed(getattr(error, "message", None) or str(error)))
        current.clear()


if __name__ == "__main__":
    sys.exit(main())
