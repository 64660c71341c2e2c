"""CallLog: what the log of requests is told of one call."""

from time import time_ns
from typing import Final

from inferd.http.grpc.messages import OK
from inferd.http.h2.request import RequestHead
from inferd.http.request_log import ClientLog, Notes

_time_ns: Final = time_ns  # compiled, it is found sooner than a name that was imported


class CallLog:
    """Tells `client` once what became of a call whose message had `taken` bytes, its answer `sent`.

    A stream has a line for each of its requests; it has one itself only if there was none, or if
    it failed.
    """

    def __init__(self, client: ClientLog, head: RequestHead) -> None:
        self.notes = Notes()
        self.taken = 0
        self.sent = 0
        self._client = client
        self._head = head
        self._began_ns = _time_ns()
        self._line_count = 0
        self._is_noted = False

    def note_request(self, notes: Notes, status: int, taken: int, sent: int, began_ns: int) -> None:
        """See Call.note_request."""
        self._line_count += 1
        self._client.called(self._head, notes, status, taken, sent, began_ns)

    def note(self, status: int) -> None:
        """Note how the call ended; what is noted later has no effect."""
        if self._is_noted:
            return
        self._is_noted = True
        if status != OK or not self._line_count:
            self._client.called(
                self._head, self.notes, status, self.taken, self.sent, self._began_ns
            )
        self.notes.about = None
