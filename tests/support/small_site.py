"""A small site: answers every request of HTTP/1.1 with 200, from threads."""

import socket
import threading
from contextlib import suppress

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class SmallSite:
    """Listens on `port` while it is entered."""

    def __init__(self, answer=OK):
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._connections = []
        self.port = self._listening.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error):
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in self._connections:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                one, _ = self._listening.accept()
                self._connections.append(one)
                threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one):
        with suppress(OSError):
            while data := one.recv(65536):
                one.sendall(self._answer * data.count(b"\r\n\r\n"))
