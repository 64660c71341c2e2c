"""A small HTTP/1.1 client: one request on a connection of its own, for calls that are rare."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import httptools

from inferd.server.address import host_and_port

MAX_BODY_BYTES = 1 << 30

_READ_BYTES = 1 << 16


class HttpTarget(NamedTuple):
    """Where a request goes: a host, by name or address, a port, and TLS if it has a context."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None


class HttpCallAnswer(NamedTuple):
    """A whole answer; names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class _Parsed:
    """What httptools finds, as it finds it."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []
        self.has_head = False
        self.is_complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        # HTTP/1.1 leaves case to the sender.
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.has_head = True

    def on_body(self, body: bytes) -> None:
        self.pieces.append(body)

    def on_message_complete(self) -> None:
        self.is_complete = True


class HttpExchange:
    """An answer that is being received."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._parsed = _Parsed()
        self._parser = httptools.HttpResponseParser(self._parsed)

    @property
    def status(self) -> int:
        """The status."""
        return int(self._parser.get_status_code())

    @property
    def headers(self) -> dict[str, str]:
        """The headers, names in lower case."""
        return self._parsed.headers

    async def read_head(self) -> None:
        """Receive the head. Raises OSError."""
        while not self._parsed.has_head:
            if not await self._read():
                raise ConnectionResetError("the connection ended before an answer")

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raises OSError if it is cut."""
        while True:
            while self._parsed.pieces:
                yield self._parsed.pieces.pop(0)
            if self._parsed.is_complete:
                return
            # The body ends with the connection unless its length was said (RFC 9112, section 6.3).
            if not await self._read():
                names = ("content-length", "transfer-encoding")
                if any(name in self._parsed.headers for name in names):
                    raise ConnectionResetError("the connection ended before the end of the answer")
                return

    async def _read(self) -> bool:
        data = await self._reader.read(_READ_BYTES)
        try:
            # Also the empty data at the end, by which the parser knows a body without a length is
            # complete.
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise ConnectionError(f"the answer is not valid HTTP: {error}") from error
        return bool(data)


@asynccontextmanager
async def exchange(
    target: HttpTarget,
    method: str,
    path: str,
    headers: Iterable[tuple[str, str]] = (),
    body: bytes | memoryview = b"",
) -> AsyncIterator[HttpExchange]:
    """Send a request, and yield its answer when the head is there. Raises OSError."""
    name = target.host if target.tls else None
    reader, writer = await asyncio.open_connection(
        target.host, target.port, ssl=target.tls, server_hostname=name
    )
    try:
        # The calls are rare, so connections are not kept.
        host = host_and_port(target.host, target.port)
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close"]
        lines += [f"{key}: {value}" for key, value in headers]
        if body or method not in ("GET", "HEAD"):
            lines.append(f"Content-Length: {len(body)}")
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        if body:
            writer.write(body)
        # What is refused by its head may be answered, and closed, before it is sent.
        with suppress(ConnectionError):
            await writer.drain()
        answer = HttpExchange(reader)
        await answer.read_head()
        yield answer
    finally:
        writer.close()


async def fetch(
    target: HttpTarget,
    method: str,
    path: str,
    headers: Iterable[tuple[str, str]] = (),
    body: bytes | memoryview = b"",
) -> HttpCallAnswer:
    """Send a request and return its whole answer. Raises OSError."""
    async with exchange(target, method, path, headers, body) as answer:
        received = []
        size = 0
        async for piece in answer.pieces():
            received.append(piece)
            size += len(piece)
            if size > MAX_BODY_BYTES:
                raise ConnectionError(f"the answer has more than {MAX_BODY_BYTES} bytes")
        return HttpCallAnswer(answer.status, answer.headers, b"".join(received))
