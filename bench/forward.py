"""What it costs when a request reaches a process of the server that does not own its model.

    python bench/forward.py [--connections 16] [--requests 20000] [--turns 9] [--most 2.5]

Two processes are one server. Both requests are sent to the first: one to a model that it owns, one
to the same model under a name that the other owns. The unit is CPU microseconds of both processes
together per answered request. The two are measured by turns; a figure is the median, and the ratio
the median of the turns' ratios, with quartiles. Every answer is compared. The exit code is 1 if a
ratio is above --most.
"""

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from make_models import SIMPLE_CONFIG, simple_model, write_model
from servers import HOST, cpu_seconds

from inferd.aio.event_loop import new_event_loop
from inferd.config.server import ServerConfig
from inferd.core.processes import Processes
from inferd.engine.engine import Engine
from inferd.forward.owner import model_key, owner_of
from inferd.server.options import http_options
from inferd.transport.http_server import HttpServer

COUNT = 2
SINGLE = 'parameters { key: "inferd_placement" value: { string_value: "single" } }\n'
VALUES = np.arange(16, dtype="<i4").reshape(1, 16)
INPUTS = ("INPUT0", "INPUT1")
WARM_UP = 2000


def main() -> int:
    """Measure, or be one of the processes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--most", type=float, default=2.5)
    parser.add_argument("--process", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process:
        number, folder = options.process
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(serve(int(number), Path(folder)))
    with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as (port, pids):
        return measure(options, port, pids)


# --- the server ---


def names() -> list[str]:
    """Return a name that each process owns."""
    found = [f"simple{n}" for n in range(100)]
    owners = [owner_of(model_key(name), range(COUNT)) for name in found]
    return [found[owners.index(number)] for number in range(COUNT)]


async def serve(number: int, folder: Path) -> None:
    """Be process `number` of the server; the first has a port for HTTP, which it prints."""
    processes = Processes(number, COUNT)
    engine = Engine(processes=processes)
    await engine.load_all([folder / "models"])
    sockets = {each: str(folder / "sockets" / str(each)) for each in range(COUNT)}
    assert engine.exchange is not None
    await engine.exchange.open(sockets[number])
    port = 0
    if number == 0:
        http = HttpServer(engine, http_options(ServerConfig()))
        listening = await asyncio.get_running_loop().create_server(http.connect, HOST, 0)
        port = listening.sockets[0].getsockname()[1]
    processes.update(sockets)
    print(port, flush=True)
    await asyncio.Event().wait()


@contextmanager
def server(folder: Path) -> Iterator[tuple[int, list[int]]]:
    """Run the processes; yield the port and the ids of all."""
    for name in names():
        config = SIMPLE_CONFIG.replace('name: "simple"', f'name: "{name}"') + SINGLE
        write_model(folder / "models", name, config, simple_model())
    with ExitStack() as stack:
        pids, port = [], 0
        for number in range(COUNT):
            command = [sys.executable, __file__, "--process", str(number), str(folder)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            stack.callback(process.wait)
            stack.callback(process.kill)
            assert process.stdout is not None
            port = int(process.stdout.readline()) or port
            pids.append(process.pid)
        yield port, pids


# --- the load ---


@dataclass(frozen=True)
class Sent:
    """A request as it is sent, and how its answer ends."""

    wire: bytes
    end: bytes


def request(model: str, *, binary: bool) -> Sent:
    """Return the request, and the last bytes of its answer."""
    inputs: list[dict[str, object]] = []
    data = b""
    for name in INPUTS:
        tensor: dict[str, object] = {"name": name, "datatype": "INT32", "shape": [1, 16]}
        if binary:
            tensor["parameters"] = {"binary_data_size": VALUES.nbytes}
            data += VALUES.tobytes()
        else:
            tensor["data"] = VALUES.ravel().tolist()
        inputs.append(tensor)
    document: dict[str, object] = {"inputs": inputs}
    if binary:
        document["parameters"] = {"binary_data_output": True}
    body = json.dumps(document).encode()
    head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: {HOST}\r\n"
    head += f"Content-Length: {len(body) + len(data)}\r\n"
    if binary:
        head += f"Inference-Header-Content-Length: {len(body)}\r\n"
    difference = np.zeros(16, "<i4")
    end = difference.tobytes() if binary else b'"data":[' + b",".join([b"0"] * 16) + b"]}]}"
    return Sent(f"{head}\r\n".encode() + body + data, end)


def load(port: int, sent: Sent, connections: int, count: int) -> None:
    """Send `count` requests over `connections` at once, and compare the answers."""
    sockets = [socket.create_connection((HOST, port)) for _ in range(connections)]
    for each in sockets:
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(count // connections):
        for each in sockets:
            each.sendall(sent.wire)
        for each in sockets:
            receive(each, sent.end)
    for each in sockets:
        each.close()


def receive(sock: socket.socket, end: bytes) -> None:
    """Receive one answer that ends with `end`."""
    answer = b""
    length = None
    while length is None or len(answer) < length:
        more = sock.recv(1 << 16)
        assert more, f"the server closed the connection after {answer!r}"
        answer += more
        head, found, _ = answer.partition(b"\r\n\r\n")
        if found and length is None:
            assert answer.startswith(b"HTTP/1.1 200 "), answer
            [size] = [
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length")
            ]
            length = len(head) + len(found) + size
    assert answer.endswith(end), answer


def measure(options: argparse.Namespace, port: int, pids: list[int]) -> int:
    """Print the figures; return 1 if a ratio is too high."""
    is_over = False
    print(f"CPU µs per request of both processes, {options.connections} connections")
    for binary in (False, True):
        here, there = (request(name, binary=binary) for name in names())
        for sent in (here, there):
            load(port, sent, options.connections, WARM_UP)
        turns = []
        for _ in range(options.turns):
            pair = []
            for sent in (here, there):
                before = sum(map(cpu_seconds, pids))
                load(port, sent, options.connections, options.requests)
                used_s = sum(map(cpu_seconds, pids)) - before
                pair.append(used_s * 1e6 / options.requests)
            turns.append(pair)
        direct, forwarded = (statistics.median(column) for column in zip(*turns, strict=True))
        ratios = sorted(pair[1] / pair[0] for pair in turns)
        low, ratio, high = statistics.quantiles(ratios, n=4)
        body = "binary" if binary else "json"
        row = f"{body:6} direct {direct:.1f}, forwarded {forwarded:.1f}:"
        print(f"{row} x {ratio:.2f} ({low:.2f} to {high:.2f})")
        is_over = is_over or ratio > options.most
    return int(is_over)


if __name__ == "__main__":
    sys.exit(main())
