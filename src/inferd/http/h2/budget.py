"""How much useless work a peer may cause (RFC 9113, section 10.5)."""

from typing import Final

from inferd.http.h2.frames import ConnectionFault, ErrorCode

# gRPC clients send SETTINGS, PINGs and small WINDOW_UPDATEs by the dozen, not by the thousand.
EMPTY_FRAMES: Final = 1000
"""Useless frames that a peer may send between two ticks, besides some for each new stream."""

EMPTY_FRAMES_PER_STREAM: Final = 16

# Cancelled calls are normal; streams opened only to be reset are an attack known as Rapid Reset
# (CVE-2023-44487).
RESETS: Final = 500
"""New streams that may be reset between two ticks, besides one for each that is not."""


class FloodBudget:
    """The budgets of one connection; `tick` refills them, about once a second.

    `last_stream_id` is the newest stream's: real requests enlarge the budgets.
    """

    def __init__(self) -> None:
        self._empty_count = 0
        self._reset_count = 0
        self._ticked_stream_id = 0

    def note_empty(self, last_stream_id: int) -> None:
        """Count a useless frame. Raises ConnectionFault when there are too many."""
        self._empty_count += 1
        if self._empty_count > EMPTY_FRAMES:
            # A client's streams have odd numbers.
            opened = (last_stream_id - self._ticked_stream_id) // 2
            if self._empty_count > EMPTY_FRAMES + EMPTY_FRAMES_PER_STREAM * opened:
                msg = "too many frames that carry nothing"
                raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, msg)

    def note_reset(self, stream_id: int, last_stream_id: int) -> None:
        """Count a stream that was reset before its answer was complete, unless it is old.

        The reset may be the peer's, or ours for a fault of the peer: both cost us the same. Raises
        ConnectionFault when there are too many.
        """
        # Of older ones there are no more than may be open. A proxy resets them all at once when its
        # clients go.
        if stream_id <= self._ticked_stream_id:
            return
        self._reset_count += 1
        opened = (last_stream_id - self._ticked_stream_id) // 2
        # One reset for each new stream that is not: half of all new ones may be.
        if 2 * self._reset_count > RESETS + opened:
            msg = "too many streams are opened only to be reset"
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, msg)

    def tick(self, last_stream_id: int) -> None:
        """Refill the budgets."""
        self._empty_count = self._reset_count = 0
        self._ticked_stream_id = last_stream_id
