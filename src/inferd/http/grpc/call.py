"""What all gRPC calls have in common: how they begin, end, answer and count what they hold.

A UnaryCall (grpc/unary_call.py) has one message and one answer; a StreamCall (grpc/stream_call.py)
any number of both. Unexpected exceptions end here: they are logged, and the client gets a status
without details.
"""

import asyncio
import base64
import functools
from collections.abc import Callable
from time import monotonic
from typing import Any, ClassVar, Final, cast

from inferd.errors import InferdError, Overloaded
from inferd.http.access import Guard, joined
from inferd.http.coding import WINDOW_BITS, BadCoding, InflatesTooFar
from inferd.http.failure import forget_frames
from inferd.http.grpc import messages as grpc_messages
from inferd.http.grpc.call_log import CallLog
from inferd.http.grpc.endpoint import Carrier
from inferd.http.grpc.exchange import StreamExchange
from inferd.http.grpc.handler import Metadata, Method, Unary
from inferd.http.grpc.messages import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    INTERNAL,
    PREFIX,
    PREFIX_BYTES,
    RESOURCE_EXHAUSTED,
    SMALL_BYTES,
    UNAVAILABLE,
    UNIMPLEMENTED,
    GrpcFault,
    GrpcHead,
    MessageReader,
)
from inferd.http.grpc.status import RETRY_PUSHBACK, status_of
from inferd.http.h1.body import is_too_slow
from inferd.http.h2.frames import ErrorCode
from inferd.http.h2.hpack import Field, encode_fields
from inferd.http.h2.request import RequestHead
from inferd.http.h2.stream import H2Stream
from inferd.http.request_log import Notes
from inferd.memory.buffer import Buffer

# Below this, compressing saves less than a packet.
COMPRESS_BYTES: Final = 1024
"""Answers below this size are not compressed."""

CUT_SHORT: Final = "the call ended inside a message"

_LATE: Final = "the deadline has passed"


class GrpcCall(StreamExchange):
    """One call, and the `Call` that its handler sees."""

    takes_runs: ClassVar[bool] = True
    cancelled = False
    notes: Notes | None = None
    _log: CallLog | None = None
    _timer: asyncio.TimerHandle | None = None
    _is_head_sent = False
    _initial: list[Field] | None = None
    _trailing: list[Field] | None = None
    _reader: MessageReader | None = None
    _held_bytes = 0
    _inflated_bytes = 0
    _coming_since: tuple[int, float] | None = None  # (message number, time it was first seen)

    def __init__(self, stream: H2Stream, carrier: Carrier) -> None:
        # Set here and not by StreamExchange: it saves two calls for each request.
        self.stream = stream
        self.sender = carrier.sender
        self._carrier = carrier
        self._grpc: GrpcHead = stream.head.use
        self._is_bare = True  # nothing to send but the answer, and nothing to clean up
        if carrier.client is not None:
            self._log = log = CallLog(carrier.client, stream.head)
            self.notes = log.notes

    @property
    def metadata(self) -> Metadata:
        """See Call."""
        # Decoded when asked for: most handlers never ask.
        return grpc_messages.decode_metadata(self.stream.head)

    @property
    def peer(self) -> str:
        """See Call."""
        return self._carrier.peer

    def note_request(self, notes: Notes, status: int, taken: int, sent: int, began_ns: int) -> None:
        """See Call."""
        if self._log is not None:
            self._log.note_request(notes, status, taken, sent, began_ns)

    def add_initial(self, metadata: Metadata) -> None:
        """See Call."""
        self._is_bare = False
        self._initial = [*(self._initial or ()), *_encoded(metadata)]

    def add_trailing(self, metadata: Metadata) -> None:
        """See Call."""
        self._is_bare = False
        self._trailing = [*(self._trailing or ()), *_encoded(metadata)]

    def hold(self, size_bytes: int) -> None:
        """See Call."""
        # A call that has ended holds nothing, and nobody would release it.
        if not self.stream.is_local_done:
            self._hold(size_bytes)

    def release(self, size_bytes: int) -> None:
        """See Call."""
        size_bytes = min(size_bytes, self._held_bytes)
        self._held_bytes -= size_bytes
        self._carrier.endpoint.capacity.buffered_bytes -= size_bytes

    def _open(self) -> None:
        """Begin a call that has a deadline, needs an access check, is refused, or is a stream."""
        grpc = self._grpc
        if grpc.timeout_s is not None:
            # From when the head is here; the client's own clock plays no part (gRPC over HTTP2,
            # Timeout).
            self.deadline_s = monotonic() + grpc.timeout_s
            if grpc.timeout_s <= 0:
                self._end(DEADLINE_EXCEEDED, _LATE)
                return
            self._carrier.hurried.append(self)
        if grpc.check_access is not None:
            try:
                # Before `fault`: who has no access is not told which methods there are.
                grpc.check_access()
            except InferdError as error:
                self._fail(error)
                return
        if grpc.fault is not None:
            self._end(grpc.fault.status, grpc.fault.message)

    def on_reset(self) -> None:
        """See StreamHandler."""
        self._note(CANCELLED)
        self.cancelled = True
        self._clean_up()

    def _check_room(self, data: Buffer, start: int, stop: int) -> None:
        """Refuse a call when its first message begins, if there is no room for it."""
        capacity = self._carrier.endpoint.capacity
        if stop - start >= PREFIX_BYTES:
            _, size = PREFIX.unpack_from(data, start)
            # Smaller ones are here already, or as good as.
            if size > SMALL_BYTES and not capacity.has_room(size):
                self._fail(capacity.too_many_bytes(size))

    def _hold(self, count: int) -> bool:
        """Count bytes held, over all connections; return False and end the call if too many."""
        capacity = self._carrier.endpoint.capacity
        self._is_bare = False
        self._held_bytes += count
        capacity.buffered_bytes += count
        if capacity.buffered_bytes <= capacity.max_bytes:
            return True
        if count <= SMALL_BYTES and not self._grpc.method.is_refusable:
            return True  # an overloaded server still answers health checks
        if not self.stream.is_local_done:
            self._fail(capacity.too_many_bytes(count))
        return False

    async def _inflate(self, message: Any) -> Any:
        encoding, endpoint = self._grpc.encoding, self._carrier.endpoint
        if encoding not in WINDOW_BITS:
            msg = "a message is marked as compressed, but grpc-encoding names no compression"
            raise GrpcFault(INTERNAL, msg)
        try:
            inflated = await endpoint.coder.inflate(message, encoding)
        except BadCoding as error:
            raise GrpcFault(INTERNAL, f"a compressed message {error}") from None
        except InflatesTooFar as error:
            options = "--grpc-max-inflated-bytes, --grpc-max-message-bytes"
            msg = f"a message inflates to more than {error} bytes ({options})"
            raise GrpcFault(RESOURCE_EXHAUSTED, msg) from None
        count = self._inflated_bytes = len(inflated)
        self._is_bare = False
        self._held_bytes += count
        if not endpoint.capacity.hold(count):
            raise endpoint.capacity.too_many_bytes(len(message) + count)
        # Copied if small: handlers get bytes for small messages whether or not they were
        # compressed.
        return bytes(inflated) if count <= SMALL_BYTES else inflated

    def _check_coming(self, number: int, count: int, now: float, limit_s: float) -> None:
        """End the call if `count` bytes of message `number`, all there are, came too slowly."""
        # The time counts anew for each message of a stream.
        if self._coming_since is None or self._coming_since[0] != number:
            self._coming_since = number, now
        lasts_s = now - self._coming_since[1]
        if is_too_slow(count, lasts_s, limit_s):
            text = f"a message came too slowly: {count} bytes in {lasts_s:.0f} s"
            self._end(DEADLINE_EXCEEDED, text)

    def _encoding(self) -> bytes:
        if not self._carrier.level:
            return b"identity"
        return grpc_messages.choose_encoding(self._grpc.accepted)

    def _send_head(self, encoding: bytes) -> None:
        if self._is_head_sent:
            return
        self._is_head_sent = True
        block = grpc_messages.encode_response_head(encoding)
        if self._initial is not None:
            block += encode_fields(self._initial)
        self.sender.send_headers(self.stream, block)

    def _fail(self, error: Exception) -> None:
        """End the call with what `error` says; whoever keeps it no longer keeps the message."""
        if isinstance(error, GrpcFault):
            self._end(error.status, error.message)
        else:
            where = self.stream.head.path.decode("latin-1")
            self._carrier.endpoint.failures.note(where, error)
            self._refuse(error)
        forget_frames(error)

    def _refuse(self, error: Exception) -> None:
        """End the call with the status for `error`."""
        if isinstance(error, Overloaded):
            self.add_trailing(RETRY_PUSHBACK)
        self._end(*status_of(error))

    def _end(self, status: int, message: str) -> None:
        """Send the status after the pending output; if no headers were sent, send it alone."""
        self._note(status)
        # An end that has been given to the sender already stays.
        if not self.stream.is_answered:
            if self._is_head_sent:
                trailers = grpc_messages.encode_status(status, message, self._trailing or ())
                self.sender.send_data(self.stream, [], trailers)
            else:
                block = grpc_messages.encode_status_only(status, message)
                for fields in (self._initial, self._trailing):
                    block += encode_fields(fields or ())
                self.sender.send_headers(self.stream, block, ends=True)
        self._clean_up()

    def _note(self, status: int) -> None:
        if self._log is not None:
            self._log.note(status)

    def watch_deadline(self) -> None:
        """See StreamExchange; there is a timer only with a deadline, until the call is done."""
        if self.deadline_s is not None and self._timer is None and not self.stream.is_answered:
            self._is_bare = False
            wait_s = self.deadline_s - monotonic()
            self._timer = self._carrier.loop.call_later(wait_s, self.expire)

    def expire(self) -> None:
        """See StreamExchange."""
        self._end_early(DEADLINE_EXCEEDED, _LATE)
        self._carrier.flush()

    def cut(self) -> None:
        """See StreamExchange."""
        self._end_early(UNAVAILABLE, "the server is shutting down")

    def _end_early(self, status: int, message: str) -> None:
        # Trailers would wait behind data that nobody reads.
        if self.stream.pending_bytes:  # the client does not read what is being sent
            self.sender.reset(self.stream.id, ErrorCode.CANCEL)
        else:
            self._end(status, message)

    def _clean_up(self) -> None:
        """Let go of all that the call holds; what runs its handler is for each kind of call."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.release(self._held_bytes)
        self._reader = None


def _encoded(metadata: Metadata) -> list[Field]:
    return [
        (
            key.encode("latin-1"),
            base64.b64encode(value).rstrip(b"=")
            if isinstance(value, bytes)
            else value.encode("latin-1"),
        )
        for key, value in metadata
    ]


def prepare(head: RequestHead, methods: dict[bytes, Method], max_bytes: int) -> GrpcHead | None:
    """Return what the head of a request asks for, None if it is not gRPC.

    The caller keeps it in `head.use` for repetitions of the head. `max_bytes` limits the metadata.
    """
    # A head like one before, except for values: its method and guard are looked up already.
    if head.base is not None and (known := head.base.use) and known.fault is None:
        grpc = grpc_messages.renew_grpc_head(known, head.changed)
        if grpc is not None and head.size <= max_bytes:
            if grpc.check_access is not None:
                # The fields with the key may be among those that differ.
                grpc.check_access = _access_check(grpc.method, head)
            return grpc
    if head.method != b"POST" or not grpc_messages.is_grpc(head):
        return None
    grpc = grpc_messages.decode_grpc_head(head)
    grpc.method = method = methods.get(head.path)
    # Also where the head has a fault, for the same reason as in `_open`.
    if method is not None and method.guard is not None:
        grpc.check_access = _access_check(method, head)
    if grpc.fault is not None:
        return grpc
    if method is None:
        path = head.path[:200].decode("latin-1")
        grpc.fault = GrpcFault(UNIMPLEMENTED, f"there is no method {path} here")
    elif head.size > max_bytes:
        msg = f"the metadata are larger than {max_bytes} bytes"
        grpc.fault = GrpcFault(RESOURCE_EXHAUSTED, msg)
    elif isinstance(method, Unary):
        grpc.handler = method.handler
        # Asked once per head instead of three questions per call.
        grpc.is_plain = grpc.timeout_s is None and grpc.check_access is None
    return grpc


def _access_check(method: Method, head: RequestHead) -> Callable[[], None]:
    guard = cast("Guard", method.guard)
    return functools.partial(guard.check, joined(head.fields))
