"""Whether a client has sent what has not been read yet.

Closing a connection then would lose a request, and the reset that the system sends in place of an
orderly end could cost the client the answer before it.
"""

import asyncio

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
