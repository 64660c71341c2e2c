"""One HTTP/2 stream, where the connection and the application meet."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from inferd.compiled import mypyc_attr
from inferd.http.h2.request import RequestHead

if TYPE_CHECKING:
    from collections import deque

    from inferd.http.h2.connection import H2Connection

Buffer = Any
"""bytes, or a memoryview of bytes."""

STREAM_WINDOW: Final = 1 << 22
"""The SETTINGS_INITIAL_WINDOW_SIZE we offer."""


@mypyc_attr(allow_interpreted_subclasses=True)
class H2Stream:
    """One stream, as the connection sees it; the application overrides its methods."""

    uncredited = 0  # bytes taken for which the peer has no WINDOW_UPDATE yet
    takes_runs: ClassVar[bool] = False  # whether `on_data_run` is implemented
    pending: "deque[Buffer] | None" = None
    pending_bytes = 0
    sent_bytes = 0  # pending bytes put into frames so far
    received_bytes = 0  # counted only where the head declares a length
    drop_bytes = 0  # how many bytes are dropped before a reset, once the answer is complete
    deadline_s: float | None = None  # when `expire` is due, on the application's clock
    moved_at = 0.0  # when the application last looked and saw `sent_bytes` move

    def __init__(self, connection: "H2Connection", stream_id: int, head: RequestHead) -> None:
        self.connection = connection
        self.id = stream_id
        self.head = head
        self.receive_window = STREAM_WINDOW
        self.moved_bytes = -1  # `sent_bytes` at `moved_at`
        self.send_window = self.full_window = connection.peer_stream_window
        # Attributes read on every stream are set on the instance: CPython finds those sooner.
        self.is_remote_done = False  # the peer has ended its side
        self.is_local_done = False  # we have ended ours, or the stream was reset
        self.ending: bytes | None = None  # trailers to send after `pending`, b"" for none

    def on_open(self) -> None:
        """Act on the head; called once. DATA may follow, or `on_end`."""

    def on_data(self, data: Buffer, start: int, stop: int, *, ends: bool) -> None:
        """Take data[start:stop], valid only during the call; `ends`: nothing follows."""
        raise NotImplementedError

    def on_data_run(self, data: Buffer, starts: Sequence[int], length: int) -> None:
        """Take `length` bytes from each of `starts`, which are evenly spaced; more DATA follows."""
        raise NotImplementedError

    def on_end(self) -> None:
        """Note that the peer has ended its side without more DATA."""
        raise NotImplementedError

    def on_reset(self) -> None:
        """Note that the stream is gone: reset by either side, or the connection was lost."""
        raise NotImplementedError

    def on_drained(self) -> None:
        """Go on sending: all pending data have been put into frames."""

    def room(self) -> memoryview | None:
        """Return memory to receive DATA into directly, None if there is none."""
        return None

    def on_filled(self, count: int, *, ends: bool) -> None:
        """Note that `count` bytes of `room` have been filled."""
        raise NotImplementedError

    def check_pace(self, now: float, limit_s: float) -> None:
        """End the stream if the peer sends too slowly, given `limit_s`; called now and then."""

    def watch_deadline(self) -> None:
        """Have `expire` called at the deadline, now that the stream was not answered at once."""

    def go_on(self) -> None:
        """Continue after a wait."""

    def expire(self) -> None:
        """End the stream because its deadline has passed."""

    def cut(self) -> None:
        """End the stream because the server is shutting down."""
