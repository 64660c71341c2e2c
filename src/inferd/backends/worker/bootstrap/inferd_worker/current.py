"""The session of this process, for module-level functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import packet
from .pb_utils.calls import Calls
from .pb_utils.error import TritonModelException

if TYPE_CHECKING:
    from .line import Line

MAX_LOGGED = 64 << 10


class Session:
    """What a model reaches from anywhere: its calls of the server, and the server's log."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.calls = Calls(line)
        self.version_folder = ""
        self.output_names: list[str] = []

    def log(self, level: int, text: str) -> None:
        """Have the server log `text`: 0 info, 1 warning, 2 error, 3 verbose."""
        self.line.send(packet.LOG, [level, text[:MAX_LOGGED]])


_sessions: list[Session] = []


def session() -> Session:
    """Return the session. Raises TritonModelException outside of a process that runs a model."""
    if not _sessions:
        raise TritonModelException("this works only where a server runs the model")
    return _sessions[0]


def set_session(one: Session) -> None:
    """Make `one` the session of this process."""
    _sessions[:] = [one]
