"""A plain HTTP/1.1 client over sockets: it sends the bytes a test wrote, and hides nothing."""

import json
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

TIMEOUT_S = 20.0  # a server in Python may take long for a million numbers, on a busy machine
INFERENCE_HEADER = "Inference-Header-Content-Length"
Header = tuple[str, str]


@dataclass
class Response:
    """One answer as it came: `headers` keep their order, names in lower case."""

    status: int
    reason: str
    headers: list[Header]
    body: bytes

    def header(self, name: str) -> str | None:
        """Return the value of a header, None when absent; it must not come twice."""
        values = [value for key, value in self.headers if key == name.lower()]
        assert len(values) < 2, f"header {name} came {len(values)} times"
        return values[0] if values else None

    def json(self) -> Any:
        """Parse the body as JSON (with Triton's NaN and Infinity tokens)."""
        return json.loads(self.body.decode("utf-8"))

    def split(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Return the JSON part, and the blob of each binary output by its name.

        Without the header the whole body is JSON, and binary outputs have no bytes.
        """
        size = self.header(INFERENCE_HEADER) or str(len(self.body))
        assert re.fullmatch("[0-9]+", size), f"{INFERENCE_HEADER} is {size!r}"
        head, rest = json.loads(self.body[: int(size)]), self.body[int(size) :]
        blobs = {}
        for output in head.get("outputs", []):
            byte_count = output.get("parameters", {}).get("binary_data_size")
            if byte_count is not None:
                blobs[output["name"]], rest = rest[:byte_count], rest[byte_count:]
                assert len(blobs[output["name"]]) == byte_count, f"blob of {output} is cut short"
        assert rest == b"", f"{len(rest)} bytes follow the last blob"
        return head, blobs


class Connection:
    """One connection to the server."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=TIMEOUT_S)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def is_closed(self) -> bool:
        """Wait for the server to close; false when it says more instead, or nothing for long."""
        self._socket.settimeout(2.0)
        try:
            return self._file.read(1) == b""
        except TimeoutError:
            return False
        except ConnectionResetError:
            return True

    def read_all(self) -> bytes:
        """Return what the server says until it closes, or says nothing for a second."""
        self._socket.settimeout(1.0)
        said = b""
        try:
            while data := self._socket.recv(65536):
                said += data
        except (TimeoutError, ConnectionResetError):
            pass
        return said

    def read_response(self, *, head: bool = False) -> Response:
        """Read one response; `head` says that it answers HEAD and so has no body."""
        line = self._file.readline()
        match = re.fullmatch(rb"HTTP/1\.[01] (\d{3}) ?(.*)\r\n", line)
        assert match, f"status line is {line!r}"
        headers = []
        while (line := self._file.readline()) != b"\r\n":
            assert line.endswith(b"\r\n"), f"header line is {line!r}"
            name, _, value = line.decode("latin-1").partition(":")
            headers.append((name.lower(), value.strip()))
        response = Response(int(match[1]), match[2].decode("latin-1"), headers, b"")
        if not head and response.status >= 200 and response.status not in (204, 304):
            response.body = self._read_body(response)
        return response

    def _read_body(self, response: Response) -> bytes:
        if response.header("transfer-encoding") == "chunked":
            body = b""
            while size := int(self._file.readline(), 16):
                body += self._file.read(size)
                assert self._file.readline() == b"\r\n"
            assert self._file.readline() == b"\r\n"
            return body
        length = response.header("content-length")
        assert length is not None, "the response has neither Content-Length nor chunks"
        body = self._file.read(int(length))
        assert len(body) == int(length), f"body is {len(body)} bytes, Content-Length {length}"
        return body


class Rest:
    """Requests to one server, each on a connection of its own."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "//" in url else f"//{url}")
        assert parts.hostname and parts.port, f"expected http://host:port, got {url}"
        self.host, self.port = parts.hostname, parts.port

    def connect(self) -> Connection:
        """Open a connection for a test that minds the bytes on it."""
        return Connection(self.host, self.port)

    @contextmanager
    def on_one_connection(self) -> Iterator["Rest"]:
        """Yield the same, with all requests on one connection: one after another reach it."""
        with self.connect() as connection:
            yield _OnOneConnection(self, connection)

    def message(
        self, method: str, path: str, body: bytes = b"", headers: Iterable[Header] = ()
    ) -> bytes:
        """Return the bytes of one request; Host and, unless given, Content-Length are added."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}:{self.port}"]
        lines += [f"{name}: {value}" for name, value in headers]
        named = {name.lower() for name, _ in headers}
        if (body or method == "POST") and not named & {"content-length", "transfer-encoding"}:
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode() + body

    def request(
        self, method: str, path: str, body: bytes = b"", headers: Iterable[Header] = ()
    ) -> Response:
        """Send one request and read its answer."""
        with self.connect() as connection:
            connection.send(self.message(method, path, body, headers))
            return connection.read_response(head=method == "HEAD")

    def get(self, path: str, headers: Iterable[Header] = ()) -> Response:
        """GET `path`."""
        return self.request("GET", path, headers=headers)

    def infer(
        self, model: str, body: dict[str, Any] | bytes, headers: Iterable[Header] | None = None
    ) -> Response:
        """POST an inference; `model` may go on with /versions/..."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = [("Content-Type", "application/json")] if headers is None else headers
        return self.request("POST", f"/v2/models/{model}/infer", data, sent)

    def infer_binary(
        self,
        model: str,
        body: dict[str, Any],
        *blobs: bytes,
        headers: Iterable[Header] = (),
        header_size: str | None = None,
    ) -> Response:
        """POST JSON followed by `blobs`; `header_size` replaces the true length of the JSON."""
        head = json.dumps(body).encode()
        size = str(len(head)) if header_size is None else header_size
        sent = [("Content-Type", "application/octet-stream"), (INFERENCE_HEADER, size), *headers]
        return self.request("POST", f"/v2/models/{model}/infer", head + b"".join(blobs), sent)


class _OnOneConnection(Rest):
    """Requests to one server, all on one connection."""

    def __init__(self, rest: Rest, connection: Connection) -> None:
        self.host, self.port = rest.host, rest.port
        self._connection = connection

    def request(
        self, method: str, path: str, body: bytes = b"", headers: Iterable[Header] = ()
    ) -> Response:
        """Send one request and read its answer."""
        self._connection.send(self.message(method, path, body, headers))
        return self._connection.read_response(head=method == "HEAD")
