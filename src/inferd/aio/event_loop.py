"""The event loop of whoever needs one."""

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: uvloop's, where uvloop is installed."""
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
