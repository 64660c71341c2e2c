"""AsyncRequestStream: many requests over one stream of gRPC, answered as they are ready."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Self, Unpack

from inferd.client.connection.http2 import GrpcConnection
from inferd.client.connection.pool import ConnectionPool
from inferd.client.errors import ClientError
from inferd.client.failures import client_errors
from inferd.client.protocol import Protocol
from inferd.client.requests import InferOptions
from inferd.client.result import InferResult
from inferd.core.request import InferRequest, InferResponse

if TYPE_CHECKING:
    from inferd.client.call import ClientCall


class AsyncRequestStream:
    """Made by `open_stream` of a client; one thread or task uses it.

        async with client.open_stream() as stream:
            for number, part in enumerate(parts):
                await stream.send("asr", {"sound": part}, sequence_id=7, sequence_start=not number)
            await stream.end()
            async for result in stream:
                print(result.id, result["text"])

    Models that answer once are answered in the order of the requests; `result.final` says that a
    request has no more answers, of which the last may have no outputs. Leaving the block before the
    answers were read to their end gives up the rest.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        protocol: Protocol,
        # Functions of the client instead of the client: it knows the stream, so no module knows
        # another both ways.
        make: Callable[[str, Mapping[str, object], InferOptions], Awaitable[InferRequest]],
        read: Callable[[Callable[[memoryview], InferResponse], memoryview], InferResponse],
        fields: str,
        timeout_s: float,
    ) -> None:
        self._pool = pool
        self._protocol = protocol
        self._make = make
        self._read = read
        self._fields = fields
        self._timeout_s = timeout_s
        self._connection: GrpcConnection | None = None

    async def __aenter__(self) -> Self:
        """Open the stream. Raises ClientError."""
        call = self._protocol.open_stream()
        connection = await self._pool.lend(self._deadline())
        assert isinstance(connection, GrpcConnection)  # REST has no such call
        # Without a deadline for the server (grpc-timeout): a stream may live for hours, so each
        # step has its own.
        connection.open(call, self._fields, None)
        self._connection = connection
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Give the connection back, or close it if the stream has not ended."""
        connection, self._connection = self._connection, None
        if connection is not None:
            # What was not read belongs to this stream, and cannot be told from the next answers
            # cheaply.
            self._pool.give_back(connection, is_usable=connection.is_done)

    async def send(
        self, model: str, inputs: Mapping[str, object], **options: Unpack[InferOptions]
    ) -> None:
        """Send a request, as `infer` has it. Waits if the server does not read."""
        request = await self._make(model, inputs, options)
        # Otherwise nobody can tell when a decoupled model has no more answers
        # (triton_enable_empty_final_response).
        request.empty_final = True
        call: ClientCall[object] = self._protocol.stream(request, binary=True)
        with client_errors():
            await self._open().send_message(call.buffers, call.size, is_last=False)

    async def end(self) -> None:
        """Say that no more requests follow; the stream ends when all are answered."""
        with client_errors():
            await self._open().end()

    async def receive(self) -> InferResult | None:
        """Return the next answer, None when the stream has ended.

        Raises ClientError; after the ServerError of one request, the stream may go on.
        """
        connection = self._open()
        with client_errors():
            message = await connection.next_message()
        if message is not None:
            return InferResult(self._read(self._protocol.read_message, message))
        error = self._protocol.refusal(connection.outcome())
        if error is not None:
            raise error
        return None

    def __aiter__(self) -> Self:
        """Iterate over the answers, to the end of the stream."""
        return self

    async def __anext__(self) -> InferResult:
        """Return the next answer."""
        result = await self.receive()
        if result is None:
            raise StopAsyncIteration
        return result

    def _open(self) -> GrpcConnection:
        if self._connection is None:
            msg = "the stream is used outside of its block"
            raise ClientError(msg)
        self._connection.stream.deadline = self._deadline()
        return self._connection

    def _deadline(self) -> float:
        return time.monotonic() + self._timeout_s
