"""A small, slow, independent V2 server that is right, until it is told to break one point.

    python -m conformance.wrong_server [--fault POINT]

It prints one JSON line with its addresses: `url` and `grpc` serve the repository v2, `unready` the
repository broken, `restricted` v2 with its metadata restricted, `unshared` v2 without shared
memory, `explicit` v2 with models that clients load and unload. POST /fault/POINT on `control`
switches the fault (POST /fault/none: right).
"""

import argparse
import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import grpc
from conformance.faults import Fault
from conformance.launch import announce
from conformance.old_faults import ALL_FAULTS as FAULTS
from conformance.points import SECRET
from conformance.reference import models, rest
from conformance.reference.models import Refused
from conformance.reference.rest import Answer, Request, to_json
from conformance.reference.rpc import Service, open_server
from conformance.reference.trtis import Old
from google.protobuf.message import DecodeError

Handler = Callable[[Request], Answer]


class BadRequest(Exception):
    """A message that is no HTTP request."""


class Faulty:
    """The right answers, and the one fault that spoils them."""

    def __init__(self) -> None:
        self.fault = Fault()
        self._server = models.fixture()
        self._unready = models.broken()
        self._unshared = models.fixture()
        self._unshared.shares_memory = False
        self._explicit = models.fixture()
        self._explicit.explicit = True
        self._service = Service(self._server)
        self._old = {
            id(server): Old(server)
            for server in (self._server, self._unready, self._unshared, self._explicit)
        }

    def rest(self, request: Request) -> Answer:
        """Answer for the repository v2."""
        return self._spoil(self._server, request)

    def unready(self, request: Request) -> Answer:
        """Answer for the repository broken."""
        return self._spoil(self._unready, request)

    def unshared(self, request: Request) -> Answer:
        """Answer for the repository v2, without shared memory."""
        return self._spoil(self._unshared, request)

    def explicit(self, request: Request) -> Answer:
        """Answer for the repository v2, under the control of clients."""
        return self._spoil(self._explicit, request)

    def restricted(self, request: Request) -> Answer:
        """Answer for the repository v2; metadata only to those who know the secret."""
        name, value = SECRET
        if request.path in ("/v2", "/v2/models/m") and request.headers.get(name) != value:
            refusal = Answer(403, to_json({"error": f"expected the header {name}"}))
            self.fault.answer(request, refusal)
            return refusal
        return self._spoil(self._server, request)

    def _spoil(self, server: models.Server, request: Request) -> Answer:
        self.fault.request(request)
        if request.path.startswith("/api/"):
            answer = self._old[id(server)].http(request)
        else:
            answer = rest.answer(server, request)
        self.fault.answer(request, answer)
        return answer

    def control(self, request: Request) -> Answer:
        """Switch the fault."""
        name = request.path.rpartition("/")[2]
        if name != "none" and name not in FAULTS:
            return Answer(404, to_json({"error": f"no fault breaks point {name}"}))
        self.fault = FAULTS.get(name, Fault())
        return Answer(200, b"{}")

    def knows(self, method: str) -> bool:
        """Say whether an rpc exists."""
        return hasattr(self._service, method) or self.fault.habit == "knows every method"

    def answer(self, method: str, data: bytes) -> bytes:
        """Answer one rpc. Raises Refused and DecodeError."""
        if not hasattr(self._service, method):
            return b""
        spoil = self.fault.rpc
        if spoil is None:
            return self._service.answer(method, data).SerializeToString()
        answer: Any
        try:
            answer = self._service.answer(method, data)
        except Refused as refused:
            answer = refused
        except DecodeError:
            answer = Refused("the message cannot be read")
        message: bytes = spoil(answer).SerializeToString()
        return message

    def stream(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Answer ModelStreamInfer."""
        answers = list(self._service.stream(requests))
        if ("triton_grpc_error", "true") in context.invocation_metadata():
            failed = [answer for answer in answers if answer.error_message]
            if failed and self.fault.habit != "ignores triton_grpc_error":
                context.abort(grpc.StatusCode.NOT_FOUND, failed[0].error_message)
        if self.fault.stream is not None:
            answers = self.fault.stream(answers)
        yield from (answer.SerializeToString() for answer in answers)

    def old_answer(self, method: str, data: bytes) -> bytes:
        """Answer one call of the old API."""
        answer = self._old[id(self._server)].rpc(method, data)
        if self.fault.old is not None:
            self.fault.old(answer)
        encoded: bytes = answer.SerializeToString()
        return encoded

    def old_stream(self, requests: Iterator[bytes]) -> Iterator[bytes]:
        """Answer StreamInfer."""
        answers = list(self._old[id(self._server)].stream(requests))
        if self.fault.stream is not None:
            answers = self.fault.stream(answers)
        yield from (answer.SerializeToString() for answer in answers)

    def health(self) -> bytes:
        """Answer grpc.health.v1 Check: SERVING or NOT_SERVING."""
        return b"\x08\x02" if self.fault.habit == "says it is not serving" else b"\x08\x01"

    def reflect(self) -> bytes:
        """Answer ListServices of grpc.reflection, with the one service."""
        name = b"" if self.fault.habit == "reflects nothing" else b"inference.GRPCInferenceService"
        service = b"\x0a" + bytes([len(name)]) + name
        listed = b"\x0a" + bytes([len(service)]) + service
        return b"\x32" + bytes([len(listed)]) + listed


class Http:
    """One HTTP/1.1 server; its habits are those of the present fault."""

    def __init__(self, faulty: Faulty, handler: Handler) -> None:
        self._faulty = faulty
        self._handler = handler

    def _has(self, habit: str) -> bool:
        return self._faulty.fault.habit == habit

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while await self._answer_one(reader, writer):
                await writer.drain()
        except (BadRequest, ValueError, asyncio.LimitOverrunError):
            line = b"200 OK" if self._has("answers garbage") else b"400 Bad Request"
            body = b'{"error":"this is no HTTP request"}'
            head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
            status = b"NV-Status: code: INVALID_ARG\r\n\r\n"  # of the old API
            writer.write(head % (line, len(body)) + status + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if self._has("reads once"):
            first = await reader.read(65536)
            if b"\r\n\r\n" not in first or (b"POST" in first and not first.endswith(b"}")):
                raise BadRequest
            reader.feed_data(first)
        request = read_head(await reader.readuntil(b"\r\n\r\n"))
        either = self._has("takes either length")
        if {"transfer-encoding", "content-length"} <= request.headers.keys() and not either:
            raise BadRequest
        if request.headers.get("expect") == "100-continue" and not self._has("never says continue"):
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await self._read_body(reader, request)
        close = request.headers.get("connection", "").lower() == "close" and not self._has(
            "never closes"
        )
        answer = await asyncio.to_thread(self._handler, request)  # model late waits
        write(writer, request, answer)
        if self._has("drops the pipeline"):
            await reader.read(65536)
        failed = answer.status >= 400 and self._has("closes after an error")
        return not (close or failed or self._has("closes after each answer"))

    async def _read_body(self, reader: asyncio.StreamReader, request: Request) -> None:
        if "transfer-encoding" in request.headers:
            while size := int(await reader.readline(), 16):
                part = await reader.readexactly(size + 2)
                if not self._has("ignores chunks"):
                    request.body += part[:-2]
            await reader.readline()
        elif "content-length" in request.headers:
            length = int(request.headers["content-length"])
            if length < 0:
                raise BadRequest
            request.body = await reader.readexactly(length)


def read_head(head: bytes) -> Request:
    """Parse request line and headers. Raises BadRequest."""
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or parts[2] not in ("HTTP/1.0", "HTTP/1.1"):
        raise BadRequest
    headers = {"connection": "close"} if parts[2] == "HTTP/1.0" else {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or name.lower() in headers:
            raise BadRequest
        headers[name.lower()] = value.strip()
    path = re.sub("^http://[^/]*", "", parts[1])
    return Request(parts[0], path, headers, b"")


def write(writer: asyncio.StreamWriter, request: Request, answer: Answer) -> None:
    """Send one answer."""
    headers = {**answer.headers, "Content-Length": str(len(answer.body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    body = b"" if request.method == "HEAD" else answer.body
    writer.write(f"HTTP/1.1 {answer.status} X\r\n{lines}\r\n".encode() + body)


async def listen(handle: Callable[..., Awaitable[None]]) -> tuple[asyncio.Server, str]:
    """Open a port of 127.0.0.1 and return its URL, too."""
    server = await asyncio.start_server(handle, "127.0.0.1", 0, limit=2**26)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def serve(fault: str) -> None:
    """Listen on all ports, say where, and answer until cancelled."""
    faulty = Faulty()
    faulty.fault = FAULTS[fault] if fault else Fault()
    _, url = await listen(Http(faulty, faulty.rest).converse)
    _, unready = await listen(Http(faulty, faulty.unready).converse)
    _, restricted = await listen(Http(faulty, faulty.restricted).converse)
    _, unshared = await listen(Http(faulty, faulty.unshared).converse)
    _, explicit = await listen(Http(faulty, faulty.explicit).converse)
    _, control = await listen(Http(Faulty(), faulty.control).converse)
    grpc_server, port = open_server(faulty)
    announce(
        url=url,
        grpc=f"127.0.0.1:{port}",
        metrics=f"{url}/metrics",
        unready=unready,
        restricted=restricted,
        unshared=unshared,
        explicit=explicit,
        control=control,
    )
    try:
        await asyncio.Event().wait()
    finally:
        grpc_server.stop(None)


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--fault", default="", choices=["", *FAULTS], metavar="POINT")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(parser.parse_args().fault))


if __name__ == "__main__":
    main()
