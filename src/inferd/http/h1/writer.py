"""AnswerWriter: what one HTTP/1.1 connection sends; it knows how fast the client reads."""

from inferd.http.turns import NO_TRANSPORT, PendingOutput, Turns
from inferd.http.unread import end_sending
from inferd.memory.buffer import Buffer


class AnswerWriter(PendingOutput):
    """Writes to one client; what is small, at the end of a round of turns.

    It `is_stalled` while the transport holds as much as it may, and takes nothing more once it
    `is_closed`. `unsent` is how many bytes the transport held at the last `has_moved`.
    """

    def __init__(self, turns: Turns) -> None:
        self.transport = NO_TRANSPORT
        self.turns = turns
        self.pending: list[Buffer] = []
        self.is_stalled = False
        self.is_closed = False
        self.unsent = 0

    def write(self, data: Buffer) -> None:
        """Have `data` written once all the connections read together have been answered."""
        self.pending.append(data)
        if len(self.pending) == 1:
            self.turns.write_soon(self)

    def write_piece(self, data: Buffer) -> None:
        """Write part of a body, unless the client has left without its producer knowing yet."""
        if not self.is_closed:
            self.write(data)

    def write_chunk(self, data: Buffer) -> None:
        """Write part of a body that is sent in chunks, as `write_piece` does."""
        # RFC 9112, section 7.1.
        self.write_piece(b"".join((b"%x\r\n" % len(data), data, b"\r\n")))

    def write_pending(self) -> None:
        """See PendingOutput."""
        if self.pending:
            pending, self.pending = self.pending, []
            self.transport.write(pending[0] if len(pending) == 1 else b"".join(pending))

    def write_now(self, buffers: list[Buffer]) -> None:
        """Write what is pending, and `buffers` without copying them."""
        self.write_pending()
        # Large bodies are not copied into one buffer with their head.
        self.transport.writelines(buffers)

    def end(self, *, has_more: bool) -> None:
        """End our half of the connection; over TLS all of it, unless the client `has_more` to send.

        What comes after that would be an error, which resets the connection.
        """
        if not end_sending(self.transport) and not has_more:
            self.transport.close()

    def close(self) -> None:
        """Close the connection once all has been sent."""
        self.is_closed = True
        self.write_pending()
        self.transport.close()

    def abort(self) -> None:
        """See PendingOutput."""
        self.drop()
        self.transport.abort()

    def drop(self) -> None:
        """Forget what is pending; there is nobody any more to send it to."""
        self.is_closed = True
        self.pending = []

    def has_moved(self) -> bool:
        """Return whether something has been sent since the last call, or has begun to wait."""
        before, self.unsent = self.unsent, self.transport.get_write_buffer_size()
        return self.unsent < before or bool(self.unsent and not before)
