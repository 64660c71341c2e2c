"""Ends of connections to clients that have sent, or may send, what has not been read.

Closing one then would lose a request, and the reset that the system sends in place of an orderly
end could cost the client the answer before it.
"""

import asyncio
from contextlib import suppress

try:
    import fcntl
    import termios
except ImportError:  # Windows, which has neither
    fcntl = termios = None  # type: ignore[assignment]


def has_unread(transport: asyncio.BaseTransport) -> bool:
    """Tell whether bytes have arrived at the socket of `transport`; False where none can tell."""
    found = transport.get_extra_info("socket")
    if found is None or fcntl is None or found.fileno() < 0:
        return False
    count = fcntl.ioctl(found.fileno(), termios.FIONREAD, bytes(4))
    return any(count)


def end_sending(transport: asyncio.WriteTransport) -> bool:
    """End our half of the connection once all has been sent; return False over TLS, without halves.

    The client reads everything up to the end, and what it sends is no error.
    """
    if not transport.can_write_eof():
        return False
    with suppress(OSError):  # from asyncio's own event loop, which says next that the client left
        transport.write_eof()
    return True
