"""Kills the worker of one model in Python once a second, while four models are under load.

    python bench/soak_workers.py [--seconds 60] [--connections 8] [--seed 1]

Half of the connections speak HTTP, JSON and binary, half gRPC; each answer is checked. Fails if one
of the other three models loses a request, if a kill loses more than the one request that the worker
was executing, if an error says anything other than that its worker was killed, or if the number of
processes, memory, open files or threads grows. A worker is killed only after it has answered: one
that never comes up is a different matter.
"""

import argparse
import asyncio
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import cases
import grpc
import numpy as np
import servers
from python_models import write_python_simple
from servers import Server
from soak_repository import ANSWER_TIMEOUT_S, Grpc, Http

MODELS = ("killed", "calm_1", "calm_2", "calm_3")
VICTIM = MODELS[0]
PERIOD_S = 1.0
WARM_S = 3.0
SETTLE_S = 30.0
RESIDENT_GROWTH_LIMIT_MB = 32
FILES_GROWTH_LIMIT = 4
THREADS_GROWTH_LIMIT = 4


@dataclass
class Tally:
    """The outcomes by model."""

    right: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    kills_count: int = 0
    slowest_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(MODELS, 0.0))


@dataclass
class Use:
    """The resources that the server and its workers use."""

    memory_mb: float
    files_count: int
    threads_count: int
    processes_count: int

    @classmethod
    def of(cls, server: Server) -> "Use":
        """Return the current use; open files and threads are those of the server alone."""
        own = f"/proc/{server.pid}"
        return cls(
            servers.resident_bytes(server.pid) / 2**20,
            len(os.listdir(f"{own}/fd")),
            len(os.listdir(f"{own}/task")),
            len(servers.family(server.pid)),
        )


def workers_of(server: Server, model: str) -> list[int]:
    """Return the worker processes of `model`; its name is their last argument."""
    found = []
    for pid in servers.family(server.pid)[1:]:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            if words[-1].split(b" ")[0] == model.encode():
                found.append(pid)
    return found


def is_fair(outcome: str) -> bool:
    """Return whether this is the expected error for a request whose worker was killed."""
    return outcome.startswith(("HTTP 503", "gRPC UNAVAILABLE")) and "SIGKILL" in outcome


def note(tally: Tally, model: str, inputs: cases.Arrays, outcome: object) -> None:
    """Count one outcome."""
    if isinstance(outcome, dict) and cases.is_right("simple", inputs, outcome):
        tally.right[model] += 1
    elif model == VICTIM and isinstance(outcome, str) and is_fair(outcome):
        tally.lost[model] += 1
    else:
        tally.wrong.append(f"{model}: {outcome!r}")


async def run_connection(server: Server, index: int, tally: Tally, is_over: asyncio.Event) -> None:
    """Send requests to one model, one after the other, until `is_over`."""
    random_ = np.random.default_rng(index)
    model = MODELS[index % len(MODELS)]
    speaks_grpc = index // len(MODELS) % 2 == 1
    number = 0
    async with Grpc(server) if speaks_grpc else Http(server) as connection:
        while not is_over.is_set():
            number += 1
            protocol = "grpc" if speaks_grpc else ("json", "bin")[number % 2]
            inputs = cases.make_inputs("simple", int(random_.integers(1, 9)), random_)
            started = time.monotonic()
            try:
                answer = connection.infer(protocol, model, number, inputs)
                outcome: object = await asyncio.wait_for(answer, ANSWER_TIMEOUT_S)
            except (OSError, EOFError, TimeoutError, grpc.aio.AioRpcError) as error:
                tally.wrong.append(f"{protocol} {model}: lost, {error!r}")
                return
            took_s = time.monotonic() - started
            tally.slowest_s[model] = max(tally.slowest_s[model], took_s)
            note(tally, model, inputs, outcome)


async def until_answers(tally: Tally, more_than: int) -> bool:
    """Wait until VICTIM has more than `more_than` right answers; return whether it has."""
    deadline = time.monotonic() + SETTLE_S
    while tally.right[VICTIM] <= more_than:
        if time.monotonic() > deadline:
            tally.wrong.append(f"{VICTIM}: no answer for {SETTLE_S:g} s")
            return False
        await asyncio.sleep(0.005)
    return True


async def kill_on(
    server: Server, tally: Tally, options: argparse.Namespace, seen: set[int]
) -> None:
    """Kill the worker at a random moment of every second, until the time is over."""
    random_times = random.Random(options.seed)
    started = time.monotonic()
    for second in range(options.seconds):
        at_s = started + (second + random_times.random()) * PERIOD_S
        await asyncio.sleep(max(0.0, at_s - time.monotonic()))
        if time.monotonic() > started + options.seconds * PERIOD_S:
            return
        pids = workers_of(server, VICTIM)
        seen.update(pids)
        before = tally.right[VICTIM]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                tally.kills_count += 1
        if not await until_answers(tally, before + 1):  # one answer may have been on its way
            return


async def soak(
    server: Server, options: argparse.Namespace, seen: set[int]
) -> tuple[Tally, Use, Use]:
    """Load all models while one is killed; return the tally and the use before and after."""
    tally = Tally()
    is_over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for index in range(options.connections):
            group.create_task(run_connection(server, index, tally, is_over))
        await asyncio.sleep(WARM_S)
        before = Use.of(server)
        await kill_on(server, tally, options, seen)
        await asyncio.sleep(WARM_S)
        after = Use.of(server)
        is_over.set()
    for model in MODELS:
        seen.update(workers_of(server, model))
    return tally, before, after


def report(tally: Tally, before: Use, after: Use, options: argparse.Namespace) -> bool:
    """Print the outcomes and return whether all was well."""
    print(f"{tally.kills_count} kills in {options.seconds} s")
    for model in MODELS:
        slowest = f"slowest {tally.slowest_s[model]:.2f} s"
        print(f"  {model:8}{tally.right[model]:8} right, {tally.lost[model]:3} lost, {slowest}")
    print(f"  wrong {len(tally.wrong)}")
    for what in ("memory_mb", "files_count", "threads_count", "processes_count"):
        first, last = getattr(before, what), getattr(after, what)
        print(f"  {what.replace('_', ' '):16}{first:8.0f} before, {last:8.0f} after")
    for fault in tally.wrong[:10]:
        print(f"  WRONG: {fault}", file=sys.stderr)
    return (
        not tally.wrong
        and all(tally.right[model] for model in MODELS)
        and tally.kills_count >= options.seconds / 3
        and tally.lost[VICTIM] <= tally.kills_count
        and after.memory_mb - before.memory_mb <= RESIDENT_GROWTH_LIMIT_MB
        and after.files_count - before.files_count <= FILES_GROWTH_LIMIT
        and after.threads_count - before.threads_count <= THREADS_GROWTH_LIMIT
        and after.processes_count == before.processes_count
    )


def left_over(seen: set[int]) -> list[int]:
    """Return the workers that still run after at most SETTLE_S."""
    deadline = time.monotonic() + SETTLE_S
    while (left := [pid for pid in seen if Path(f"/proc/{pid}").exists()]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.05)
    return left


def main() -> int:
    """Soak one server; return 1 if something was not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    seen: set[int] = set()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "models"
        for model in MODELS:
            write_python_simple(root, model)
        with servers.run_inferd(root, Path(name)) as server:
            tally, before, after = asyncio.run(soak(server, options, seen))
        is_well = report(tally, before, after, options)
    left = left_over(seen)
    print(f"  of {len(seen)} workers seen {len(left)} are left")
    return 0 if is_well and not left else 1


if __name__ == "__main__":
    sys.exit(main())
