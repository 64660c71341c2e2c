"""Marks: where each thread of the server's process notes which model it runs.

A note is a text in memory that outlives the process (`record`): the ids that clients gave for what
runs, or a text that means that nothing does. So a run costs two assignments, one before and one
after, with an id or without, and the next process can tell what ended this one.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from inferd.compiled import mypyc_attr

ID_CHARS: Final = 126
"""How many characters of ids are kept."""


class Identified(Protocol):
    """A request; its `id` is "" if the client gave none."""

    id: str


class RunMark:
    """The mark of one thread: `note.value` is `idle`, or the ids of what it runs.

    `note` takes texts of at most ID_CHARS. `number` is its owner's.
    """

    def __init__(self, note: Any, idle: str, number: int = 0) -> None:
        self.note = note
        self.idle = idle
        self.number = number


def shown_ids(requests: Sequence[Identified]) -> str:
    """Return the ids of the requests about to run, as a note can hold them."""
    # Most executions have one request: no list, no join.
    if len(requests) == 1:
        return requests[0].id[:ID_CHARS]
    return ", ".join([request.id for request in requests if request.id])[:ID_CHARS]


class _Unread:
    """A note that nobody reads."""

    def __init__(self) -> None:
        self.value = ""


# CrashRecord is interpreted: compiled code looks up methods of native classes in a table, unless
# told.
@mypyc_attr(allow_interpreted_subclasses=True)
class RunMarks:
    """Gives marks to threads. The notes of these nobody reads; see CrashRecord."""

    def claim(self, model: str, version: str, thread: int = 0, *, is_load: bool = False) -> RunMark:
        """Return a mark for runs of a version in `thread`, 0 for the event loop's.

        `is_load`: it is being loaded.
        """
        # The arguments are those of CrashRecord; here nobody reads them.
        del model, version, thread, is_load
        return RunMark(_Unread(), "")

    def release(self, mark: RunMark) -> None:
        """Let another thread have the mark."""


class ModelMarks:
    """The marks for one version of a model."""

    def __init__(self, marks: RunMarks, model: str, version: str) -> None:
        self._marks = marks
        self._model = model
        self._version = version

    def claim(self, thread: int = 0, *, is_load: bool = False) -> RunMark:
        """See RunMarks.claim."""
        return self._marks.claim(self._model, self._version, thread, is_load=is_load)

    def release(self, mark: RunMark) -> None:
        """See RunMarks.release."""
        self._marks.release(mark)
