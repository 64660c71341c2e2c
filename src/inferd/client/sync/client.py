"""Client: a client of any V2 server, an AsyncClient whose calls wait in the thread that calls."""

from collections.abc import Generator, Mapping
from typing import Self, Unpack

from numpy.typing import DTypeLike

from inferd.client.aio.client import AsyncClient, AsyncRequestStream, AsyncSharedMemory
from inferd.client.requests import InferOptions
from inferd.client.result import InferResult
from inferd.client.settings import ClientOptions, Headers
from inferd.client.sync.io import IN_THREAD, first_step, run
from inferd.core.metadata import IndexEntry, ModelMetadata, ServerMetadata
from inferd.core.request import Span
from inferd.observe.statistics import ModelStatistics
from inferd.tensor.array import Array
from inferd.wire.json.document import JsonObject


class _ThreadClient(AsyncClient):
    """An AsyncClient whose calls block, so that `run` runs them."""

    _transport = IN_THREAD


class Client:
    """A client of the server at a URL.

        with Client("http://127.0.0.1:8000") as client:
            result = client.infer("resnet", {"image": image})
            result["prob"]

    `http://` and `https://` speak REST, `grpc://` and `grpcs://` gRPC. ClientOptions says what else
    may be given. Calls raise ClientError, and InvalidRequest for arguments that cannot be sent.
    """

    def __init__(self, url: str, **options: Unpack[ClientOptions]) -> None:
        self._calls = _ThreadClient(url, **options)

    def __enter__(self) -> Self:
        """Return the client itself; connections are made when there are calls."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        run(self._calls.close())

    @property
    def url(self) -> str:
        """The server's URL, with its port."""
        return self._calls.url

    def infer(
        self, model: str, inputs: Mapping[str, object], **options: Unpack[InferOptions]
    ) -> InferResult:
        """Run `model` on `inputs`, and return its outputs by name.

        An input is an array, or a list, a text, bytes or a number, for which the model's metadata
        are asked for once. InferOptions says what else may be given.
        """
        return run(self._calls.infer(model, inputs, **options))

    def stream(
        self, model: str, inputs: Mapping[str, object], **options: Unpack[InferOptions]
    ) -> Generator[InferResult, None, None]:
        """Run `model` on `inputs`, and yield its answers as they come: any number of them.

        The deadline is for the whole. Over REST the server must have infer_stream, as inferd and
        MLServer do. An iterator that is not read to its end ends the request when it is closed.
        """
        answers = self._calls.stream(model, inputs, **options)
        try:
            step = first_step(answers)
            while (answer := run(step)) is not None:
                yield answer
                step = anext(answers, None)
        finally:
            run(answers.aclose())

    def open_stream(
        self, *, timeout_s: float | None = None, headers: Headers | None = None
    ) -> "RequestStream":
        """Return a stream for many requests, to be used as a `with` block; only over gRPC.

        `timeout_s` is for each step: sending one request, receiving one answer.
        """
        return RequestStream(self._calls.open_stream(timeout_s=timeout_s, headers=headers))

    def is_live(self) -> bool:
        """Return whether the server says that it is live; errors of connections are raised."""
        return run(self._calls.is_live())

    def is_ready(self, model: str = "", version: str = "") -> bool:
        """Return whether the server, or `model`, says that it is ready."""
        return run(self._calls.is_ready(model, version))

    def server_metadata(self) -> ServerMetadata:
        """Return name, version and extensions of the server."""
        return run(self._calls.server_metadata())

    def metadata(self, model: str, version: str = "") -> ModelMetadata:
        """Return the inputs and outputs of a model, and its versions."""
        return run(self._calls.metadata(model, version))

    def config(self, model: str, version: str = "") -> JsonObject:
        """Return the configuration of a model, as JSON has it (an extension of Triton's)."""
        return run(self._calls.config(model, version))

    def statistics(self, model: str = "", version: str = "") -> list[ModelStatistics]:
        """Return the statistics of a model, or of all, one entry for each version."""
        return run(self._calls.statistics(model, version))

    def models(self, *, ready: bool = False) -> list[IndexEntry]:
        """Return the index of the repository; with `ready` only what can be used."""
        return run(self._calls.models(ready=ready))

    def load(
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
        run(self._calls.load(model, config=config, files=files, timeout_s=timeout_s))

    def unload(
        self, model: str, *, dependents: bool = False, timeout_s: float | None = None
    ) -> None:
        """Unload `model`; with `dependents` also models loaded only for its sake."""
        run(self._calls.unload(model, dependents=dependents, timeout_s=timeout_s))

    def shared_memory(self, size_bytes: int) -> "SharedMemory":
        """Return shared memory for a `with` block; the server must be on this machine."""
        return SharedMemory(self._calls.shared_memory(size_bytes))

    def trace_settings(
        self, model: str = "", changes: Mapping[str, object] | None = None
    ) -> dict[str, object]:
        """Return the trace settings, of all models or of one, after making `changes`."""
        return run(self._calls.trace_settings(model, changes))

    def log_settings(self, changes: Mapping[str, object] | None = None) -> dict[str, object]:
        """Return the log settings after making `changes`."""
        return run(self._calls.log_settings(changes))


class RequestStream:
    """Made by `open_stream` of a client; one thread or task uses it.

        with client.open_stream() as stream:
            for number, part in enumerate(parts):
                stream.send("asr", {"sound": part}, sequence_id=7, sequence_start=not number)
            stream.end()
            for result in stream:
                print(result.id, result["text"])

    Models that answer once are answered in the order of the requests; `result.final` says that a
    request has no more answers, of which the last may have no outputs. Leaving the block before the
    answers were read to their end gives up the rest.
    """

    def __init__(self, stream: AsyncRequestStream) -> None:
        self._stream = stream

    def __enter__(self) -> Self:
        """Open the stream. Raises ClientError."""
        run(self._stream.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        """Give the connection back, or close it if the stream has not ended."""
        run(self._stream.__aexit__(*error))

    def send(
        self, model: str, inputs: Mapping[str, object], **options: Unpack[InferOptions]
    ) -> None:
        """Send a request, as `infer` has it. Waits if the server does not read."""
        run(self._stream.send(model, inputs, **options))

    def end(self) -> None:
        """Say that no more requests follow; the stream ends when all are answered."""
        run(self._stream.end())

    def receive(self) -> InferResult | None:
        """Return the next answer, None when the stream has ended.

        Raises ClientError; after the ServerError of one request, the stream may go on.
        """
        return run(self._stream.receive())

    def __iter__(self) -> Self:
        """Iterate over the answers, to the end of the stream."""
        return self

    def __next__(self) -> InferResult:
        """Return the next answer."""
        result = self.receive()
        if result is None:
            raise StopIteration
        return result


class SharedMemory:
    """Made by `shared_memory` of a client; its arrays go to the server without being sent.

        with client.shared_memory(1 << 20) as memory:
            image = memory.array((1, 3, 224, 224), np.float32)
            image[...] = picture
            client.infer("resnet", {"image": image})

    At the end of the block the region is unregistered and removed; arrays stay valid.
    """

    def __init__(self, memory: AsyncSharedMemory) -> None:
        self._memory = memory

    def __enter__(self) -> Self:
        """Make the region and register it. Raises ClientError if the server does not take it."""
        run(self._memory.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Unregister and remove the region."""
        run(self._memory.__aexit__(kind, *error))

    def array(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return a new array in the region. Raises InvalidRequest if it does not fit."""
        return self._memory.array(shape, dtype)

    def span_of(self, array: Array) -> Span:
        """Return where `array`, made here, lies. Raises InvalidRequest for another."""
        return self._memory.span_of(array)
