"""Offers a model that waits twice the load it can take, and checks that it keeps its throughput.

    python bench/overload.py [--seconds 60] [--factor 2]

Requests arrive whether or not earlier ones are answered (a Poisson process), by turns over HTTP and
gRPC. The peak is measured first, with clients that wait for their answers. Fails if less than
GOODPUT_SHARE of the peak is answered under overload, if a refusal does not say when to retry, if
the 99th percentile of the accepted is above queue size times service time, if the server's memory
grows by more than MEMORY_GROWTH_LIMIT_MB, or if a health check fails.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import cases
import grpc
import make_models
import numpy as np
import servers
from cases import Case, Request
from servers import HOST, Server

SERVICE_MS, BATCH, QUEUE = 20, 4, 40
CONFIG = f"""
backend: "identity"
max_batch_size: {BATCH}
input [ {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }} ]
output [ {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }} ]
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
parameters {{ key: "execute_delay_ms" value {{ string_value: "{SERVICE_MS}" }} }}
dynamic_batching {{
  preferred_batch_size: [ {BATCH} ]
  default_queue_policy {{ max_queue_size: {QUEUE} }}
}}
"""
PEAK_S = 5.0
PEAK_CLIENTS = QUEUE
GOODPUT_SHARE = 0.9
MEMORY_GROWTH_LIMIT_MB = 4
SETTLED = 1 / 6  # of the run, after which memory must not grow
OK, REFUSED = "ok", "refused"

Ask = Callable[[], Awaitable[str]]


@dataclass
class Tally:
    """The outcomes, and how long accepted requests took."""

    outcomes: Counter[str] = field(default_factory=Counter)
    latencies_s: list[float] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    side_ms: list[float] = field(default_factory=list)


class Http:
    """A pool of keep-alive connections, as many as are needed at once."""

    def __init__(self, port: int, request: Request) -> None:
        self._port = port
        lines = [f"POST {request.path} HTTP/1.1", f"Host: {HOST}"]
        lines += [f"{name}: {value}" for name, value in request.headers.items()]
        lines.append(f"Content-Length: {len(request.body)}\r\n\r\n")
        self._message = "\r\n".join(lines).encode() + request.body
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, message: bytes = b"") -> str:
        """Send one request and return the outcome."""
        if not self._idle:
            self._idle.append(await asyncio.open_connection(HOST, self._port))
        reader, writer = self._idle.pop()
        writer.write(message or self._message)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
        await reader.readexactly(length)
        self._idle.append((reader, writer))
        status = int(head.split()[1])
        if status == 503 and b"\r\nretry-after: " in head:
            return REFUSED
        return OK if status == 200 else f"HTTP {status}"

    async def look(self) -> str:
        """Ask for the server's readiness and return the outcome."""
        return await self.ask(f"GET /v2/health/ready HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())

    def close(self) -> None:
        """Close all connections."""
        for _, writer in self._idle:
            writer.close()


class Grpc:
    """One channel."""

    def __init__(self, channel: grpc.aio.Channel, request: Request) -> None:
        self._call = channel.unary_unary(cases.GRPC_METHOD, None, None)
        self._message = request.body[5:]

    async def ask(self) -> str:
        """Send one request and return the outcome."""
        try:
            await self._call(self._message)
        except grpc.aio.AioRpcError as error:
            hint = dict(error.trailing_metadata() or ()).get("grpc-retry-pushback-ms")
            if error.code() is grpc.StatusCode.UNAVAILABLE and hint:
                return REFUSED
            return f"gRPC {error.code().name}"
        return OK


async def peak(asks: list[Ask]) -> float:
    """Return how many requests per second are answered when clients wait for their answers."""
    count, end = 0, time.perf_counter() + PEAK_S

    async def client(ask: Ask) -> None:
        nonlocal count
        while time.perf_counter() < end:
            outcome = await ask()
            count += outcome == OK

    await asyncio.gather(*(client(asks[number % len(asks)]) for number in range(PEAK_CLIENTS)))
    return count / PEAK_S


async def offer(asks: list[Ask], rate: float, seconds: float, tally: Tally) -> None:
    """Send requests at random moments, `rate` per second on average; wait for all answers."""
    random = np.random.default_rng(1)
    began = time.perf_counter()

    async def one(ask: Ask) -> None:
        sent_s = time.perf_counter()
        outcome = await ask()
        tally.outcomes[outcome] += 1
        if outcome == OK:
            tally.latencies_s.append(time.perf_counter() - sent_s)

    due, number = began, 0
    async with asyncio.TaskGroup() as group:
        while (due := due + random.exponential(1 / rate)) < began + seconds:
            if (wait_s := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait_s)
            group.create_task(one(asks[number % len(asks)]))
            number += 1


async def watch(server: Server, look: Ask, seconds: float, tally: Tally) -> None:
    """Record the server's memory and the duration of a health check once a second."""
    for _ in range(int(seconds)):
        sent_s = time.perf_counter()
        tally.outcomes[f"health {await look()}"] += 1
        tally.side_ms.append((time.perf_counter() - sent_s) * 1000)
        tally.memory_mb.append(servers.resident_bytes(server.pid) / 2**20)
        await asyncio.sleep(1)


async def measure(server: Server, seconds: float, factor: float) -> tuple[float, Tally]:
    """Return the peak, and the result of `factor` times that rate."""
    random, tally = np.random.default_rng(0), Tally()
    inputs = {"INPUT0": random.random((1, 256), np.float32)}
    http = Http(server.port, cases.encode(Case("bin", "identity"), "waits", "0", inputs))
    async with AsyncExitStack() as stack:
        stack.callback(http.close)
        target = f"{HOST}:{server.grpc_port}"
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(target))
        message = cases.encode(Case("grpc", "identity"), "waits", "0", inputs)
        asks: list[Ask] = [http.ask, Grpc(channel, message).ask]
        best = await peak(asks)
        looking = asyncio.create_task(watch(server, http.look, seconds, tally))
        await offer(asks, factor * best, seconds, tally)
        await looking
    return best, tally


def report(best: float, tally: Tally, seconds: float, factor: float) -> int:
    """Print the figures; return 1 if one is not as it should be."""
    answered = tally.outcomes[OK] / seconds
    p50, p99 = (np.percentile(tally.latencies_s, q) * 1000 for q in (50, 99))
    bound_ms = QUEUE * SERVICE_MS
    settled = tally.memory_mb[int(len(tally.memory_mb) * SETTLED) :]
    growth_mb = max(settled) - settled[0]
    print(
        f"one instance, {SERVICE_MS} ms for up to {BATCH} requests, queue of {QUEUE}; {seconds:g} s"
    )
    print(f"  peak {best:.1f}/s, offered {factor * best:.1f}/s")
    print(f"  goodput {answered:.1f}/s, {answered / best:.1%} of the peak")
    print(f"  accepted: p50 {p50:.0f} ms, p99 {p99:.0f} ms, bound {bound_ms} ms")
    print(f"  memory {settled[0]:.1f} MB, grows by {growth_mb:.1f} MB at most")
    print(f"  health checks: median {statistics.median(tally.side_ms):.1f} ms")
    print("  " + ", ".join(f"{count} {outcome}" for outcome, count in tally.outcomes.items()))
    is_good = (
        answered >= GOODPUT_SHARE * best
        and p99 <= bound_ms
        and growth_mb <= MEMORY_GROWTH_LIMIT_MB
        and tally.outcomes.keys() <= {OK, REFUSED, f"health {OK}"}
    )
    return 0 if is_good else 1


def main() -> int:
    """Start a server, overload it, stop it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--factor", type=float, default=2.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        make_models.write_model(work / "models", "waits", CONFIG, None)
        with servers.run_inferd(work / "models", work) as server:
            best, tally = asyncio.run(measure(server, options.seconds, options.factor))
    return report(best, tally, options.seconds, options.factor)


if __name__ == "__main__":
    sys.exit(main())
