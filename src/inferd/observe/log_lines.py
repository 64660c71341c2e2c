"""LogLines: the last lines of the log, in memory, for those who look at a server from afar."""

import logging
from collections import deque
from itertools import islice

import msgspec

from inferd.errors import InferdError

# About what somebody scrolls through; with lines of 4000 characters, 8 MB at most.
MOST_LINES = 1000

MOST_CHARACTERS = 4000
"""Of a line, with its traceback; what is longer is cut."""


class LogLine(msgspec.Struct, gc=False):
    """A record of the log; `time` is in ms since 1970, `source` is module:line."""

    time: int
    level: str
    text: str
    pid: int
    source: str


class LogLines(logging.Handler):
    """Keeps the last records, each as a LogLine, and counts all that there were.

    Records come from any thread.
    """

    def __init__(self, most: int = MOST_LINES) -> None:
        super().__init__()
        self.count = 0
        self._lines: deque[LogLine] = deque(maxlen=most)

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler; whoever calls it holds the lock of this handler."""
        try:
            text = record.getMessage()
            if record.exc_info:
                text += "\n" + _TRACEBACKS.formatException(record.exc_info)
        except Exception:  # noqa: BLE001  as in logging's own handlers
            self.handleError(record)
            return
        # Cut here and not when asked for: a traceback of a recursion may have megabytes.
        if len(text) > MOST_CHARACTERS:
            text = text[:MOST_CHARACTERS] + "…"
        self._lines.append(
            LogLine(
                int(record.created * 1000),
                record.levelname.lower(),
                text.encode(errors="replace").decode(),  # half a character cannot be sent
                record.process or 0,
                f"{record.module}:{record.lineno}",
            )
        )
        self.count += 1

    def since(self, count: int) -> tuple[list[LogLine], int]:
        """Return the lines after the first `count`, and how many of them are gone already."""
        # The handler's own lock, which logging holds while it calls `emit`.
        self.acquire()
        try:
            there = len(self._lines)
            wanted = max(0, self.count - count)
            lines = list(islice(self._lines, max(0, there - wanted), None))
        finally:
            self.release()
        return lines, wanted - len(lines)


def encode_lines(lines: list[LogLine], dropped: int) -> bytes:
    """Return lines, and how many before them are gone, as bytes."""
    return _encoder.encode((lines, dropped))


def decode_lines(data: bytes) -> tuple[list[LogLine], int]:
    """Return what `encode_lines` was given. Raises InferdError."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InferdError(f"the log lines of a process cannot be read: {error}") from error


# Formatter for its formatException alone.
_TRACEBACKS = logging.Formatter()
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[list[LogLine], int])
