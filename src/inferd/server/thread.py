"""A server in a thread of its own, for callers that are not asyncio programs."""

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import Future
from threading import Thread

from inferd.config.server import ServerConfig
from inferd.server.server import Server


@contextlib.contextmanager
def server_in_thread(config: ServerConfig) -> Iterator[Server]:
    """Start a server, hand it over when its models are loaded, and drain and stop it at the end.

    Its ports may be read; its methods belong to the thread. Raises what the start raises.
    """
    started: Future[tuple[Server, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    thread = Thread(target=_run, args=(config, started), name="inferd-server")
    thread.start()
    try:
        server, loop, end = started.result()
        try:
            yield server
        finally:
            loop.call_soon_threadsafe(end.set)
    finally:
        thread.join()


def _run(
    config: ServerConfig,
    started: "Future[tuple[Server, asyncio.AbstractEventLoop, asyncio.Event]]",
) -> None:
    async def serve() -> None:
        end = asyncio.Event()
        async with Server(config) as server:
            started.set_result((server, asyncio.get_running_loop(), end))
            await end.wait()

    try:
        asyncio.run(serve())
    except BaseException as error:
        if started.done():
            raise
        started.set_exception(error)
