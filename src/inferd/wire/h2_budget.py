"""How much useless work a peer may make (RFC 9113, section 10.5)."""

from typing import Final

from inferd.wire.h2_frames import ConnectionFault, ErrorCode

EMPTY_FRAMES: Final = 1000
"""Frames without use that a peer may send between two ticks, beside some for each request."""

EMPTY_FRAMES_PER_STREAM: Final = 16

RESETS: Final = 500
"""Streams a peer may open and have reset between two ticks, beside one for each that may end."""


class FloodBudget:
    """The budgets of one connection; `tick` fills them up, about once a second.

    `last_stream_id` is the newest stream's: what a peer asks for in earnest earns it more.
    """

    def __init__(self) -> None:
        self._empty_count = 0
        self._reset_count = 0
        self._ticked_stream_id = 0

    def note_empty(self, last_stream_id: int) -> None:
        """Count a frame that carries nothing. Raises ConnectionFault when there are too many."""
        self._empty_count += 1
        if self._empty_count > EMPTY_FRAMES:
            opened = (last_stream_id - self._ticked_stream_id) // 2
            if self._empty_count > EMPTY_FRAMES + EMPTY_FRAMES_PER_STREAM * opened:
                msg = "too many frames that carry nothing"
                raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, msg)

    def note_reset(self, last_stream_id: int) -> None:
        """Count a stream that was reset before its answer was complete.

        By the peer, or by us for a rule the peer has broken: both cost us the same. Raises
        ConnectionFault when there are too many.
        """
        self._reset_count += 1
        opened = (last_stream_id - self._ticked_stream_id) // 2
        if 2 * self._reset_count > RESETS + opened:
            msg = "too many streams are opened only to be reset"
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, msg)

    def tick(self, last_stream_id: int) -> None:
        """Fill the budgets up."""
        self._empty_count = self._reset_count = 0
        self._ticked_stream_id = last_stream_id
