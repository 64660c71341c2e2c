"""StreamExchange: a request and its answer on one HTTP/2 stream, whose connection has a clock."""

from typing import Final

from inferd.compiled import mypyc_attr
from inferd.http.h2.frames import ErrorCode
from inferd.http.h2.sender import H2Sender
from inferd.http.h2.stream import H2Stream, StreamHandler
from inferd.http.limits import GrpcLimits

QUEUED_BYTES: Final = 65536
"""What streams its answer waits while more than this is unsent."""


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamExchange(StreamHandler):
    """A handler that sends with `sender`; its time limits are checked by its connection's sweep.

    A connection has it end after `deadline_s`, by the clock of the sweeps, or when the client does
    not read an answer that waits for it.
    """

    deadline_s: float | None = None
    _moved_bytes = -1  # how much had been sent when the sweep last saw that change, at `_moved_at`
    _moved_at = 0.0

    def __init__(self, stream: H2Stream, sender: H2Sender) -> None:
        super().__init__(stream)
        self.sender = sender

    def check_time(self, now: float, limits: GrpcLimits) -> None:
        """End the exchange if its time is over, or its client is too slow."""
        self.check_pace(now, limits.message_timeout_s)
        stream = self.stream
        if self.deadline_s is not None and self.deadline_s < now:
            self.expire()
        # Any progress starts the time anew, however little: how fast a client reads is its own
        # affair.
        elif stream.sent_bytes != self._moved_bytes or not self._needs_client():
            self._moved_bytes, self._moved_at = stream.sent_bytes, now
        elif now - self._moved_at > limits.write_timeout_s:
            self.sender.reset(stream.id, ErrorCode.CANCEL)

    def _needs_client(self) -> bool:
        """Return whether the client has to read before the answer can go on or end.

        One that is streamed may be idle as long as its producer is not held up.
        """
        return self.stream.pending_bytes > (QUEUED_BYTES if self.stream.ending is None else 0)

    def check_pace(self, now: float, limit_s: float) -> None:
        """End the exchange if the client sends too slowly, given `limit_s`."""

    def watch_deadline(self) -> None:
        """Have `expire` called at the deadline, now that the request was not answered at once."""

    def go_on(self) -> None:
        """Continue after a wait."""

    def expire(self) -> None:
        """End the exchange because its deadline has passed."""

    def cut(self) -> None:
        """End the exchange because the server is shutting down."""
