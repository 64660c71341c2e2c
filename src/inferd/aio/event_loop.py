"""The event loop of whoever needs one."""

import asyncio

from inferd import system


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: uvloop's, where uvloop is installed."""
    if system.UVLOOP:
        try:
            import uvloop
        except ImportError:  # Windows, or a processor without a wheel
            return asyncio.new_event_loop()
        return uvloop.new_event_loop()
    return asyncio.new_event_loop()
