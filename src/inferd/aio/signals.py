"""Signals that an event loop is told of, also where it has no handlers for them."""

import asyncio
import signal
from collections.abc import Callable


def catch_signal(
    loop: asyncio.AbstractEventLoop, name: str, call: Callable[..., object], *arguments: object
) -> None:
    """Have `loop` call `call` upon the signal `name`, such as "SIGTERM"; the main thread's alone.

    Nothing happens where the system has no such signal.
    """
    number = getattr(signal.Signals, name, None)
    if number is None:
        return
    try:
        loop.add_signal_handler(number, call, *arguments)
    except NotImplementedError:  # Windows
        # A handler of `signal` runs between any two instructions of the main thread, so it only
        # tells the loop.
        def tell(*_: object) -> None:
            loop.call_soon_threadsafe(call, *arguments)

        signal.signal(number, tell)
