"""One HTTP/2 stream, as the protocol knows it, and what the application has to take of it."""

from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Final

from inferd.compiled import mypyc_attr
from inferd.http.h2.request import RequestHead
from inferd.memory.buffer import Buffer

# A large message comes without waiting for updates; times the streams it is bounded by the server's
# limit of bytes.
STREAM_WINDOW: Final = 1 << 22
"""The SETTINGS_INITIAL_WINDOW_SIZE we offer."""


class H2Stream:
    """The state of one stream: its windows, what is still to be sent on it, and which side ended.

    It is part of its handler, and knows nobody.
    """

    uncredited = 0  # bytes taken for which the peer has no WINDOW_UPDATE yet
    pending: deque[Buffer] | None = None
    pending_bytes = 0
    sent_bytes = 0  # pending bytes put into frames so far
    received_bytes = 0  # counted only where the head declares a length
    drop_bytes = 0  # how many bytes are dropped before a reset, once the answer is complete

    def __init__(self, stream_id: int, head: RequestHead, send_window: int) -> None:
        self.id = stream_id
        self.head = head
        self.receive_window = STREAM_WINDOW
        self.send_window = self.full_window = send_window
        # Attributes read on every stream are set on the instance: CPython finds those sooner.
        self.is_remote_done = False  # the peer has ended its side
        self.is_local_done = False  # we have ended ours, or the stream was reset
        self.ending: bytes | None = None  # trailers to send after `pending`, b"" for none

    @property
    def is_answered(self) -> bool:
        """Whether the end of the answer has been given to the sender, or the stream is gone."""
        return self.is_local_done or self.ending is not None


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamHandler:
    """What becomes of one stream; each method is told of one thing. This one ignores them all.

    A class and not a protocol: compiled code calls the methods of a class about as fast as
    functions, and those of a protocol by their names.
    """

    takes_runs: ClassVar[bool] = False  # whether `on_data_run` is of use

    def __init__(self, stream: H2Stream) -> None:
        self.stream = stream

    def on_open(self) -> None:
        """Act on the head; called once. DATA may follow, or `on_end`."""

    def on_data(self, data: Buffer, start: int, stop: int, *, ends: bool) -> None:
        """Take data[start:stop], valid only during the call; `ends`: nothing follows."""

    def on_data_run(self, data: Buffer, starts: Sequence[int], length: int) -> None:
        """Take `length` bytes from each of `starts`, which are evenly spaced; more DATA follows."""

    def on_end(self) -> None:
        """Note that the peer has ended its side without more DATA."""

    def on_reset(self) -> None:
        """Note that the stream is gone: reset by either side, or the connection was lost."""

    def on_drained(self) -> None:
        """Go on sending: all pending data have been put into frames."""

    def room(self) -> memoryview | None:
        """Return memory to receive DATA into directly, None if there is none."""
        return None

    def on_filled(self, count: int, *, ends: bool) -> None:
        """Note that `count` bytes of `room` have been filled."""
