"""A relay between a client and a server of HTTP/2 that counts the pings it passes on."""

import socket
import threading
from contextlib import suppress

PREFACE_BYTES = 24
HEAD_BYTES = 9
PING = 6
ACK = 1


class Relay:
    """Passes on what is said on any number of connections; it changes nothing.

    For the length of a with block. `wait_for_answers` tells when the server has answered pings.
    """

    def __init__(self, port):
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets = []
        self._changed = threading.Condition()
        self._answered_count = 0

    @property
    def address(self):
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def wait_for_answers(self, count, timeout_s):
        """Wait until so many more pings of clients have been answered; return whether they were."""
        with self._changed:
            enough = self._answered_count + count
            return self._changed.wait_for(lambda: self._answered_count >= enough, timeout_s)

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listener.close()
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self):
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                self._sockets += [client, server]
                for source, target in ((client, server), (server, client)):
                    threading.Thread(
                        target=self._pass_on, args=(source, target, source is client), daemon=True
                    ).start()

    def _pass_on(self, source, target, is_client):
        unread = bytearray()
        skipped = PREFACE_BYTES if is_client else 0
        with suppress(OSError):
            while received := source.recv(65_536):
                target.sendall(received)
                unread += received
                while len(unread) >= skipped + HEAD_BYTES:
                    size = skipped + HEAD_BYTES + int.from_bytes(unread[skipped : skipped + 3])
                    if len(unread) < size:
                        break
                    kind, flags = unread[skipped + 3], unread[skipped + 4]
                    del unread[:size]
                    skipped = 0
                    if kind == PING and flags & ACK and not is_client:
                        self._count_answer()
            target.shutdown(socket.SHUT_WR)

    def _count_answer(self):
        with self._changed:
            self._answered_count += 1
            self._changed.notify_all()
