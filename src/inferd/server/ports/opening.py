"""Opening: ports that cannot be opened are told of by the options that set them."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

from inferd.config.ports import Listening, cannot_listen, cannot_listen_at, why_not
from inferd.config.server import ServerConfig


@contextlib.contextmanager
def opening(protocol: str, word: str, address: str, number: int) -> Iterator[None]:
    """Raise InvalidConfig, which names the options of `word`, where the port cannot be opened."""
    try:
        yield
    except OSError as error:
        port = Listening(protocol, word, address, number)
        raise cannot_listen(port, why_not(error)) from error


@contextlib.contextmanager
def opening_at(word: str, path: str, *, is_shared: bool) -> Iterator[None]:
    """Raise InvalidConfig, which names the option of `word`, where a Unix socket cannot be made."""
    try:
        yield
    except OSError as error:
        shared = f"--reuse-{word}-port" if is_shared else ""
        raise cannot_listen_at(word, path, why_not(error), shared) from error


async def probe(address: str, config: ServerConfig) -> None:
    """Raise OSError where the gRPC port cannot be bound.

    When grpcio cannot bind, it prints a line of its own and does not give us the reason.
    """
    if config.grpc_port == 0 or config.reuse_grpc_port:
        return
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address, config.grpc_port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, place in found:
        with socket.socket(family, kind, protocol) as probing:
            # As grpcio sets it: a port in TIME_WAIT is free.
            probing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probing.bind(place)
