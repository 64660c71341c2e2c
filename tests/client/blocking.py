"""Blocking: an AsyncClient with the calls of a Client, so that tests are written once for both."""

import asyncio
import contextlib
import inspect

from inferd.client import AsyncClient, Client


class Blocking:
    """Runs each call on a loop of its own; iterates over streams."""

    def __init__(self, url, **options):
        self.loop = asyncio.new_event_loop()
        self.client = AsyncClient(url, **options)

    def __getattr__(self, name):
        found = getattr(self.client, name)
        if not callable(found):
            return found

        def call(*arguments, **options):
            result = found(*arguments, **options)
            if inspect.isasyncgen(result):
                return self._iterate(result)
            if hasattr(result, "__aenter__"):
                return result
            return self.loop.run_until_complete(result)

        return call

    @contextlib.contextmanager
    def block(self, manager):
        """Enter and leave an asynchronous context manager."""
        entered = self.loop.run_until_complete(manager.__aenter__())
        try:
            yield entered
        finally:
            self.loop.run_until_complete(manager.__aexit__(None, None, None))

    def of(self, asynchronous):
        """Return a RequestStream's calls, each run on the loop."""
        return Stepping(self.loop, asynchronous)

    def _iterate(self, stream):
        try:
            while True:
                yield self.loop.run_until_complete(anext(stream))
        except StopAsyncIteration:
            pass
        finally:
            self.loop.run_until_complete(stream.aclose())

    def gather(self, *calls):
        """Run coroutines side by side, and return what they return."""

        async def together():
            return await asyncio.gather(*calls)

        return self.loop.run_until_complete(together())

    def __enter__(self):
        return self

    def __exit__(self, *error):
        with contextlib.suppress(RuntimeError):
            self.loop.run_until_complete(self.client.close())
            self.loop.run_until_complete(asyncio.sleep(0))  # transports close in the next round
        self.loop.close()


class Stepping:
    """Runs each call of an AsyncRequestStream on a loop."""

    def __init__(self, loop, stream):
        self.loop, self.stream = loop, stream

    def __getattr__(self, name):
        call = getattr(self.stream, name)
        return lambda *given, **options: self.loop.run_until_complete(call(*given, **options))


KINDS = {"sync": Client, "async": Blocking}
