"""FrameWriter: writes what one HTTP/2 connection sends, and closes it when all has been sent."""

from typing import Final

from inferd.http.grpc.endpoint import GrpcEndpoint
from inferd.http.h2.sender import H2Sender
from inferd.http.turns import NO_TRANSPORT, PendingOutput
from inferd.http.unread import end_sending

JOIN_BYTES: Final = 16384
"""Buffers written together are joined up to this total size."""


class FrameWriter(PendingOutput):
    """Writes the frames of `sender` at the end of each round of turns, in one call.

    After `lingers_since` nothing more is written: the client has violated the protocol, or has all
    its answers; it has been told, and may go on sending for a while. Once it `is_closed`, nothing
    is read either.
    """

    def __init__(self, endpoint: GrpcEndpoint, sender: H2Sender) -> None:
        self.transport = NO_TRANSPORT
        self.is_closed = False
        self.lingers_since: float | None = None
        self._endpoint = endpoint
        self._sender = sender
        self._is_due = False

    def flush(self) -> None:
        """Have pending output written soon, together with that of other connections.

        Without output nothing is scheduled: while a large message is received, that would cost one
        event loop round per read.
        """
        sender = self._sender
        if not self._is_due and (sender.out or sender.is_failed or sender.is_going_away):
            self._is_due = True
            self._endpoint.turns.write_soon(self)

    def write_pending(self) -> None:
        """Write the pending output; close the connection when nothing is left to do."""
        self._is_due = False
        sender = self._sender
        while sender.out and not self.is_closed and self.lingers_since is None:
            out, size = sender.out, sender.out_bytes
            sender.out, sender.out_bytes = [], 0
            # The socket is gone; what was to be sent is dropped with it.
            if self.transport.is_closing():
                return
            if len(out) == 1:
                self.transport.write(out[0])
            elif size <= JOIN_BYTES:
                self.transport.write(b"".join(out))
            else:
                self.transport.writelines(out)
            # There is room again, since what was put out is in the transport now.
            if sender.blocked:
                sender.pump()
        if sender.is_failed or (sender.is_going_away and not sender.handlers):
            self._linger()

    def _linger(self) -> None:
        """Close our sending half; for a while, what the client still sends is dropped.

        Closing at once would reset the connection under whatever is on its way to us, and the
        client might never see the last answer, or the GOAWAY. A proxy gives up the requests whose
        answers it has not passed on.
        """
        if self.lingers_since is not None or self.is_closed:
            return
        self.lingers_since = self._endpoint.now
        self._endpoint.open_count -= 1
        if not end_sending(self.transport):
            self.close()

    def finish(self) -> None:
        """Write the pending output, and close the connection unless it lingers then."""
        self.write_pending()
        if self.lingers_since is None:
            self.close()

    def close(self) -> None:
        """Close the connection once all has been sent."""
        self.is_closed = True
        self.transport.close()

    def abort(self) -> None:
        """See PendingOutput."""
        self.is_closed = True
        self.transport.abort()
