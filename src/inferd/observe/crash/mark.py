"""Marks: where each thread of the server's process notes which model it runs.

A run is marked by one byte before it and one after, in memory that outlives the process
(`record`). So the next process can tell what ended this one. The ids that clients gave are written
before the mark.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from inferd.compiled import mypyc_attr

IDLE: Final = 0
RUNNING: Final = 1
"""The mark of a run without ids; with ids, their bytes are added."""

ID_BYTES: Final = 126
"""How many bytes of ids are kept; with them, a mark stays a byte."""


class Identified(Protocol):
    """A request; its `id` is "" if the client gave none."""

    id: str


class RunMark:
    """The mark of one thread: `memory[place]` is IDLE, RUNNING, or what `with_ids` returns.

    The ids of what runs lie in `memory` from `ids_place` on.
    """

    def __init__(self, memory: Any, place: int, ids_place: int) -> None:
        self.memory = memory
        self.place: Any = place  # Any: compiled code would make a new object of an int each time
        self._ids_place = ids_place
        # The memory of the last ids and how long they were: most are as long as those before them.
        self._span: Any = slice(ids_place, ids_place)
        self._span_bytes = 0

    def with_ids(self, requests: Sequence[Identified]) -> int:
        """Write the ids of the requests about to run, and return their mark."""
        if len(requests) == 1:
            text = requests[0].id
        else:
            text = ", ".join([request.id for request in requests if request.id])
        try:
            data = text.encode()
        except UnicodeEncodeError:  # JSON can express half a surrogate pair
            data = text.encode("utf-8", "replace")
        size = len(data)
        if size > ID_BYTES:
            data, size = data[:ID_BYTES], ID_BYTES
        if size != self._span_bytes:
            begin = self._ids_place
            self._span = slice(begin, begin + size)
            self._span_bytes = size
        self.memory[self._span] = data
        return RUNNING + size


@mypyc_attr(allow_interpreted_subclasses=True)
class RunMarks:
    """Gives marks to threads. These are of memory that nobody reads; see CrashRecord."""

    def claim(self, model: str, version: str, thread: int = 0, *, is_load: bool = False) -> RunMark:
        """Return a mark for runs of a version in `thread`, 0 for the event loop's.

        `is_load`: it is being loaded.
        """
        del model, version, thread, is_load
        return RunMark(bytearray(1 + ID_BYTES), 0, 1)

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
