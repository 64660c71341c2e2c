"""A raw HTTP/2 peer: packs and reads frames, and keeps no rule that a test does not ask for."""

import socket
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

import hpack
import pytest
from tritonclient.grpc import service_pb2 as pb

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
WINDOW = 65_535
LARGEST = 2**31 - 1
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
REFLECT = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
INFER = "/inference.GRPCInferenceService/ModelInfer"
METADATA = "/inference.GRPCInferenceService/ModelMetadata"
NOTHING = bytes(5)
"""An empty gRPC message with its five bytes of frame."""
LIST_SERVICES = b"\0" + struct.pack(">I", 3) + b"\x3a\x01*"
"""The reflection request list_services, framed."""

Fields = list[tuple[str, str]]


class Type(IntEnum):
    """Frame types, RFC 9113 §6."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Setting(IntEnum):
    """Settings, RFC 9113 §6.5.2."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Error(IntEnum):
    """Error codes, RFC 9113 §7."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY = 0x20


def point(
    section: str, level: Literal["MUST", "SHOULD"], text: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a test as the proof of one rule: where it is written, how strong, in our own words."""
    return pytest.mark.http2_point(section, level, text)


# --- frames -------------------------------------------------------------------------------------


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return one frame; nothing is checked."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def headers(
    stream: int, block: bytes, *, end: bool = False, whole: bool = True, flags: int = 0
) -> bytes:
    """Return a HEADERS frame; `whole`: with END_HEADERS."""
    flags |= (END_STREAM if end else 0) | (END_HEADERS if whole else 0)
    return frame(Type.HEADERS, flags, stream, block)


def continuation(stream: int, block: bytes, *, whole: bool = True) -> bytes:
    """Return a CONTINUATION frame."""
    return frame(Type.CONTINUATION, END_HEADERS if whole else 0, stream, block)


def data(stream: int, payload: bytes = b"", *, end: bool = False) -> bytes:
    """Return a DATA frame."""
    return frame(Type.DATA, END_STREAM if end else 0, stream, payload)


def settings(*values: tuple[int, int]) -> bytes:
    """Return a SETTINGS frame."""
    return frame(Type.SETTINGS, 0, 0, b"".join(struct.pack(">HI", *value) for value in values))


def window_update(stream: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE frame."""
    return frame(Type.WINDOW_UPDATE, 0, stream, struct.pack(">I", increment))


def rst_stream(stream: int, code: int = Error.CANCEL) -> bytes:
    """Return an RST_STREAM frame."""
    return frame(Type.RST_STREAM, 0, stream, struct.pack(">I", code))


def ping(payload: bytes = b"12345678", flags: int = 0) -> bytes:
    """Return a PING frame."""
    return frame(Type.PING, flags, 0, payload)


# --- field blocks -------------------------------------------------------------------------------


def integer(value: int, prefix_bits: int, first: int = 0) -> bytes:
    """Return an HPACK integer (RFC 7541 §5.1) under the upper bits of `first`."""
    most = (1 << prefix_bits) - 1
    if value < most:
        return bytes([first | value])
    out, value = bytearray([first | most]), value - most
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(text: str | bytes) -> bytes:
    """Return an HPACK string (RFC 7541 §5.2) without Huffman code."""
    raw = text.encode() if isinstance(text, str) else text
    return integer(len(raw), 7) + raw


def literal(name: str | bytes, value: str | bytes, *, first: int = 0) -> bytes:
    """Return a literal with a new name: 0 without indexing, 0x40 with, 0x10 never indexed."""
    return bytes([first]) + string(name) + string(value)


def block(fields: Iterable[tuple[str | bytes, str | bytes]]) -> bytes:
    """Return a field block of plain literals: it needs no table and changes none."""
    return b"".join(literal(name, value) for name, value in fields)


def request(path: str = CHECK, *more: tuple[str, str], **changed: str | None) -> Fields:
    """Return the fields of a gRPC call; `changed` names (method, te, content_type ...) replace
    values, None leaves a field out.
    """
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    kept: Fields = []
    for name, value in fields.items():
        chosen = changed.get(name.lstrip(":").replace("-", "_"), value)
        if chosen is not None:
            kept.append((name, chosen))
    return [*kept, *more]


def call(stream: int, path: str = CHECK, message: bytes = NOTHING, *more: tuple[str, str]) -> bytes:
    """Return the frames of a whole call of one small, framed message."""
    return headers(stream, block(request(path, *more))) + data(stream, message, end=True)


def framed(message: bytes, compressed: int = 0) -> bytes:
    """Return a message with the five bytes gRPC puts before it."""
    return struct.pack(">BI", compressed, len(message)) + message


def infer(elements: int, model: str = "echo", *, name: str = "") -> bytes:
    """Return a framed ModelInferRequest of that many FP32, which come back; `name` is its id."""
    contents = [b"\1\2\3\4" * elements]
    message = pb.ModelInferRequest(model_name=model, raw_input_contents=contents, id=name)
    message.inputs.add(name="INPUT0", datatype="FP32", shape=[elements])
    return framed(message.SerializeToString())


def pieces(payload: bytes, size: int) -> list[bytes]:
    """Return `payload` in pieces of `size` bytes."""
    return [payload[at : at + size] for at in range(0, len(payload), size)]


# --- the peer -----------------------------------------------------------------------------------


@dataclass
class Frame:
    """One frame as it came; `fields` are those of the field block that it ends, decoded."""

    kind: int
    flags: int
    stream: int
    payload: bytes
    fields: list[tuple[str, str]] | None = None

    @property
    def ends_stream(self) -> bool:
        """Whether it has END_STREAM."""
        return self.kind in (Type.DATA, Type.HEADERS) and bool(self.flags & END_STREAM)

    @property
    def code(self) -> int:
        """The error code of RST_STREAM or GOAWAY."""
        at = 4 if self.kind == Type.GOAWAY else 0
        return int.from_bytes(self.payload[at : at + 4])

    def __str__(self) -> str:
        name = Type(self.kind).name if self.kind <= Type.CONTINUATION else f"type {self.kind}"
        what = self.fields if self.fields is not None else self.payload[:24]
        return f"{name} flags={self.flags:#x} stream={self.stream} {len(self.payload)} B {what}"


@dataclass
class Answer:
    """What a stream brought: one field section alone is both `headers` and `trailers`."""

    sections: list[dict[str, str]] = field(default_factory=list)
    body: bytes = b""
    reset: int | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The first field section."""
        return self.sections[0]

    @property
    def trailers(self) -> dict[str, str]:
        """The last field section."""
        return self.sections[-1]

    @property
    def is_trailers_only(self) -> bool:
        """Whether status and headers came in one field section, without a body."""
        return len(self.sections) == 1 and not self.body

    @property
    def status(self) -> int:
        """The gRPC status."""
        assert self.sections, f"the stream was reset with {self.reset}, without an answer"
        assert "grpc-status" in self.trailers, self
        return int(self.trailers["grpc-status"])


class Peer:
    """One connection. It reads everything in order and remembers it in `seen`.

    It acknowledges SETTINGS and PING, as every peer must, unless `polite` is false.
    """

    def __init__(
        self,
        port: int,
        *values: tuple[int, int],
        start: bool = True,
        polite: bool = True,
        timeout_s: float = 60.0,
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.timeout_s = timeout_s
        self.polite = polite
        self.decoder = hpack.Decoder()
        self.decoder.max_header_list_size = 2**20
        self.settings: dict[int, int] = {}
        self.seen: list[Frame] = []
        self.at_end = False
        self._buffer = bytearray()
        self._block = b""
        if start:
            try:
                self.start(*values)
            except BaseException:
                self.close()
                raise

    def start(self, *values: tuple[int, int]) -> None:
        """Send the preface, and wait for the SETTINGS of the server and their acknowledgement."""
        self.send(PREFACE, settings(*values))
        self.wait_for(lambda f: f.kind == Type.SETTINGS and not f.flags & ACK)
        self.wait_for(lambda f: f.kind == Type.SETTINGS and f.flags & ACK)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def send(self, *parts: bytes) -> None:
        """Send bytes; a connection that the server has closed shows when reading."""
        self.socket.settimeout(self.timeout_s)  # not the one of a short read
        try:
            self.socket.sendall(b"".join(parts))
        except (BrokenPipeError, ConnectionResetError):
            return

    def read(self, timeout_s: float | None = None) -> Frame | None:
        """Return the next frame, None at the end. Raises TimeoutError."""
        self.socket.settimeout(self.timeout_s if timeout_s is None else timeout_s)
        while not self.at_end:
            size = 9 + int.from_bytes(self._buffer[:3])
            if len(self._buffer) >= 9 and len(self._buffer) >= size:
                kind, flags, stream = struct.unpack_from(">BBI", self._buffer, 3)
                found = Frame(kind, flags, stream, bytes(self._buffer[9:size]))
                del self._buffer[:size]
                self._take(found)
                return found
            try:
                received = self.socket.recv(262_144)
            except ConnectionResetError:
                received = b""
            self._buffer += received
            self.at_end = not received
        return None

    def wait_for(self, is_it: Callable[[Frame], object], what: str = "the frame") -> Frame:
        """Return the first frame, already seen or still to come, for which `is_it` holds."""
        for known in self.seen:
            if is_it(known):
                return known
        deadline = time.monotonic() + self.timeout_s
        while time.monotonic() < deadline:
            try:
                found = self.read()
            except TimeoutError:
                break
            if found is None:
                pytest.fail(f"the connection ended instead of {what}; {self._said()}")
            if is_it(found):
                return found
        return pytest.fail(f"{what} did not come in {self.timeout_s} s; {self._said()}")

    def wait_end(self) -> None:
        """Wait until the server closes."""
        deadline = time.monotonic() + self.timeout_s
        while time.monotonic() < deadline:
            try:
                if self.read() is None:
                    return
            except TimeoutError:
                break
        pytest.fail(f"the server did not close the connection; {self._said()}")

    def answer(self, stream: int, *, credit: bool = False) -> Answer:
        """Read until the stream ends and return what it brought; `credit`: widen its windows."""
        credited = 0

        def is_end(found: Frame) -> bool:
            nonlocal credited
            if credit and found.kind == Type.DATA and found.stream == stream:
                credited += len(found.payload)
                if credited > WINDOW // 4 and not found.ends_stream:
                    self.send(window_update(stream, credited), window_update(0, credited))
                    credited = 0
            ends = found.ends_stream or found.kind == Type.RST_STREAM
            return found.stream == stream and ends

        self.wait_for(is_end, f"the end of stream {stream}")
        answer = Answer()
        mine = [f for f in self.seen if f.stream == stream]
        answer.body = b"".join(f.payload for f in mine if f.kind == Type.DATA)
        for found in mine:
            if found.fields is not None:
                answer.sections.append(dict(found.fields))
            elif found.kind == Type.RST_STREAM:
                answer.reset = found.code
        return answer

    def expect_ok(self, stream: int) -> Answer:
        """Expect an answer of status OK."""
        answer = self.answer(stream)
        assert answer.status == 0, answer
        return answer

    def expect_alive(self) -> None:
        """Expect that the connection works: a PING is answered."""
        payload = struct.pack(">Q", 0xA11FE << 32 | len(self.seen))
        self.send(ping(payload))
        self.wait_for(
            lambda f: f.kind == Type.PING and f.flags & ACK and f.payload == payload,
            "the answer to a PING",
        )
        assert not self.find(Type.GOAWAY), self._said()

    def expect_reset(self, stream: int, *codes: Error) -> None:
        """Expect that the stream ends with one of `codes`, and the connection goes on."""
        found = self.wait_for(
            lambda f: (
                f.kind in (Type.RST_STREAM, Type.GOAWAY)
                and (f.stream == stream or f.kind == Type.GOAWAY)
            ),
            f"RST_STREAM on stream {stream}",
        )
        assert found.kind == Type.RST_STREAM, self._said()
        assert found.code in codes, self._said()
        self.expect_alive()

    def expect_malformed(self, stream: int) -> None:
        """Expect what a malformed request brings (RFC 9113 §8.1.1), and a connection that goes on.

        That is a stream error PROTOCOL_ERROR, which an HTTP answer 400 may come before.
        """
        answer = self.answer(stream)
        if answer.sections:
            assert answer.headers[":status"] == "400", self._said()
        else:
            assert answer.reset == Error.PROTOCOL_ERROR, self._said()
        self.expect_alive()

    def expect_goaway(self, *codes: Error) -> Frame:
        """Expect that the connection ends with one of `codes`."""
        found = self.wait_for(
            lambda f: f.kind == Type.GOAWAY and f.code != Error.NO_ERROR, "GOAWAY with an error"
        )
        assert found.code in codes, self._said()
        self.wait_end()
        return found

    def expect_error(self, stream: int, *codes: Error) -> None:
        """Expect one of `codes` on the stream, or for the whole connection, as both are allowed."""
        found = self.wait_for(
            lambda f: (
                (f.kind == Type.RST_STREAM and f.stream == stream)
                or (f.kind == Type.GOAWAY and f.code != Error.NO_ERROR)
            ),
            f"an error on stream {stream}",
        )
        assert found.code in codes, self._said()

    def find(self, kind: Type, stream: int | None = None) -> list[Frame]:
        """Return the frames seen of one kind."""
        return [f for f in self.seen if f.kind == kind and stream in (None, f.stream)]

    def _take(self, found: Frame) -> None:
        self.seen.append(found)
        if found.kind in (Type.HEADERS, Type.CONTINUATION):
            self._block += found.payload
            if found.flags & END_HEADERS:
                found.fields = [(str(n), str(v)) for n, v in self.decoder.decode(self._block)]
                self._block = b""
        if found.kind == Type.SETTINGS and not found.flags & ACK:
            values = struct.iter_unpack(">HI", found.payload)
            self.settings.update(dict(values))
            if self.polite:
                self.send(frame(Type.SETTINGS, ACK, 0))
        if found.kind == Type.PING and not found.flags & ACK and self.polite:
            self.send(ping(found.payload, ACK))

    def _said(self) -> str:
        lines = "\n  ".join(str(f) for f in self.seen[-20:])
        return f"the server sent{', and closed' if self.at_end else ''}:\n  {lines}"
