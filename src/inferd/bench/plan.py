"""What generators are given and what they give back: messages between processes."""

import struct
from typing import Any, BinaryIO

import msgspec

from inferd.bench.figures import Samples
from inferd.bench.saturation import GeneratorUse


class Address(msgspec.Struct, frozen=True):
    """Where a server listens, and the files for TLS."""

    host: str
    port: int
    is_grpc: bool = False
    is_tls: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""


class Message(msgspec.Struct, frozen=True):
    """A request as it is sent: all of HTTP/1.1, or a message of gRPC behind its prefix.

    A request of a sequence has its number between `before` and `after`: as decimal digits over
    HTTP, as a varint over gRPC, in `NUMBER_BYTES` either way.
    """

    before: bytes
    after: bytes = b""

    def numbered(self, number: int, *, is_varint: bool) -> bytes:
        """Return the bytes of the message of the sequence `number`."""
        return self.before + (varint(number) if is_varint else b"%010d" % number) + self.after


LEAST_SEQUENCE = 1 << 31
"""Sequences have numbers from here on, all of ten digits, and of varints of five bytes."""
MOST_SEQUENCES = 1 << 32
# A number that hardly occurs in inputs by chance; `_split` refuses those in which it does.
PLACEHOLDER = LEAST_SEQUENCE + 0x12345678


def varint(number: int) -> bytes:
    """Return `number` as protobuf writes it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class Plan(msgspec.Struct, frozen=True):
    """What is sent, for all points.

    `messages` are sent in turn; of a plan with `sequence_length` they come in threes: that of a
    first, a middle and a last request. `head` is the header block of gRPC. `is_stream`: requests
    are those of a stream, each with any number of answers or, if `has_one_answer`, with one.
    """

    address: Address
    messages: list[Message]
    head: bytes = b""
    is_stream: bool = False
    has_one_answer: bool = False
    sequence_length: int = 0
    timeout_s: float = 60.0


class Point(msgspec.Struct, frozen=True):
    """One load: either requests under way at a time (`concurrency`), or requests a second (`rate`).

    `arrivals` says when requests are sent at a rate; recorded ones are sent at their times
    `offsets_s`, `speed` times as fast. A process sends those of `part` of `parts`. A seed makes the
    same times again.
    """

    concurrency: int = 0
    rate: float = 0.0
    arrivals: str = "constant"
    seconds: float = 5.0
    warmup_s: float = 1.0
    seed: int = 0
    part: int = 0
    parts: int = 1
    connections: int = 256
    offsets_s: list[float] = []
    speed: float = 1.0

    @property
    def name(self) -> str:
        """What the point is called in tables."""
        if self.offsets_s:
            return f"{self.speed:g} x"
        return f"{self.rate:g}/s" if self.rate else str(self.concurrency)


class LoadProgress(msgspec.Struct, frozen=True, tag="progress"):
    """What a generator did since it last said so; a part of the latencies stand for all."""

    answered: int
    errors: int
    latencies_ns: list[int]


class LoadSample(msgspec.Struct, frozen=True, tag="sample"):
    """What a generator measured. Times are on the clock of time.monotonic_ns.

    `sent`, `latencies` and, of streams, `firsts` (to the first answer) are int64s, of the requests
    that were answered and should have been sent in the measured time, from `began_ns` to
    `ended_ns`. `answered` were answered in that time. `errors` counts by text.
    """

    began_ns: int
    ended_ns: int
    sent: bytes
    latencies: bytes
    firsts: bytes
    part_count: int
    answered: int
    errors: dict[str, int]
    waiting_share: float
    """Of requests at a rate, how many waited for one of the connections."""
    use: GeneratorUse


class StartPoint(msgspec.Struct, frozen=True, tag="start"):
    """To measure a point. All generators begin to send at `at_ns`."""

    point: Point
    at_ns: int


class StopPoint(msgspec.Struct, frozen=True, tag="stop"):
    """To end the point under way, and to say what was measured."""


class PointFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The point cannot be measured."""

    reason: str


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """A generator has its plan."""


ToGenerator = StartPoint | StopPoint
FromGenerator = LoadProgress | LoadSample | PointFailed | Ready

_LENGTH = struct.Struct("<Q")


def packed(message: Any) -> bytes:
    """Return a message with its length before it."""
    content = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(content)) + content


def read_packed(stream: BinaryIO, kind: Any) -> Any:
    """Read a message of `kind`; None at the end of the stream."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    [length] = _LENGTH.unpack(head)
    content = stream.read(length)
    return msgspec.msgpack.decode(content, type=kind) if len(content) == length else None


def samples(content: bytes) -> Samples:
    """Return the int64s of a Sample."""
    import numpy as np

    return np.frombuffer(content, np.int64)
