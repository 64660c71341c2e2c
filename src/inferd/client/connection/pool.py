"""ConnectionPool: the connections of a client, each with one call at a time."""

import os
import time
from typing import Final
from weakref import WeakSet

from inferd.client.call import ClientCall, ServerAnswer
from inferd.client.connection.http1 import RestConnection
from inferd.client.connection.http2 import GrpcConnection
from inferd.client.connection.stream import ClientTransport
from inferd.client.errors import ClientError
from inferd.client.failures import as_client_error
from inferd.client.settings import ClientSettings

# Less than the 60 s after which AWS's load balancers drop what is idle, and nginx's 75 s.
_IDLE_S: Final = 50.0
"""A connection that was not used for so long is not used again: servers and proxies drop them."""

Connection = RestConnection | GrpcConnection


class ConnectionPool:
    """Connections are made when there is none that is free, and kept for the next call."""

    def __init__(self, settings: ClientSettings, transport: ClientTransport) -> None:
        self._settings = settings
        self._open_stream = transport.open_stream
        self._slots = transport.slots(settings.connections)
        # Used as a stack: the connection used last is the least likely to have been closed, and
        # those not needed any more grow old.
        self._free: list[tuple[float, Connection]] = []
        self._kind = GrpcConnection if settings.target.is_grpc else RestConnection
        self._is_closed = False
        # For the hook of fork: a child must not use the sockets of its parent.
        _pools.add(self)

    def forget(self) -> None:
        """Leave the free connections to the process that had them before it forked."""
        # Not closed: with TLS that would send close_notify on a connection that is the parent's.
        self._free = []

    async def ask(self, call: ClientCall[object], fields: str, deadline: float) -> ServerAnswer:
        """Send `call` with the header lines `fields`, and return the answer. Raises ClientError."""
        connection = await self.lend(deadline)
        is_usable = False
        try:
            answer = await connection.ask(call, fields)
            is_usable = True
        except OSError as error:
            raise as_client_error(error) from None
        finally:
            # After any error the state of the connection is unknown, and an answer that comes late
            # would be taken for the next one's.
            self.give_back(connection, is_usable=is_usable)
        return answer

    async def lend(self, deadline: float) -> Connection:
        """Return a connection, to be given back. Raises ClientError."""
        await self._slots.take(deadline)
        try:
            if self._is_closed:
                raise ClientError("the client is closed")
            now = time.monotonic()
            while self._free:
                try:
                    since, connection = self._free.pop()
                except IndexError:  # another thread was faster
                    break
                stream = connection.stream
                stream.deadline = deadline
                # An asyncio client may be used in one event loop after another.
                is_fresh = now - since < _IDLE_S and stream.is_here()
                if is_fresh and (connection.is_quiet() or await connection.is_usable()):
                    return connection
                stream.close()
            return await self._new(deadline)
        except BaseException as error:
            # A slot that was taken is given back whatever happens.
            self._slots.give_back()
            if isinstance(error, OSError):
                raise as_client_error(error) from None
            raise

    def give_back(self, connection: Connection, *, is_usable: bool) -> None:
        """Take back what `lend` returned."""
        if is_usable and connection.is_reusable and not self._is_closed:
            self._free.append((time.monotonic(), connection))
        else:
            connection.stream.close()
        self._slots.give_back()

    def close(self) -> None:
        """Close the connections that are free; those in use follow when their calls are done."""
        self._is_closed = True
        while self._free:
            self._free.pop()[1].stream.close()

    async def _new(self, deadline: float) -> Connection:
        stream = await self._open_stream(self._settings, deadline)
        stream.deadline = deadline
        connection = self._kind(stream, self._settings)
        try:
            await connection.start()
        except BaseException:
            stream.close()
            raise
        return connection


# Weak, so that a client which is not closed can still be collected.
_pools: WeakSet[ConnectionPool] = WeakSet()


def _forget_all() -> None:
    for pool in _pools:
        pool.forget()


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
