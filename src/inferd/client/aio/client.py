"""AsyncClient: a client of any V2 server; its streams of requests, and its shared memory."""

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import ClassVar, Final, Self, TypeVar, Unpack

from numpy.typing import DTypeLike

from inferd.client.aio.io import ON_LOOP
from inferd.client.call import ClientCall, ServerAnswer
from inferd.client.connection.http2 import GrpcConnection
from inferd.client.connection.pool import ConnectionPool
from inferd.client.connection.stream import ClientTransport
from inferd.client.errors import BadAnswer, ClientError, Denied, ServerError
from inferd.client.failures import client_errors
from inferd.client.headers import HeaderLines
from inferd.client.protocol import Protocol, protocol_of
from inferd.client.regions import SharedRegion
from inferd.client.requests import InferOptions, check_places, make_request
from inferd.client.rest import BINARY_EXTENSION
from inferd.client.result import InferResult
from inferd.client.retry import delay_s
from inferd.client.settings import ClientOptions, Headers, read_settings
from inferd.client.tensors import needs_metadata
from inferd.core.load import LoadRequest, UnloadRequest
from inferd.core.metadata import IndexEntry, ModelMetadata, ServerMetadata
from inferd.core.request import InferRequest, Span
from inferd.errors import InferdError, InvalidRequest
from inferd.observe.statistics import ModelStatistics
from inferd.tensor.array import Array
from inferd.wire.json.document import JsonObject

_FOREVER_S: Final = 1e9

A = TypeVar("A")
T = TypeVar("T")


class AsyncClient:
    """A client of the server at a URL.

        async with AsyncClient("http://127.0.0.1:8000") as client:
            result = await client.infer("resnet", {"image": image})
            result["prob"]

    `http://` and `https://` speak REST, `grpc://` and `grpcs://` gRPC. ClientOptions says what else
    may be given. Calls raise ClientError, and InvalidRequest for arguments that cannot be sent.
    """

    _transport: ClassVar[ClientTransport] = ON_LOOP

    def __init__(self, url: str, **options: Unpack[ClientOptions]) -> None:
        self._settings = read_settings(url, options)
        self._pool = ConnectionPool(self._settings, self._transport)
        self._headers = HeaderLines(self._settings)
        self._protocol: Protocol = protocol_of(self._settings.target)
        # A message of gRPC carries raw contents in any V2 server; over REST it is an extension.
        self._binary = True if self._settings.target.is_grpc else self._settings.binary
        # Metadata by model and version, asked for once: lists and numbers do not say their
        # datatype.
        self._known: dict[tuple[str, str], ModelMetadata] = {}
        self._regions: list[SharedRegion] = []

    async def __aenter__(self) -> Self:
        """Return the client itself; connections are made when there are calls."""
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    @property
    def url(self) -> str:
        """The server's URL, with its port."""
        return str(self._settings.target)

    async def infer(
        self, model: str, inputs: Mapping[str, object], **options: Unpack[InferOptions]
    ) -> InferResult:
        """Run `model` on `inputs`, and return its outputs by name.

        An input is an array, or a list, a text, bytes or a number, for which the model's metadata
        are asked for once. InferOptions says what else may be given.
        """
        request = await self._request(model, inputs, options)
        # Asked with the first inference, not in the constructor, which does not wait.
        if self._binary is None:
            self._binary = await self._is_binary()
        call = self._protocol.infer(request, binary=self._binary)
        answer = await self._run(call, options.get("timeout_s"), options.get("headers"))
        result = InferResult(answer)
        if request.outputs and request.outputs[0].place is not None:
            check_places(request, options["outputs"], result)
        return result

    async def stream(
        self, model: str, inputs: Mapping[str, object], **options: Unpack[InferOptions]
    ) -> AsyncGenerator[InferResult, None]:
        """Run `model` on `inputs`, and yield its answers as they come: any number of them.

        The deadline is for the whole. Over REST the server must have infer_stream, as inferd and
        MLServer do. An iterator that is not read to its end ends the request when it is closed.
        """
        request = await self._request(model, inputs, options)
        if self._binary is None:
            self._binary = await self._is_binary()
        call = self._protocol.stream(request, binary=self._binary)
        deadline = self._deadline(options.get("timeout_s"))
        fields = self._headers.lines(options.get("headers"))
        connection = await self._pool.lend(deadline)
        answer = None
        try:
            with client_errors():
                answer = await connection.begin(call, fields)
            while answer is None:
                # Not around the yield: what is thrown in there is no error of the connection.
                with client_errors():
                    message = await connection.next_message()
                if message is None:
                    answer = connection.outcome()
                    continue
                response = self._read(self._protocol.read_message, message)
                # Triton ends a decoupled model's answers with an empty one that has the parameter
                # triton_final_response: a mark, not an answer.
                if response.outputs or not response.final:
                    yield InferResult(response)
        finally:
            # What was not read belongs to this call, and would be taken for the next one's.
            self._pool.give_back(connection, is_usable=answer is not None)
        self._check(answer)

    def open_stream(
        self, *, timeout_s: float | None = None, headers: Headers | None = None
    ) -> "AsyncRequestStream":
        """Return a stream for many requests, to be used as a `with` block; only over gRPC.

        `timeout_s` is for each step: sending one request, receiving one answer.
        """
        # 0 is a time limit as well, so `or` would be wrong.
        seconds = self._settings.timeout_s if timeout_s is None else timeout_s
        fields = self._headers.lines(headers)
        return AsyncRequestStream(self, fields, seconds)

    async def _request(
        self, model: str, inputs: Mapping[str, object], options: InferOptions
    ) -> InferRequest:
        known = None
        # A classification is asked for by output, so all outputs must be known by name.
        if needs_metadata(inputs) or (options.get("classification") and "outputs" not in options):
            key = model, str(options.get("version", ""))  # as make_request takes it
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = await self.metadata(*key)
        return make_request(model, inputs, known, options, self._regions)

    async def _is_binary(self) -> bool:
        """Return whether the server takes binary data, as it says in its metadata."""
        try:
            return BINARY_EXTENSION in (await self.server_metadata()).extensions
        except Denied:
            return True  # servers with keys or restricted calls: inferd, Triton
        except (ServerError, BadAnswer):
            return False

    async def is_live(self) -> bool:
        """Return whether the server says that it is live; errors of connections are raised."""
        return await self._is_true(self._protocol.live())

    async def is_ready(self, model: str = "", version: str = "") -> bool:
        """Return whether the server, or `model`, says that it is ready."""
        if model:
            return await self._is_true(self._protocol.model_ready(model, version))
        return await self._is_true(self._protocol.ready())

    async def server_metadata(self) -> ServerMetadata:
        """Return name, version and extensions of the server."""
        return await self._run(self._protocol.server_metadata())

    async def metadata(self, model: str, version: str = "") -> ModelMetadata:
        """Return the inputs and outputs of a model, and its versions."""
        return await self._run(self._protocol.metadata(model, version))

    async def config(self, model: str, version: str = "") -> JsonObject:
        """Return the configuration of a model, as JSON has it (an extension of Triton's)."""
        return await self._run(self._protocol.config(model, version))

    async def statistics(self, model: str = "", version: str = "") -> list[ModelStatistics]:
        """Return the statistics of a model, or of all, one entry for each version."""
        return await self._run(self._protocol.statistics(model, version))

    async def models(self, *, ready: bool = False) -> list[IndexEntry]:
        """Return the index of the repository; with `ready` only what can be used."""
        return await self._run(self._protocol.index(ready=ready))

    async def load(
        self,
        model: str,
        *,
        config: str | None = None,
        files: Mapping[str, bytes] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Load `model`, or load it anew.

        `config`, JSON, replaces its configuration; `files`, contents by path below the model's
        folder ("1/model.onnx"), replace its files.
        """
        # Before the call, not after: if it fails in between, the model may have changed all the
        # same.
        self._forget(model)
        load = LoadRequest(model, config, files or {})
        await self._run(self._protocol.load(load), timeout_s)

    async def unload(
        self, model: str, *, dependents: bool = False, timeout_s: float | None = None
    ) -> None:
        """Unload `model`; with `dependents` also models loaded only for its sake."""
        self._forget(model)
        await self._run(self._protocol.unload(UnloadRequest(model, dependents)), timeout_s)

    def _forget(self, model: str) -> None:
        # Collected first, since another thread may add to it meanwhile; pop has a default for one
        # that removes.
        for key in [key for key in self._known if key[0] == model]:
            self._known.pop(key, None)

    def shared_memory(self, size_bytes: int) -> "AsyncSharedMemory":
        """Return shared memory for a `with` block; the server must be on this machine."""
        return AsyncSharedMemory(self, size_bytes)

    async def trace_settings(
        self, model: str = "", changes: Mapping[str, object] | None = None
    ) -> dict[str, object]:
        """Return the trace settings, of all models or of one, after making `changes`."""
        return await self._run(self._protocol.trace_settings(model, changes))

    async def log_settings(self, changes: Mapping[str, object] | None = None) -> dict[str, object]:
        """Return the log settings after making `changes`."""
        return await self._run(self._protocol.log_settings(changes))

    async def _run(
        self, call: ClientCall[T], timeout_s: float | None = None, headers: Headers | None = None
    ) -> T:
        deadline = self._deadline(timeout_s)
        fields = self._headers.lines(headers)
        attempt = 0
        while True:
            try:
                answer = await self._pool.ask(call, fields, deadline)
                self._check(answer)
                return self._read(call.read, answer)
            except ClientError as error:
                # A health check wants to know what the server says now: 503 is its answer.
                if call.is_health and isinstance(error, ServerError):
                    raise
                wait_s = delay_s(error, attempt, settings=self._settings, is_safe=call.is_safe)
                # A wait beyond the deadline would end in DeadlineExceeded, which says less than
                # this error.
                if wait_s is None or time.monotonic() + wait_s >= deadline:
                    raise
            attempt += 1
            await self._transport.sleep(wait_s)

    def _deadline(self, timeout_s: float | None) -> float:
        return _deadline_after(self._settings.timeout_s if timeout_s is None else timeout_s)

    def _check(self, answer: ServerAnswer) -> None:
        error = self._protocol.refusal(answer)
        if error is not None:
            raise error

    def _read(self, read: Callable[[A], T], answer: A) -> T:
        try:
            return read(answer)
        except ClientError:
            raise
        except InferdError as error:
            raise BadAnswer(f"the answer cannot be read: {error.message}") from error

    async def _is_true(self, call: ClientCall[bool]) -> bool:
        try:
            return await self._run(call)
        # Not allowed to ask is not the same as not ready.
        except Denied:
            raise
        except ServerError:
            return False


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

    def __init__(self, client: AsyncClient, fields: str, timeout_s: float) -> None:
        self._client = client
        self._protocol = client._protocol
        self._fields = fields
        self._timeout_s = timeout_s
        self._connection: GrpcConnection | None = None

    async def __aenter__(self) -> Self:
        """Open the stream. Raises ClientError."""
        call = self._protocol.open_stream()
        connection = await self._client._pool.lend(self._deadline())
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
            self._client._pool.give_back(connection, is_usable=connection.is_done)

    async def send(
        self, model: str, inputs: Mapping[str, object], **options: Unpack[InferOptions]
    ) -> None:
        """Send a request, as `infer` has it. Waits if the server does not read."""
        request = await self._client._request(model, inputs, options)
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
            return InferResult(self._client._read(self._protocol.read_message, message))
        self._client._check(connection.outcome())
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
            raise ClientError("the stream is used outside of its block")
        self._connection.stream.deadline = self._deadline()
        return self._connection

    def _deadline(self) -> float:
        return _deadline_after(self._timeout_s)


def _deadline_after(seconds: float) -> float:
    if seconds != seconds:  # what is compared with NaN would never be too late
        raise InvalidRequest("timeout_s is NaN, expected a number of seconds")
    # Neither systems nor gRPC know infinity.
    return time.monotonic() + min(seconds, _FOREVER_S)


class AsyncSharedMemory:
    """Made by `shared_memory` of a client; its arrays go to the server without being sent.

        async with client.shared_memory(1 << 20) as memory:
            image = memory.array((1, 3, 224, 224), np.float32)
            image[...] = picture
            await client.infer("resnet", {"image": image})

    At the end of the block the region is unregistered and removed; arrays stay valid.
    """

    def __init__(self, client: AsyncClient, size_bytes: int) -> None:
        self._client = client
        self._size_bytes = size_bytes
        self._region: SharedRegion | None = None

    async def __aenter__(self) -> Self:
        """Make the region and register it. Raises ClientError if the server does not take it."""
        # The region before its registration: a server opens it at once, and refuses one that is not
        # there.
        region = SharedRegion(self._size_bytes)
        try:
            await self._client._run(self._client._protocol.register(region.registration))
        except BaseException:
            # BaseException: also a cancelled task must not leave an object in /dev/shm, which
            # outlives the process.
            region.close()
            raise
        self._region = region
        self._client._regions.append(region)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        """Unregister and remove the region."""
        region = self._region
        if region is None:
            return
        self._region = None
        # Before it is unregistered: an array must not be sent as a reference that the server has
        # just lost.
        self._client._regions.remove(region)
        try:
            await self._client._run(self._client._protocol.unregister(region.registration.name))
        except ClientError:
            if kind is None:  # otherwise what ended the block says more
                raise
        finally:
            region.close()

    def array(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return a new array in the region. Raises InvalidRequest if it does not fit."""
        if self._region is None:
            raise ClientError("the shared memory is used outside of its block")
        return self._region.array(shape, dtype)

    def span_of(self, array: Array) -> Span:
        """Return where `array`, made here, lies. Raises InvalidRequest for another."""
        span = self._region.span_of(array) if self._region is not None else None
        if span is None:
            raise InvalidRequest("the array does not lie in this shared memory")
        return span
