"""LoggedGrpcCall: a call that tells the log of requests what became of it."""

from collections.abc import Coroutine
from time import time_ns
from typing import Any, Final

from inferd.http.grpc.call import GrpcCall
from inferd.http.grpc.endpoint import Carrier
from inferd.http.grpc.messages import CANCELLED, OK
from inferd.http.h2.connection import H2Connection
from inferd.http.h2.request import RequestHead
from inferd.http.request_log import ClientLog, Notes

_time_ns: Final = time_ns  # compiled, it is found sooner than a name that was imported


class LoggedGrpcCall(GrpcCall):
    """A call of a connection whose requests are logged, by `client`.

    A stream has a line for each of its requests; it has one itself only if there was none, or if
    it failed.
    """

    def __init__(
        self,
        connection: H2Connection,
        stream_id: int,
        head: RequestHead,
        carrier: Carrier,
        client: ClientLog,
    ) -> None:
        GrpcCall.__init__(self, connection, stream_id, head, carrier)
        self._client = client
        self.notes = self._notes = Notes()
        self._began_ns = _time_ns()
        self._taken = 0
        self._sent = 0
        self._line_count = 0
        self._is_noted = False

    def note_request(self, notes: Notes, status: int, taken: int, sent: int, began_ns: int) -> None:
        """See Call.note_request."""
        self._line_count += 1
        self._client.called(self.head, notes, status, taken, sent, began_ns)

    def on_reset(self) -> None:
        """See H2Stream."""
        self._note(CANCELLED)
        super().on_reset()

    def _answer_to(self, message: Any) -> None:
        self._taken = len(message)
        super()._answer_to(message)

    def _run_inflated(self, message: Any) -> Coroutine[Any, Any, Any]:
        self._taken = len(message)
        return super()._run_inflated(message)

    def _answer(self, buffers: list[Any]) -> None:
        for buffer in buffers:
            self._sent += len(buffer)
        super()._answer(buffers)
        self._note(OK)

    def _end(self, status: int, message: str) -> None:
        self._note(status)
        super()._end(status, message)

    def _note(self, status: int) -> None:
        if self._is_noted:
            return
        self._is_noted = True
        if status != OK or not self._line_count:
            self._client.called(
                self.head, self._notes, status, self._taken, self._sent, self._began_ns
            )
        self._notes.about = None
