"""ScriptedServer: a port whose connections send given bytes, whatever is asked."""

import re
import socket
import threading
from contextlib import suppress


class ScriptedServer:
    """Answers the n-th call, over all connections, with the n-th of `answers`.

    An answer is bytes, sent after a whole HTTP/1.1 request has arrived; None closes the connection
    without an answer, HANG sends nothing. The last answer is repeated. `calls` are the requests
    received, head and body. With `greets`, an answer is sent as soon as anything arrives. With
    `closes`, connections end after each answer.
    """

    HANG = object()

    def __init__(self, *answers, greets=False, closes=False):
        self.answers = list(answers)
        self.calls = []
        self.connections = 0
        self._greets = greets
        self._closes = closes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self.port = self._listener.getsockname()[1]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, *error):
        # A thread in accept() is not woken by close().
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self):
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._open.append(connection)
                thread = threading.Thread(target=self._serve, args=[connection])
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection):
        with connection, suppress(OSError):
            while True:
                call = connection.recv(65536) if self._greets else self._request(connection)
                if not call:
                    return
                self.calls.append(call)
                answer = self.answers[min(len(self.calls), len(self.answers)) - 1]
                if answer is not None and answer is not self.HANG:
                    connection.sendall(answer)
                if answer is None or self._closes:
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65536):  # with unread data, close() sends a reset
                        pass
                    return

    @staticmethod
    def _request(connection):
        data = b""
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                return b""
            data += more
        found = re.search(rb"(?i)\r\nContent-Length: (\d+)", data)
        missing = len(data.partition(b"\r\n\r\n")[0]) + 4 + int(found[1] if found else 0)
        while len(data) < missing:
            data += connection.recv(65536)
        return data


def answer(status, body=b"", *headers):
    """Return an HTTP/1.1 answer as bytes."""
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body
