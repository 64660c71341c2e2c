"""FailureLog: logs the failures whose details clients do not get, without flooding the log."""

import logging
from types import TracebackType

from inferd.errors import Code, InferdError

MAX_KINDS = 1000
"""How many different tracebacks are remembered, and written."""

_MAX_WHERE = 200
_MOST_CAUSES = 20


class FailureLog:
    """Writes one line for each failure that is not the client's fault.

    Only the first failure from each place in the code gets its traceback: a client that has found
    out how to cause one can repeat it at will.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._known: set[tuple[str, int]] = set()

    def note(self, where: str, error: Exception) -> None:
        """Log `error`, which ended a call to `where`, unless it is the client's fault."""
        where = where[:_MAX_WHERE]
        if not isinstance(error, InferdError):
            text = f"{type(error).__name__}: {error}"[:_MAX_WHERE]
            self._logger.error(
                "unexpected failure in %s: %s", where, text, exc_info=self._new(error)
            )
        # Everything else is the client's to know, and in its answer.
        elif error.code is Code.INTERNAL:
            new = self._new(_origin(error))
            self._logger.warning("%s: %s", where, error.message, exc_info=new)

    def _new(self, error: BaseException | None) -> BaseException | None:
        """Return `error` if it is the first from its place in the code, else None."""
        if error is None:
            return None
        # The place and not the text: texts may hold what clients send.
        kind = _place(error.__traceback__)
        if kind in self._known or len(self._known) >= MAX_KINDS:
            return None
        self._known.add(kind)
        return error


def forget_frames(error: BaseException) -> None:
    """Let go of the frames that `error`, and what it came from, have passed.

    Whatever keeps an error, a future or a cycle of frames, would keep what these hold, such as a
    large message, until garbage is collected: after thousands of messages.
    """
    held: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if held is None:
            return
        # Only the traceback: causes tell the log what happened.
        held.__traceback__ = None
        held = held.__cause__ or held.__context__


def _origin(error: BaseException | None) -> BaseException | None:
    """Return the exception that made `error` fail, if it is not ours.

    None when there is none, or one in between says what somebody is to put right: a mistake in a
    configuration, say, of which our code knows nothing more than its text.
    """
    while isinstance(error, InferdError):
        error = error.__cause__ if error.code is Code.INTERNAL else None
    return error


def _place(traceback: TracebackType | None) -> tuple[str, int]:
    if traceback is None:
        return "", 0
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
