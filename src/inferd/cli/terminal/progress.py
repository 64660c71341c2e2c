"""ProgressLine: one line on standard error that says how far something is, where a terminal is."""

import os
import shutil
import sys
import time
from typing import Self, TextIO

# More often than people read.
_LEAST_S = 0.1
# Carriage return, then erase to the end of the line (ECMA-48, EL).
_CLEAR = "\r\x1b[K"
_BAR_COLUMNS = 20


class ProgressLine:
    """Shows a bar and words in one line, which is taken away at the end.

    Nothing is shown where standard error is no terminal, so that logs do not fill with bars.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_shown = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._written_s = 0.0
        self._is_dirty = False

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Take the line away."""
        self.clear()

    def show(self, share: float, words: str) -> None:
        """Show that a `share`, from 0 to 1, is done; more often than can be read does nothing."""
        now_s = time.monotonic()
        if not self._is_shown or now_s - self._written_s < _LEAST_S:
            return
        self._written_s = now_s
        # A full last column would make some terminals wrap.
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(_CLEAR + progress_text(share, words, width))
        self._stream.flush()
        self._is_dirty = True

    def clear(self) -> None:
        """Take the line away, so that something else can be written."""
        if self._is_dirty:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._is_dirty = False


def progress_text(share: float, words: str, width: int) -> str:
    """Return a bar and words in at most `width` columns."""
    done = round(min(max(share, 0.0), 1.0) * _BAR_COLUMNS)
    bar = "━" * done + "╌" * (_BAR_COLUMNS - done)
    text = f"{bar} {words}" if width >= 2 * _BAR_COLUMNS + 10 else words
    return text[:width]
