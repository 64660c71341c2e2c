"""The control socket of a supervisor: one request and one answer, JSON each on a line."""

import asyncio
import errno
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from inferd.fleet.status import ControlAnswer, ControlRequest
from inferd.transport.unix_socket import UnixSocket

log = logging.getLogger("inferd")

SUFFIX = ".control"
MAX_SERVERS = 64
"""The most servers with the same ports and repositories that have control sockets."""

MAX_CLIENTS = 16
MAX_REQUEST_BYTES = 4096
MAX_ANSWER_BYTES = 1 << 20
TIMEOUT_S = 5.0
"""How long a client may take for its request, and for taking the answer."""

_PEER = struct.Struct("3i")  # pid, uid, gid: see SO_PEERCRED in socket(7)


class ControlSocket:
    """Listens at a control socket; `reply` is to answer each request within a few seconds."""

    def __init__(self, reply: Callable[[ControlRequest], Awaitable[ControlAnswer]]) -> None:
        self._reply = reply
        self._socket: UnixSocket | None = None
        self._server: asyncio.Server | None = None
        self._client_count = 0

    async def open(self, folder: Path, name: str) -> None:
        """Listen in `folder`, where other servers of that `name` may do so, too. Raises OSError."""
        self._socket = _bound(folder, name)
        self._server = await asyncio.start_unix_server(
            # A longer line is an error of readline: nobody fills memory here.
            self._serve,
            sock=self._socket.socket,
            limit=MAX_REQUEST_BYTES,
        )

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None and self._socket is not None:
            self._server.close()
            self._socket.remove()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._client_count += 1
        try:
            answer = await self._answer(reader, writer)
            async with asyncio.timeout(TIMEOUT_S):
                writer.write(_line(answer))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError):
            # Whoever does not read its answer in time has no right to a place.
            writer.transport.abort()
        finally:
            self._client_count -= 1

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> ControlAnswer:
        """Read a request, and return the answer. Raises OSError and TimeoutError."""
        peer = writer.get_extra_info("socket").getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size
        )
        # The folder is this user's already; root may ask as well.
        if _PEER.unpack(peer)[1] not in (0, os.geteuid()):
            return ControlAnswer("this server belongs to another user")
        # Counted by the caller, this one included.
        if self._client_count > MAX_CLIENTS:
            return ControlAnswer(f"{MAX_CLIENTS} others are asking at the same time")
        try:
            async with asyncio.timeout(TIMEOUT_S):
                line = await reader.readline()
            request = msgspec.json.decode(line, type=ControlRequest)
        except ValueError as error:  # also of a line that is too long
            return ControlAnswer(f"no request: {error}")
        return await self._reply(request)


def _line(answer: ControlAnswer) -> bytes:
    line = msgspec.json.encode(answer) + b"\n"
    if len(line) > MAX_ANSWER_BYTES:
        return _line(ControlAnswer("the answer is too long"))
    return line


def _bound(folder: Path, name: str) -> UnixSocket:
    """Return a socket that listens at the first path nobody listens at. Raises OSError."""
    for number in range(MAX_SERVERS):
        path = folder / f"{name}.{number}{SUFFIX}"
        try:
            found = UnixSocket(str(path))
        except OSError as error:
            # Another server of the same ports and repositories; the next number is tried.
            if error.errno == errno.EADDRINUSE:
                continue
            raise
        with suppress(OSError):
            # A socket in a folder that is shared by mistake must still not be everybody's.
            path.chmod(0o600)
        found.socket.listen()
        return found
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def ask(path: Path, request: ControlRequest, timeout_s: float = TIMEOUT_S) -> ControlAnswer:
    """Return the answer of the server that listens at `path`. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(str(path))
        connection.sendall(msgspec.json.encode(request) + b"\n")
        line = b""
        while not line.endswith(b"\n"):
            received = connection.recv(65536)
            line += received
            if not received or len(line) > MAX_ANSWER_BYTES:
                raise OSError(errno.EPROTO, os.strerror(errno.EPROTO))
    try:
        return msgspec.json.decode(line, type=ControlAnswer)
    except msgspec.DecodeError as error:
        raise OSError(errno.EPROTO, str(error)) from error
