"""Sends five million gRPC calls in one run, some of them cancelled, reset or invalid, all checked.

    python bench/soak_grpc.py [--calls 5000000] [--transport own]

h2load sends most of them, with several message sizes and several numbers of connections and
streams: every answer must arrive, and together they must have the right number of bytes. Meanwhile
a grpc.aio client compares ids and values, cancels, lets deadlines pass, streams and asks for what
does not exist, and a peer that packs its own frames resets calls and breaks rules.

Fails if an answer is wrong, is missing or has an unexpected status, if memory has grown by more
than GROWTH_LIMIT, or if streams or connections are left SETTLED_S after the end: right at the end
there may be some that clients have closed without the server knowing yet.
Memory is compared by the medians of the rounds of the second and the last fifth, without what the C
library retains for further large messages: how much that is depends on how many were ever in flight
at the same time, by chance, and is no leak. Needs h2load.
"""

import argparse
import asyncio
import contextlib
import ctypes
import gc
import json
import os
import platform
import random
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio
import hpack
import numpy as np
import servers
from servers import HOST, Server
from tritonclient.grpc import service_pb2 as pb

GROWTH_LIMIT = 0.02
SETTLED_S = 5.0
ROUNDS = 20
ROUNDS_OF_A_FIFTH = 4
SERVICE = "/inference.GRPCInferenceService"
INFER, STREAM = f"{SERVICE}/ModelInfer", f"{SERVICE}/ModelStreamInfer"
TIMEOUT_S = 60.0
CHANNELS = 8

# Out of a thousand calls; h2load sends the rest.
CHECKED, INVALID, CANCELLED, LATE, STREAMED, RESET = 12, 6, 3, 1, 2, 6
BULK = 1000 - CHECKED - INVALID - CANCELLED - LATE - STREAMED - RESET

SIZES = {16: 0.900, 1000: 0.080, 25_000: 0.019, 100_000: 0.001}
"""Number of FP32 values in a message of h2load -> the share of its calls."""

SHAPES = [(1, 1), (1, 100), (16, 16), (64, 4), (10, 1), (100, 10), (4, 64)]
"""Connections and streams per connection, used by turns."""

MODEL = """
backend: "identity"
input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }
"""
SLOW = MODEL + 'parameters { key: "execute_delay_ms" value: { string_value: "20" } }'


@dataclass
class Tally:
    """The calls and faults so far."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def note(self, what: str, *, right: bool, found: object = "") -> None:
        """Count one call, and record what is wrong with it."""
        self.counts[what] += 1
        if not right:
            self.wrong.append(f"{what}: {found}"[:300])


def infer_request(
    values: np.ndarray, model: str = "echo", call_id: str = ""
) -> pb.ModelInferRequest:
    """Return a request with `values`, which its answer must repeat."""
    message = pb.ModelInferRequest(
        model_name=model, id=call_id, raw_input_contents=[values.tobytes()]
    )
    message.inputs.add(name="INPUT0", datatype="FP32", shape=[len(values)])
    return message


def framed(message: bytes) -> bytes:
    """Return a message with gRPC's five-byte prefix."""
    return struct.pack(">BI", 0, len(message)) + message


# --- the server, in a process of its own --------------------------------------------------------


def serve(repository: Path, transport: str, port: int) -> None:
    """Run a server; on SIGUSR1 it frees memory and prints what it holds, as one JSON line."""
    import uvloop

    from inferd.config.server import ServerConfig
    from inferd.server.process import keep_freed_memory
    from inferd.server.server import Server as Inferd

    config = ServerConfig(
        model_repository=(str(repository),),
        allow_http=False,
        grpc_port=port,
        metrics_port=0,
        grpc_transport=transport,
    )

    async def run() -> None:
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, report)
        loop.add_signal_handler(signal.SIGTERM, end.set)
        async with Inferd(config):
            keep_freed_memory()  # as `inferd serve` does
            print("ready", flush=True)
            await end.wait()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def report() -> None:
    """Return free memory to the system, and print the count of streams, connections and tasks."""
    from inferd.http.h2.stream import H2Stream
    from inferd.http.http2_connection import Http2Connection

    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    kinds = {"streams": H2Stream, "connections": Http2Connection, "tasks": asyncio.Task}
    alive = gc.get_objects()
    found = {name: sum(isinstance(each, kind) for each in alive) for name, kind in kinds.items()}
    print(json.dumps(found), flush=True)


@dataclass
class Soaked:
    """The server process as the soak sees it."""

    server: Server
    process: subprocess.Popen[str]

    def counts(self) -> dict[str, int]:
        """Have the server return free memory; return what it holds."""
        self.process.send_signal(signal.SIGUSR1)
        assert self.process.stdout is not None
        return dict(json.loads(self.process.stdout.readline()))

    def open_at_last(self) -> dict[str, int]:
        """Return what it holds once nothing is open, or after SETTLED_S."""
        until = time.monotonic() + SETTLED_S
        counts = self.counts()
        while (counts["streams"] or counts["connections"]) and time.monotonic() < until:
            time.sleep(0.1)
            counts = self.counts()
        return counts

    @property
    def resident_mb(self) -> float:
        """The server's resident memory."""
        return servers.resident_bytes(self.process.pid) / 2**20


@contextlib.contextmanager
def run_server(transport: str) -> Iterator[Soaked]:
    """Start a server with two models, and stop it."""
    with tempfile.TemporaryDirectory() as name:
        repository = Path(name)
        for model, config in {"echo": MODEL, "slow": SLOW}.items():
            (repository / model / "1").mkdir(parents=True)
            (repository / model / "config.pbtxt").write_text(config)
        port = servers.free_port()
        command = [sys.executable, __file__, "--serve", name, str(port), "--transport", transport]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                if process.stdout.readline() != "ready\n":
                    sys.exit("the server did not become ready")
                yield Soaked(Server("inferd", process.pid, 0, port), process)
            finally:
                process.terminate()


# --- h2load: most of the calls ------------------------------------------------------------------


async def run_h2load(port: int, elements: int, calls: int, shape: tuple[int, int]) -> str:
    """Send `calls` times the same message; return what h2load said."""
    connections, streams = min(shape[0], calls), shape[1]
    message = framed(infer_request(np.arange(elements, dtype=np.float32)).SerializeToString())
    with tempfile.NamedTemporaryFile() as body:
        body.write(message)
        body.flush()
        command = ["h2load", "-n", str(calls), "-c", str(connections), "-m", str(streams)]
        command += ["-w", "24", "-W", "28", "-d", body.name, f"http://{HOST}:{port}{INFER}"]
        for header in ("content-type: application/grpc", "te: trailers"):
            command += ["-H", header]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        said, _ = await process.communicate()
    return said.decode()


async def send_bulk(
    port: int, calls: int, turn: int, answers: dict[int, int], tally: Tally
) -> None:
    """Have h2load send `calls`; `answers` has the bytes of one answer for each of SIZES."""
    for number, (elements, share) in enumerate(SIZES.items()):
        count = max(1, round(calls * share))
        said = await run_h2load(port, elements, count, SHAPES[(turn + number) % len(SHAPES)])
        arrived = re.search(r"(\d+) succeeded", said)
        data = re.search(r"\((\d+)\) data", said)
        tally.counts["h2load"] += count
        if not arrived or int(arrived[1]) != count:
            tally.wrong.append(f"h2load: {count} calls of {elements} FP32: {said[-600:]}")
        elif not data or int(data[1]) != count * answers[elements]:
            tally.wrong.append(f"h2load: {data and data[1]} B, not {count * answers[elements]}")


# --- grpc.aio: checked calls --------------------------------------------------------------------


class Client:
    """Calls over several channels."""

    def __init__(self, port: int, seed: int, tally: Tally) -> None:
        self._port, self._tally, self._random = port, tally, random.Random(seed)
        self._channels: list[grpc.aio.Channel] = []

    async def __aenter__(self) -> "Client":
        """Open the channels."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        for _ in range(CHANNELS):
            self._channels.append(grpc.aio.insecure_channel(f"{HOST}:{self._port}", options))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close them."""
        for channel in self._channels:
            await channel.close()

    async def send(self, per_thousand: float) -> None:
        """Send the calls of a round in random order, two at a time on each channel."""
        kinds = {
            self.checked: CHECKED,
            self.invalid: INVALID,
            self.cancelled: CANCELLED,
            self.late: LATE,
            self.streamed: STREAMED,
        }
        todo = [kind for kind, share in kinds.items() for _ in range(round(share * per_thousand))]
        self._random.shuffle(todo)
        left = iter(todo)

        async def work(channel: grpc.aio.Channel) -> None:
            for kind in left:
                await kind(channel)

        await asyncio.gather(*(work(channel) for channel in self._channels for _ in range(2)))

    async def checked(self, channel: grpc.aio.Channel) -> None:
        """Compare id and values; deadline, metadata and compression vary from call to call."""
        size = self._random.choice([0, 1, 10, 100, 1000, 10_000, 100_000])
        values = np.full(size, self._random.random(), np.float32)
        request = infer_request(values, call_id=str(self._random.random()))
        coding = self._random.choice([None, None, None, grpc.Compression.Gzip])
        metadata = [(f"x-key-{self._random.randrange(50)}", str(self._random.random()))]
        call = channel.unary_unary(INFER, _encode, pb.ModelInferResponse.FromString)
        timeout_s = TIMEOUT_S + self._random.random()
        try:
            answer = await call(request, timeout=timeout_s, metadata=metadata, compression=coding)
        except grpc.aio.AioRpcError as error:
            self._tally.note("checked", right=False, found=error)
            return
        right = answer.id == request.id and answer.raw_output_contents[0] == values.tobytes()
        self._tally.note("checked", right=right, found=f"{size} values")

    async def invalid(self, channel: grpc.aio.Channel) -> None:
        """Send a call for a missing model or method, or with a wrong shape."""
        model = infer_request(np.zeros(1, np.float32), "nobody").SerializeToString()
        shape = infer_request(np.zeros(1, np.float32))
        shape.inputs[0].shape[0] = 7
        path, message, status = self._random.choice(
            [
                (INFER, model, grpc.StatusCode.NOT_FOUND),
                (INFER, shape.SerializeToString(), grpc.StatusCode.INVALID_ARGUMENT),
                (f"{SERVICE}/Nothing", b"", grpc.StatusCode.UNIMPLEMENTED),
            ]
        )
        found = await _status(channel.unary_unary(path)(message, timeout=TIMEOUT_S))
        self._tally.note("invalid", right=found is status, found=found)

    async def cancelled(self, channel: grpc.aio.Channel) -> None:
        """Start a slow call and cancel it; on a busy machine that may be too late."""
        request = infer_request(np.zeros(100, np.float32), "slow").SerializeToString()
        call = channel.unary_unary(INFER)(request, timeout=TIMEOUT_S)
        await asyncio.sleep(self._random.random() * 0.01)
        call.cancel()
        found = await call.code()
        is_late = found is grpc.StatusCode.OK
        kind = "cancelled too late" if is_late else "cancelled"
        self._tally.note(kind, right=is_late or found is grpc.StatusCode.CANCELLED, found=found)

    async def late(self, channel: grpc.aio.Channel) -> None:
        """Start a slow call with too short a deadline."""
        request = infer_request(np.zeros(100, np.float32), "slow").SerializeToString()
        found = await _status(channel.unary_unary(INFER)(request, timeout=0.005))
        self._tally.note("late", right=found is grpc.StatusCode.DEADLINE_EXCEEDED, found=found)

    async def streamed(self, channel: grpc.aio.Channel) -> None:
        """Stream some requests; half of the time, cancel before the end."""
        count, leaves = self._random.randint(1, 8), self._random.random() < 0.5
        values = np.full(50, self._random.random(), np.float32)

        async def questions() -> AsyncIterator[pb.ModelInferRequest]:
            for number in range(count):
                yield infer_request(values, call_id=str(number))

        open_stream = channel.stream_stream(STREAM, _encode, pb.ModelStreamInferResponse.FromString)
        call = open_stream(questions(), timeout=TIMEOUT_S)
        ids = []
        try:
            async for answer in call:
                ids.append(answer.infer_response.id)
                right = answer.infer_response.raw_output_contents[0] == values.tobytes()
                if not right or (leaves and len(ids) == (count + 1) // 2):
                    break
        except grpc.aio.AioRpcError as error:
            self._tally.note("streamed", right=False, found=error)
            return
        call.cancel()
        expected = (count + 1) // 2 if leaves else count
        in_order = ids == [str(number) for number in range(expected)]
        self._tally.note("streamed", right=in_order and right, found=ids)


def _encode(message: pb.ModelInferRequest) -> bytes:
    return bytes(message.SerializeToString())


async def _status(call: grpc.aio.UnaryUnaryCall) -> grpc.StatusCode:
    with contextlib.suppress(grpc.aio.AioRpcError):
        await call
    return await call.code()


# --- frames of our own: resets and broken rules -------------------------------------------------

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
HEAD = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", INFER),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]
WRONG_STARTS = [
    b"GET / HTTP/1.0\r\n\r\n" + bytes(100),
    PREFACE + b"\0\0\1\6\0\0\0\0\0\0",
    PREFACE + b"\0\0\1\1\5\0\0\0\1\xff",
    PREFACE + b"\0\0\0\0\0\0\0\0\0",
    PREFACE + b"\0\0\4\x08\0\0\0\0\0\0\0\0\0",
]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return one HTTP/2 frame."""
    head = struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream)
    return head + payload


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, int, int, bytes]:
    """Return type, flags, stream and payload of the next frame. Raises EOFError at the end."""
    head = await reader.readexactly(9)
    kind, flags, stream = struct.unpack(">BBI", head[3:])
    return kind, flags, stream, await reader.readexactly(int.from_bytes(head[:3], "big"))


async def reset_calls(port: int, calls: int, tally: Tally) -> None:
    """Send calls and reset a third of them, at once or midway; the others must be answered."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(PREFACE)
    encoder, answered, expected = hpack.Encoder(), set[int](), set[int]()
    body = framed(infer_request(np.arange(500, dtype=np.float32)).SerializeToString())
    try:
        async with asyncio.timeout(TIMEOUT_S):
            for number in range(calls):
                stream = 2 * number + 1
                writer.write(frame(HEADERS, 4, stream, encoder.encode(HEAD)))
                if number % 3 == 0:
                    part = body[: number % len(body)]
                    writer.write(frame(DATA, 0, stream, part) + _reset(stream))
                    continue
                writer.write(frame(DATA, 1, stream, body))
                writer.write(frame(8, 0, 0, struct.pack(">I", len(body))))
                expected.add(stream)
                while len(expected) - len(answered) > 20:
                    await _take(reader, writer, answered)
            while answered != expected:
                await _take(reader, writer, answered)
    except (TimeoutError, EOFError, ConnectionError, ValueError) as error:
        tally.wrong.append(f"reset: {error!r}, {len(answered)} of {len(expected)} answered")
    tally.counts["reset"] += calls
    writer.close()


def _reset(stream: int) -> bytes:
    return frame(RST_STREAM, 0, stream, struct.pack(">I", 8))


async def _take(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answered: set[int]
) -> None:
    kind, flags, stream, payload = await read_frame(reader)
    if kind == SETTINGS and not flags & 1:
        writer.write(frame(SETTINGS, 1, 0))
    elif kind == PING and not flags & 1:
        writer.write(frame(PING, 1, 0, payload))
    elif kind in (GOAWAY, RST_STREAM):
        msg = f"frame {kind} on stream {stream}: {payload!r}"
        raise ValueError(msg)
    elif flags & 1 and kind in (DATA, HEADERS):
        answered.add(stream)


async def break_rules(port: int, tally: Tally) -> None:
    """Break the rules of HTTP/2 in several ways: each must end the connection, and nothing else."""
    for start in WRONG_STARTS:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(start)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await reader.read(-1)
        except ConnectionError:
            pass
        except TimeoutError:
            tally.wrong.append(f"the connection was not ended after {start!r}")
        writer.close()
        tally.counts["broken connection"] += 1


# --- the whole ----------------------------------------------------------------------------------


def machine() -> str:
    """Return the number of cores and the processor."""
    with contextlib.suppress(OSError):
        if model := re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()):
            return f"{os.cpu_count()} x {model[1]}"
    return f"{os.cpu_count()} x {platform.machine()}"


async def answer_sizes(port: int) -> dict[int, int]:
    """Return the bytes of DATA in one answer of each size; check each answer once."""
    sizes = {}
    options = [("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(f"{HOST}:{port}", options) as channel:
        for elements in SIZES:
            values = np.arange(elements, dtype=np.float32)
            data = await channel.unary_unary(INFER)(_encode(infer_request(values)))
            answer = pb.ModelInferResponse.FromString(data)
            if answer.raw_output_contents[0] != values.tobytes():
                sys.exit(f"the answer to {elements} values is wrong")
            sizes[elements] = len(data) + 5
    return sizes


async def run_round(
    port: int, calls: int, turn: int, answers: dict[int, int], tally: Tally
) -> None:
    """Send `calls` calls of all kinds concurrently."""
    async with Client(port, turn, tally) as client, asyncio.TaskGroup() as group:
        bulk = round(calls * BULK / 1000)
        group.create_task(send_bulk(port, bulk, turn, answers, tally))
        group.create_task(client.send(calls / 1000))
        group.create_task(reset_calls(port, round(calls * RESET / 1000), tally))
        group.create_task(break_rules(port, tally))


def soak(soaked: Soaked, calls: int) -> int:
    """Run the rounds and print the result; return 1 if anything was wrong."""
    tally, port, began = Tally(), soaked.server.grpc_port, time.monotonic()
    answers = asyncio.run(answer_sizes(port))
    memory_mb, most_mb = [], 0.0
    for turn in range(ROUNDS):
        asyncio.run(run_round(port, calls // ROUNDS, turn, answers, tally))
        most_mb = max(most_mb, soaked.resident_mb)
        soaked.counts()
        memory_mb.append(soaked.resident_mb)
        print(
            f"round {turn + 1:2}: {sum(tally.counts.values()):>9,} calls, "
            f"{time.monotonic() - began:4.0f} s, {memory_mb[-1]:.1f} MB, "
            f"{len(tally.wrong)} wrong",
            flush=True,
        )
    cpu_s = servers.cpu_seconds(soaked.process.pid)
    counts = soaked.open_at_last()
    total = sum(tally.counts.values())
    fifth = ROUNDS_OF_A_FIFTH
    warm_mb = statistics.median(memory_mb[fifth : 2 * fifth])
    end_mb = statistics.median(memory_mb[-fifth:])
    growth = end_mb / warm_mb - 1
    print(f"{total:,} calls in {time.monotonic() - began:.0f} s on {machine()}")
    print("  " + ", ".join(f"{count:,} {kind}" for kind, count in tally.counts.items()))
    print(f"  server CPU {cpu_s:.0f} s, {cpu_s / total * 1e6:.1f} us for a call")
    print(
        f"  memory {warm_mb:.1f} MB in the second fifth, {end_mb:.1f} MB in the last (medians), "
        f"{most_mb:.1f} MB at most with what is held back"
    )
    print(f"  left at the end: {counts['streams']} streams, {counts['connections']} connections, "
          f"{counts['tasks']} tasks")  # fmt: skip
    for fault in tally.wrong[:20]:
        print(f"  WRONG: {fault}", file=sys.stderr)
    stuck = counts["streams"] or counts["connections"]
    verdict = bool(tally.wrong or stuck or growth > GROWTH_LIMIT)
    print(f"  {len(tally.wrong)} wrong, memory {growth:+.1%}: {'FAILED' if verdict else 'passed'}")
    return int(verdict)


def main() -> int:
    """Start a server, soak it, stop it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=5_000_000)
    parser.add_argument("--transport", choices=("own", "grpcio"), default="own")
    parser.add_argument("--serve", nargs=2, metavar=("MODELS", "PORT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(Path(options.serve[0]), options.transport, int(options.serve[1]))
        return 0
    if not shutil.which("h2load"):
        sys.exit("h2load is not on this machine; it comes with nghttp2 (Debian: nghttp2-client)")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    with run_server(options.transport) as soaked:
        return soak(soaked, options.calls)


if __name__ == "__main__":
    sys.exit(main())
