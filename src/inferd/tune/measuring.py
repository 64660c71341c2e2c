"""Measuring: a server of its own for each candidate, a load, and what that has cost."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from inferd import system
from inferd.bench.cpu import processes_at
from inferd.bench.measure import ServerAccount, measure
from inferd.bench.plan import LoadProgress, Plan, Point
from inferd.bench.processes import Generators
from inferd.bench.requests import WantedRequest, plan_of
from inferd.bench.result import PointResult
from inferd.client import Client
from inferd.client.settings import read_settings
from inferd.errors import InferdError, LoadFailed, Unavailable
from inferd.tensor.tensor import Tensor
from inferd.tune.goal import QUANTILES, Cost

END_S = 60.0
LOAD_S = 600.0


class TuneLoad(NamedTuple):
    """The load under which settings are compared: `concurrency` requests at a time, over gRPC or
    REST with binary data, for `seconds` after a warm-up."""

    concurrency: int = 16
    seconds: float = 2.0
    warmup_s: float = 0.5
    processes: int = 1
    grpc: bool = False


@contextmanager
def served(repository: Path, model: str, config: str | None, load: TuneLoad) -> Iterator[Client]:
    """Run a server, have it load the model, with `config`, JSON, in place of its file if given.

    Yields a client of it.

    Raises LoadFailed with the server's words, Unavailable if it does not start.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "inferd.tune.served", str(repository)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,  # Ctrl-C is for this process, which ends it
    )
    try:
        assert process.stdout is not None
        words = process.stdout.readline().split()  # empty if it has ended
        if not words:
            raise Unavailable("the server under test does not start")
        url = f"grpc://{words[1]}" if load.grpc else words[0]
        with Client(url, timeout_s=LOAD_S) as client:
            try:
                # After the start: a server without its model starts in a second, and its error is
                # an answer.
                client.load(model, config=config)
            except InferdError as error:
                raise LoadFailed(error.message) from error
            yield client
    finally:
        _end(process)


def _end(process: "subprocess.Popen[str]") -> None:
    """End a server by the end of its input, or after some time by force."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    try:
        # A model may take long to unload.
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


def measured(
    client: Client,
    model: str,
    inputs: Sequence[Tensor],
    load: TuneLoad,
    show: Callable[[float], None],
) -> Cost:
    """Load the server, and return what the settings cost. Raises InferdError."""
    plan = load_plan(client, model, inputs)
    with Generators(plan, load.processes) as generators:
        return measured_by(generators, plan, load, show)


def load_plan(client: Client, model: str, inputs: Sequence[Tensor]) -> Plan:
    """Return what is sent to the server: requests with these inputs."""
    settings = read_settings(client.url, {})
    return plan_of(settings, [list(inputs)], WantedRequest(model))


def measured_by(
    generators: Generators, plan: Plan, load: TuneLoad, show: Callable[[float], None]
) -> Cost:
    """Load the server with generators that have the plan. Return its cost. Raises InferdError."""
    point = Point(load.concurrency, seconds=load.seconds, warmup_s=load.warmup_s)
    # Those that listen there, workers included, whose CPU time and memory are counted.
    pids = processes_at(plan.address.host, plan.address.port)
    account = ServerAccount(None, pids)

    def shown(_point: Point, share: float, _now: Sequence[LoadProgress]) -> None:
        show(share)

    result = measure(generators, plan, point, account, shown)
    if not result.is_whole:
        # Interrupted while it measured: what came until then says nothing.
        raise KeyboardInterrupt
    return cost_of(result, memory_of(pids))


def cost_of(result: PointResult, memory_bytes: float) -> Cost:
    """Return the cost. Where too few answers came to tell a quantile, the slowest stands for it.

    Raises Unavailable if there is no latency: the load generator was at its limit.
    """
    if result.latency is None:
        raise Unavailable(f"{result.verdict.reason}: settings cannot be told apart")
    found = {}
    for quantile in QUANTILES:
        estimate = result.latency.percentiles.get(quantile)
        found[quantile] = (estimate.value if estimate else result.latency.most_us) / 1e3
    return Cost(result.per_s, found, memory_bytes)


def memory_of(pids: Sequence[int]) -> float:
    """Return the memory that processes have in use, in bytes."""
    total = 0
    for pid in pids:
        # A process may have ended since it was found.
        with suppress(OSError, ValueError, IndexError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * system.PAGE_BYTES
    return float(total)
