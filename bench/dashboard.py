"""What the dashboard costs a server: to sample it, and to tell ten pages of everything.

    .venv/bin/python bench/dashboard.py [--models 100] [--readers 10] [--rate 500] [--turns 6]

First, in this process: the milliseconds of CPU of one second's sample of 1,000 models of which
none, ten or all were asked, those of the rows when somebody looks, and the memory of a full
history. Then a server with that many models gets requests at a steady rate, round and round, and
its CPU time is measured by turns without and with readers of all topics; what they add, as a share
of one core, is the mean of the differences. The exit status is 1 if a sample of quiet models takes
more than SAMPLE_MS, or if readers take more than MOST_PERCENT.
"""

import argparse
import asyncio
import http.client
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scrape import _BODY, make_repository
from servers import HOST, cpu_seconds, free_port, run_server

from inferd.config.model import ModelConfig
from inferd.core.request import InferRequest
from inferd.engine.loading.catalog import Catalog
from inferd.engine.serving.served import Served
from inferd.ui.figures.history import MOST_SECONDS, DayHistory, Row
from inferd.ui.figures.models import ModelFigures

SAMPLE_MS = 5.0
MOST_PERCENT = 1.0
TURN_S = 8
MANY = 1000
TOPICS = "overview,models,log,requests,model&model=model_0"


class _Idle:
    """A scheduler with nothing to do."""

    pending_count = 0


def sampling() -> dict[str, float]:
    """Return the milliseconds of CPU that a second takes, by how many models were asked."""
    catalog = Catalog()
    several = [Served(ModelConfig(f"m{at}"), 1, "identity", _Idle()) for at in range(MANY)]  # type: ignore[arg-type]
    catalog.add(*several)
    figures = ModelFigures(catalog)
    found = {}
    second = 1_800_000_000
    asyncio.run(figures.sample(second))
    asyncio.run(figures.changed(0, second))
    for asked in (0, 10, MANY):
        samples, rows = [], []
        for _ in range(10):
            for served in several[:asked]:
                for took_us in (40, 50, 70, 500):
                    request = InferRequest("m")
                    request.queued_ns, request.started_ns = 10**9, 10**9 + 5000
                    request.ended_ns = 10**9 + 1000 * took_us
                    served.counts.add_success(request)
            second += 1
            samples.append(_cpu_ms(figures.sample(second)))
            rows.append(_cpu_ms(figures.changed(figures.number, second)))
        found[f"sample of {MANY} models, {asked} asked"] = statistics.median(samples)
        found[f"rows of {MANY} models, {asked} asked"] = statistics.median(rows)
    return found


def _cpu_ms(work: object) -> float:
    async def run() -> float:
        began = time.thread_time()
        await work  # type: ignore[misc]
        return (time.thread_time() - began) * 1000

    return asyncio.run(run())


def history_bytes(*, has_durations: bool) -> int:
    """Return the memory of a full history of a busy server."""
    import tracemalloc

    tracemalloc.start()
    history = DayHistory(has_durations=has_durations)
    for number in range(MOST_SECONDS * 2):  # the minutes of the day come from two passes
        durations = {200 + bucket: 5 + bucket for bucket in range(40)}
        history.add(Row(1_800_000_000 + 20 * number, 1000, durations=durations))
    for number in range(MOST_SECONDS):
        history.add(Row(1_801_000_000 + number, 1000, durations={200 + at: 9 for at in range(40)}))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size


def ask_on(port: int, models: int, rate: float, over: threading.Event) -> None:
    """Send requests at this rate, to all models in turn."""
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    due = time.monotonic()
    number = 0
    while not over.is_set():
        connection.request("POST", f"/v2/models/model_{number % models}/infer", _BODY)
        connection.getresponse().read()
        number += 1
        due += 1 / rate
        over.wait(max(0.0, due - time.monotonic()))


@contextmanager
def readers(port: int, count: int) -> Iterator[list[int]]:
    """Read all topics `count` times at once; yields the bytes that each has got."""
    connections = []
    sizes = [0] * count

    def read(at: int, answer: http.client.HTTPResponse) -> None:
        with suppress(OSError, ValueError, http.client.HTTPException):
            while data := answer.read1(1 << 20):
                sizes[at] += len(data)

    for at in range(count):
        connection = http.client.HTTPConnection(HOST, port, timeout=60)
        connection.request("GET", f"/ui/events?topics={TOPICS}")
        answer = connection.getresponse()
        if answer.status != 200:
            sys.exit(f"/ui/events answered {answer.status}")
        connections.append(connection)
        threading.Thread(target=read, args=(at, answer), daemon=True).start()
    time.sleep(1.5)  # the first events, which have everything, are not what a second costs
    try:
        yield sizes
    finally:
        for connection in connections:
            with suppress(OSError):
                connection.sock.shutdown(2)


def reading(models: int, count: int, rate: float, turns: int, work: Path) -> dict[str, float]:
    """Return the shares of a core, in percent, without and with readers."""
    ports = (free_port(), free_port())
    command = [sys.executable, "-m", "inferd", "serve"]
    command += [str(make_repository(work / "models", models)), "--allow-metrics=false"]
    command += ["--http-address", HOST, "--grpc-address", HOST]
    command += ["--http-port", str(ports[0]), "--grpc-port", str(ports[1])]
    shares: dict[int, list[float]] = {0: [], count: []}
    with run_server("inferd", command, ports, work / "inferd.log") as server:
        over = threading.Event()
        asking = threading.Thread(target=ask_on, args=(server.port, models, rate, over))
        asking.start()
        try:
            for turn in range(2 * turns):
                open_count = count if turn % 4 in (1, 2) else 0
                with readers(server.port, open_count) as sizes:
                    cpu_s, began = cpu_seconds(server.pid), time.monotonic()
                    before = sum(sizes)
                    time.sleep(TURN_S)
                    wall_s = time.monotonic() - began
                    used = (cpu_seconds(server.pid) - cpu_s) / wall_s * 100
                    if open_count and sum(sizes) == before:
                        sys.exit("the readers have heard nothing")
                shares[open_count].append(used)
        finally:
            over.set()
            asking.join()
    differences = [more - less for less, more in zip(shares[0], shares[count], strict=True)]
    return {
        "without readers": statistics.mean(shares[0]),
        f"with {count} readers": statistics.mean(shares[count]),
        "the readers": statistics.mean(differences),
        "(standard error)": statistics.stdev(differences) / len(differences) ** 0.5,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--readers", type=int, default=10)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--turns", type=int, default=6)
    given = parser.parse_args()
    sampled = sampling()
    for name, ms in sampled.items():
        print(f"{name:<40} {ms:7.2f} ms of CPU")
    for has_durations in (False, True):
        what = "with durations, for --workers" if has_durations else "of one process"
        print(f"history {what:<32} {history_bytes(has_durations=has_durations) / 1e6:7.2f} MB")
    with tempfile.TemporaryDirectory() as folder:
        found = reading(given.models, given.readers, given.rate, given.turns, Path(folder))
    for name, percent in found.items():
        print(f"{name:<40} {percent:7.2f} % of a core")
    too_slow = sampled[f"sample of {MANY} models, 0 asked"] > SAMPLE_MS
    sys.exit(int(too_slow or found["the readers"] > MOST_PERCENT))


if __name__ == "__main__":
    main()
