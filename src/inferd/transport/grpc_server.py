"""The gRPC port on grpcio: its asyncio server with our handlers, the reference for our own server.

grpc.aio shares the loop with HTTP and the engine. grpcio's threaded server costs as much CPU per
call, counting the hop of each call to that loop and back.
"""

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio

from inferd.engine.engine import Engine
from inferd.errors import Overloaded
from inferd.http.access import Guard, joined
from inferd.http.failure import FailureLog
from inferd.http.grpc.call_log import CallLog
from inferd.http.grpc.handler import Call, Metadata, Method, StreamHandler, Unary, refusal_of
from inferd.http.grpc.messages import CANCELLED, SMALL_BYTES
from inferd.http.grpc.status import RETRY_PUSHBACK, status_of
from inferd.http.h2.request import RequestHead
from inferd.http.request_log import Notes, RequestLog
from inferd.memory.capacity import Capacity
from inferd.transport.grpc_options import GrpcOptions, grpc_ssl_context, port_methods

if TYPE_CHECKING:
    from inferd.http.h2.hpack import Field

logger = logging.getLogger("inferd.grpc")

# Handlers speak of codes by number, grpcio wants its enumeration.
_STATUS = {code.value[0]: code for code in grpc.StatusCode}
# grpc_compression_level of gRPC core.
_COMPRESSION_LEVELS = {"none": 0, "low": 1, "medium": 2, "high": 3}


class GrpcServer:
    """Answers gRPC calls on one port; `more_methods`, by path, are offered besides our own."""

    def __init__(
        self, engine: Engine, options: GrpcOptions, more_methods: dict[str, Method] | None = None
    ) -> None:
        self._options = options
        self._capacity = engine.capacity
        self._stopping = asyncio.Event()
        self._methods = port_methods(engine, options, self._stopping, more_methods or {})
        self._server: grpc.aio.Server | None = None
        self._certificates: grpc.ServerCertificateConfiguration | None = None

    async def start(self, address: str, port: int) -> int:
        """Listen on `address` and return the port, which the system chooses if `port` is 0.

        Raises OSError naming the address if it cannot be bound, InvalidConfig if the TLS files
        cannot be used.
        """
        server = grpc.aio.server(options=_channel_arguments(self._options))
        # grpc.GenericRpcHandler is a base class, of grpcio without types; only `service` is called.
        handlers = cast("Any", _Handlers(self._methods, self._capacity, self._options.request_log))
        server.add_generic_rpc_handlers((handlers,))
        host = f"[{address}]" if ":" in address else address
        try:
            if self._options.has_tls:
                bound = server.add_secure_port(f"{host}:{port}", self._credentials())
            else:
                bound = server.add_insecure_port(f"{host}:{port}")
        # All that grpcio says of an address that it cannot bind.
        except RuntimeError as error:
            msg = f"cannot listen for gRPC on {host}:{port}: the address is taken or not ours"
            raise OSError(msg) from error
        await server.start()
        self._server = server
        return bound

    async def stop(self, grace_s: float) -> bool:
        """Stop taking calls, give those in flight `grace_s` seconds, then cancel them.

        Return whether none had to be, as far as the time tells: grpcio does not say.
        """
        self._stopping.set()
        began_s = monotonic()
        if self._server is not None:
            await self._server.stop(grace_s)
            self._server = None
        return monotonic() - began_s < grace_s

    def read_tls(self) -> None:
        """Reload the TLS files, for new connections.

        Raises InvalidConfig if they cannot be used; the previous ones then stay in use.
        """
        self._certificates = _read_certificates(self._options)

    def _credentials(self) -> grpc.ServerCredentials:
        """Return the TLS credentials the options ask for. Raises InvalidConfig."""
        self.read_tls()
        first = self._take_certificates()
        # Asks for new files with each connection; None leaves the old ones.
        return grpc.dynamic_ssl_server_credentials(
            first,
            self._take_certificates,
            require_client_authentication=self._options.use_ssl_mutual,
        )

    def _take_certificates(self) -> Any:
        """Return the certificates read since the last connection, None if there are none."""
        found, self._certificates = self._certificates, None
        return found


class AioCall:
    """A Call carried by grpc.aio."""

    def __init__(
        self, context: Any, capacity: Capacity, path: str = "", log: RequestLog | None = None
    ) -> None:
        self.log: CallLog | None = None
        self.notes: Notes | None = None
        if log is not None:
            found = context.invocation_metadata() or ()
            fields: list[Field] = [(key.encode(), _as_bytes(value)) for key, value in found]
            # The peer is "ipv4:1.2.3.4:5", "ipv6:[::1]:5" or "unix:".
            client = log.client(str(context.peer()).partition(":")[2] or "unix", "gRPC")
            self.log = CallLog(client, RequestHead(b"POST", path.encode(), fields, 0))
            self.notes = self.log.notes
        self._capacity = capacity
        self._context = context
        self._buffered_bytes = 0
        self._status = (0, "")
        self._trailing: Metadata = []
        self.initial: Metadata = []

    @property
    def metadata(self) -> Metadata:
        """See Call."""
        return [(key, value) for key, value in self._context.invocation_metadata() or ()]

    @property
    def deadline_s(self) -> float | None:
        """See Call."""
        left_s = self._context.time_remaining()
        return None if left_s is None else monotonic() + left_s

    @property
    def cancelled(self) -> bool:
        """See Call."""
        return bool(self._context.cancelled())

    @property
    def peer(self) -> str:
        """See Call."""
        return str(self._context.peer())

    def hold(self, size_bytes: int) -> None:
        """See Call; raises Overloaded and TooLarge."""
        # Counted before it is refused, so that `end` releases it in either case.
        self._buffered_bytes += size_bytes
        if not self._capacity.hold(size_bytes):
            raise self._capacity.too_many_bytes(size_bytes)

    def release(self, size_bytes: int) -> None:
        """See Call."""
        size_bytes = min(size_bytes, self._buffered_bytes)  # the call may have ended already
        self._buffered_bytes -= size_bytes
        self._capacity.hold(-size_bytes)

    def end(self) -> None:
        """Release all that is held, and log the call."""
        self.release(self._buffered_bytes)
        if self.log is not None:
            self.log.note(self._status[0])

    def note_request(self, notes: Notes, status: int, taken: int, sent: int, began_ns: int) -> None:
        """See Call."""
        if self.log is not None:
            self.log.note_request(notes, status, taken, sent, began_ns)

    def note_cancelled(self) -> None:
        """Note that the client has given up the call."""
        self._status = (CANCELLED, "")

    def note(self, error: Exception) -> None:
        """Keep the status for `error`, not `error` itself: it keeps frames and data alive."""
        self._status = status_of(error)
        if isinstance(error, Overloaded):
            self.add_trailing(RETRY_PUSHBACK)

    async def fail(self) -> Any:
        """End the call with the error that was noted."""
        code, details = self._status
        return await self._context.abort(_STATUS[code], details)

    def add_initial(self, metadata: Metadata) -> None:
        """See Call."""
        self.initial += metadata

    def add_trailing(self, metadata: Metadata) -> None:
        """See Call."""
        self._trailing += metadata
        # grpcio replaces what was set before, so all is given again.
        self._context.set_trailing_metadata(tuple(self._trailing))


class _Handlers:
    """Finds grpcio's handler of a call, before its messages have arrived."""

    def __init__(
        self, methods: dict[str, Method], capacity: Capacity, log: RequestLog | None
    ) -> None:
        self._capacity = capacity
        self._log = log
        failures = FailureLog(logger)
        begin = functools.partial(AioCall, capacity=capacity, log=log)
        self._handlers = {
            path: _adapted(path, method, failures, begin) for path, method in methods.items()
        }
        # Registered as streams, so that grpcio does not wait for the message.
        self._refusing = {
            path: grpc.stream_stream_rpc_method_handler(
                functools.partial(self._refuse, path, method)
            )
            for path, method in methods.items()
            if method.is_refusable and isinstance(method, Unary)
        }

    def service(self, handler_call_details: Any) -> Any:
        """See grpc.GenericRpcHandler."""
        path = handler_call_details.method
        # Before the message has arrived: a full server does not receive what it will refuse.
        if self._capacity.is_full and path in self._refusing:
            return self._refusing[path]
        return self._handlers.get(path)

    async def _refuse(self, path: str, method: Method, _messages: Any, context: Any) -> None:
        call = AioCall(context, self._capacity, path, self._log)
        error = self._capacity.too_many_requests()
        # Calls of the TensorRT Inference Server have their errors inside a good message.
        if (refusal := refusal_of(method, error)) is not None:
            call.end()
            await context.write(b"".join(refusal))
            return
        call.note(error)
        call.end()
        await call.fail()


def _adapted(path: str, method: Method, failures: FailureLog, begin: Callable[..., AioCall]) -> Any:
    """Return grpcio's handler of `method`; `begin` makes the Call of each call."""
    if method.guard is not None:
        method = _guarded(method, method.guard)
    if isinstance(method, Unary):
        unary = _adapted_unary(path, method, failures, begin)
        return grpc.unary_unary_rpc_method_handler(unary)
    stream = _adapted_stream(path, method.handler, failures, begin)
    return grpc.stream_stream_rpc_method_handler(stream)


def _guarded(method: Method, guard: Guard) -> Method:
    handler: Callable[[Any, Call], Any] = method.handler

    def checked(given: Any, call: Call) -> Any:
        # Several values of one key count as one, as in HTTP.
        guard.check(joined((key.encode(), _as_bytes(value)) for key, value in call.metadata))
        return handler(given, call)

    return method._replace(handler=checked)


def _as_bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _adapted_unary(
    path: str, method: Unary, failures: FailureLog, begin: Callable[..., AioCall]
) -> Callable[[bytes, Any], Any]:
    async def run(data: bytes, context: Any) -> Any:
        call = begin(context, path=path)
        if call.log is not None:
            call.log.taken = len(data)
        try:
            if method.is_refusable or len(data) > SMALL_BYTES:  # health checks are never refused
                call.hold(len(data))
            begun = method.handler(data, call)
            # A handler that need not wait returns the buffers themselves: no coroutine.
            answer = b"".join(begun if isinstance(begun, list) else await begun)
            if call.log is not None:
                call.log.sent = len(answer)
            if call.initial:
                await context.send_initial_metadata(tuple(call.initial))
            return answer
        # The client has left, or its deadline has passed.
        except asyncio.CancelledError:
            call.note_cancelled()
            raise
        except Exception as error:  # noqa: BLE001  the wall
            failures.note(path, error)
            if (refusal := refusal_of(method, error)) is not None:
                return b"".join(refusal)
            call.note(error)
        finally:
            call.end()
            del data  # grpcio keeps this frame for a while if the call ends with an exception
        # After `finally`: abort() raises, and would chain the error that was handled.
        return await call.fail()

    return run


def _adapted_stream(
    path: str, handler: StreamHandler, failures: FailureLog, begin: Callable[..., AioCall]
) -> Callable[[Any, Any], Any]:
    async def run(messages: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        call = begin(context, path=path)
        try:
            async for buffers in handler(messages, call):
                if call.initial:
                    await context.send_initial_metadata(tuple(call.initial))
                    call.initial = []
                yield b"".join(buffers)
            return
        # grpcio closes the iterator when the client has gone.
        except (asyncio.CancelledError, GeneratorExit):
            call.note_cancelled()
            raise
        except Exception as error:  # noqa: BLE001  the wall
            failures.note(path, error)
            call.note(error)
        finally:
            call.end()
        await call.fail()

    return run


def _channel_arguments(options: GrpcOptions) -> list[tuple[str, int]]:
    """Return `options` under gRPC core's names."""
    arguments: dict[str, int | None] = {
        "grpc.so_reuseport": options.reuse_port,
        "grpc.max_receive_message_length": options.max_message_bytes,
        "grpc.max_send_message_length": options.max_send_bytes,
        # A level, not an algorithm: gRPC core picks one that the client accepts.
        "grpc.default_compression_level": _COMPRESSION_LEVELS[options.compression_level],
        "grpc.keepalive_time_ms": options.keepalive_time_ms,
        "grpc.keepalive_timeout_ms": options.keepalive_timeout_ms,
        "grpc.keepalive_permit_without_calls": options.keepalive_permit_without_calls,
        "grpc.http2.max_pings_without_data": options.http2_max_pings_without_data,
        "grpc.http2.min_ping_interval_without_data_ms": (
            options.http2_min_recv_ping_interval_without_data_ms
        ),
        "grpc.http2.max_ping_strikes": options.http2_max_ping_strikes,
        "grpc.max_connection_age_ms": options.max_connection_age_ms,
        "grpc.max_connection_age_grace_ms": options.max_connection_age_grace_ms,
    }
    return [(name, int(value)) for name, value in arguments.items() if value is not None]


def _read_certificates(options: GrpcOptions) -> grpc.ServerCertificateConfiguration:
    """Return the contents of the TLS files of `options`. Raises InvalidConfig."""
    grpc_ssl_context(options)  # only for its checks: gRPC core merely reports that it cannot bind
    key, cert = Path(str(options.server_key)), Path(str(options.server_cert))
    return grpc.ssl_server_certificate_configuration(
        [(key.read_bytes(), cert.read_bytes())],
        Path(options.root_cert).read_bytes() if options.root_cert else None,
    )
