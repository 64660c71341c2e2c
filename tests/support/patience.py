"""Waiting for what nobody tells."""

import asyncio
import time

PATIENCE_S = 30


async def until(condition):
    """Wait until `condition()` is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  nobody tells when
            await asyncio.sleep(0.001)


def wait_until(condition):
    """Wait until `condition()` is true, in a thread that may sleep."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "what was waited for has not happened"
        time.sleep(0.001)
