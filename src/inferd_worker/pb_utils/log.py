"""Logger: a model's messages in the server's log."""

from __future__ import annotations

import enum
from typing import Any

from .calls import current_calls


class _LogLevel(enum.IntEnum):
    INFO = 0
    WARNING = 1
    ERROR = 2
    VERBOSE = 3


class Logger:
    """Writes to the server's log, with the model's name before the text."""

    LogLevel = _LogLevel
    INFO = _LogLevel.INFO
    WARNING = _LogLevel.WARNING
    ERROR = _LogLevel.ERROR
    VERBOSE = _LogLevel.VERBOSE

    @staticmethod
    def log(message: Any, level: int = _LogLevel.INFO) -> None:
        """Log at a level of this class."""
        current_calls().log(int(_LogLevel(level)), str(message))

    @staticmethod
    def log_info(message: Any) -> None:
        """Log an informational message."""
        Logger.log(message, _LogLevel.INFO)

    @staticmethod
    def log_warn(message: object) -> None:
        """Log a warning."""
        Logger.log(message, _LogLevel.WARNING)

    # Triton has the one, Python's logging the other.
    log_warning = log_warn

    @staticmethod
    def log_error(message: Any) -> None:
        """Log an error."""
        Logger.log(message, _LogLevel.ERROR)

    @staticmethod
    def log_verbose(message: Any) -> None:
        """Log a message for verbose logs only."""
        Logger.log(message, _LogLevel.VERBOSE)
