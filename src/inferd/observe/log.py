"""The one logger, "inferd": set up once when a server process starts, changed while it runs.

A library user who builds a Server in their own process keeps their own logging: nothing is set up
at import, and records go to the standard library's logger of that name.
"""

import logging
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FORMATS = ("default", "ISO8601", "json")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What is logged and how, in the words of Triton's logging extension.

    `file` None is standard error. `verbose` above 0 adds details (level DEBUG). The three
    booleans each switch one level, whatever the others say.
    """

    format: str = "default"
    file: Path | None = None
    verbose: int = 0
    info: bool = True
    warning: bool = True
    error: bool = True


def set_up_log(settings: LogSettings) -> None:
    """Make the logger "inferd" do what `settings` say; what it did before ends.

    Raises OSError when the file cannot be opened; the logger is then as it was.
    """
    if settings.file is None:
        handler: logging.Handler = logging.StreamHandler(sys.stderr)
    else:
        handler = logging.FileHandler(settings.file, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(_JsonLines() if settings.format == "json" else _Text(settings.format))
    wanted = _wanted_levels(settings)
    handler.addFilter(lambda record: record.levelno in wanted)
    logger = logging.getLogger("inferd")
    close_log()
    logger.addHandler(handler)
    logger.setLevel(min(wanted, default=logging.CRITICAL))
    logger.propagate = False


def close_log() -> None:
    """Close what set_up_log opened; the logger is as Python made it again."""
    logger = logging.getLogger("inferd")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


def _wanted_levels(settings: LogSettings) -> frozenset[int]:
    switches = {
        logging.DEBUG: settings.verbose > 0,
        logging.INFO: settings.info,
        logging.WARNING: settings.warning,
        logging.ERROR: settings.error,
        logging.CRITICAL: settings.error,
    }
    return frozenset(level for level, on in switches.items() if on)


def printable(text: str) -> str:
    """Return `text` in one line, without what a terminal obeys: names and messages may hold it."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


class _Text(logging.Formatter):
    """A time, a level, the text; "ISO8601" gives the time in UTC with a T and a Z."""

    def __init__(self, style: str) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")
        self._is_utc = style == "ISO8601"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        # Indented, so that no text in it can pass for a line of the log.
        lines = super().formatException(ei).splitlines()
        return "\n".join(f"  {printable(line)}" for line in lines)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        if self._is_utc:
            return _utc(record)
        moment = datetime.fromtimestamp(record.created).astimezone()
        return moment.replace(tzinfo=None).isoformat(" ", "milliseconds")


class _JsonLines(logging.Formatter):
    """One object per line: time, level, message, source, pid, and error with the traceback.

    What a caller hands over as `extra={"fields": {...}}` stands beside them.
    """

    def format(self, record: logging.LogRecord) -> str:
        import json  # only this format needs it

        line = {
            "time": _utc(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "source": f"{record.module}:{record.lineno}",
            "pid": os.getpid(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def _utc(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.replace(tzinfo=None).isoformat("T", "milliseconds") + "Z"
