"""One HTTP/2 stream, where the connection and the application meet."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from inferd.compiled import mypyc_attr
from inferd.wire.h2_request import RequestHead

if TYPE_CHECKING:
    from collections import deque

    from inferd.wire.h2_connection import H2Connection

Buffer = Any
"""bytes, or a memoryview of bytes."""

STREAM_WINDOW: Final = 1 << 22
"""SETTINGS_INITIAL_WINDOW_SIZE as we offer it."""


@mypyc_attr(allow_interpreted_subclasses=True)
class H2Stream:
    """One stream, as the connection knows it; the application subclasses it and is called."""

    uncredited = 0  # bytes taken, the peer not yet told
    takes_runs: ClassVar[bool] = False  # whether `on_data_run` is there
    pending: "deque[Buffer] | None" = None
    pending_bytes = 0
    sent_bytes = 0  # of what was pending
    received_bytes = 0  # counted only where the head declares a length
    drop_bytes = 0  # how much is taken and dropped once the answer is complete
    deadline_s: float | None = None  # when `expire` is due, on the application's clock
    moved_at = 0.0  # when the application last looked and saw `sent_bytes` move

    def __init__(self, connection: "H2Connection", stream_id: int, head: RequestHead) -> None:
        self.connection = connection
        self.id = stream_id
        self.head = head
        self.receive_window = STREAM_WINDOW
        self.moved_bytes = -1  # `sent_bytes` at `moved_at`
        self.send_window = self.full_window = connection.peer_stream_window
        # What every stream is asked for is its own: CPython finds that sooner than the class's.
        self.is_remote_done = False  # the peer has ended its side
        self.is_local_done = False  # we have ended ours, or the stream was reset
        self.ending: bytes | None = None  # trailers to send after `pending`, b"" for none

    def on_open(self) -> None:
        """Act on the head; called once. DATA may follow, or `on_end`."""

    def on_data(self, data: Buffer, start: int, stop: int, *, ends: bool) -> None:
        """Take data[start:stop], which is only valid now; `ends`: nothing follows."""
        raise NotImplementedError

    def on_data_run(self, data: Buffer, starts: Sequence[int], length: int) -> None:
        """Take `length` bytes from each of `starts`, which are evenly spaced; more DATA follows."""
        raise NotImplementedError

    def on_end(self) -> None:
        """Take note that the peer has ended its side without more DATA."""
        raise NotImplementedError

    def on_reset(self) -> None:
        """Take note that the stream is gone: reset by either side, or the connection lost."""
        raise NotImplementedError

    def on_drained(self) -> None:
        """Go on sending: what was pending has been put into frames."""

    def room(self) -> memoryview | None:
        """Return memory that DATA may be received into directly, None for none."""
        return None

    def on_filled(self, count: int, *, ends: bool) -> None:
        """Take note that `count` bytes of `room` have been filled."""
        raise NotImplementedError

    def check_pace(self, now: float, limit_s: float) -> None:
        """End if what the peer sends has made no progress for `limit_s`; asked now and again."""

    def expire(self) -> None:
        """End because the deadline has passed."""

    def cut(self) -> None:
        """End because the server does."""
