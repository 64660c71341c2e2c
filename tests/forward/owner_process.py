"""A process of a server that only runs what others send it: REPOSITORY NUMBER COUNT SOCKET."""

import asyncio
import sys

from inferd.core.processes import Processes
from inferd.engine.engine import Engine


async def main(repository, number, count, path):
    engine = Engine(processes=Processes(int(number), int(count)))
    await engine.load_all([repository])
    await engine.exchange.open(path)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
