"""Waiting for what nobody tells."""

import asyncio

PATIENCE_S = 30


async def until(condition):
    """Wait until `condition()` is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  nobody tells when
            await asyncio.sleep(0.001)
