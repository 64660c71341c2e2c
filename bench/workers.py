"""What more processes cost and give: CPU per request, requests per second, memory.

    python bench/workers.py [--processes 1 2 4 8] [--rounds 5] [--seconds 2] [--connections 8]

For each number of processes a server with small models is started; all are up at once and are asked
by turns, with --connections for each process. So a process always has as many, and the ratio to one
process shows what being several costs. Requests per second show the gain only where the machine has
cores left beside those of the load. The supervisor's share and the memory of all processes (PSS:
shared pages are counted once) are in the last columns. By default 1, 2, 4, ... up to the processors
that there are, at least 2.
"""

import argparse
import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import load
import servers
from cases import MODELS, Case
from make_models import SIMPLE_CONFIG, simple_model, write_model

CASES = (Case("json", "simple"), Case("bin", "simple"), Case("grpc", "simple"))


@dataclass
class Figures:
    """What the turns of one server and one case gave."""

    cpu_us: list[float] = field(default_factory=list)
    requests_per_s: list[float] = field(default_factory=list)
    supervisor_us: list[float] = field(default_factory=list)
    bad: int = 0


def proportional_bytes(pid: int) -> int:
    """Return the memory of `pid` and its descendants, each shared page counted once."""
    total = 0
    for member in servers.family(pid):
        for line in Path(f"/proc/{member}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def measure(
    server: servers.Server, case: Case, connections: int, seconds: int, into: Figures
) -> None:
    """Take one turn."""
    before = servers.own_cpu_seconds(server.pid)
    row = load.measure_fixed(server, case, MODELS[case.kind], connections, seconds)
    supervisor_s = servers.own_cpu_seconds(server.pid) - before
    into.cpu_us.append(row.cpu_us)
    into.requests_per_s.append(row.requests_per_s)
    into.supervisor_us.append(supervisor_s / max(1, row.requests) * 1e6)
    into.bad += row.bad


def spread(values: list[float]) -> str:
    """Return the median with the smallest and the largest."""
    return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


def main() -> int:
    """Print a row for each case and number of processes; 1 if an answer was wrong."""
    options = parse_options()
    counts = options.processes or default_counts()
    figures = {(case.name, count): Figures() for case in CASES for count in counts}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        repository, work = Path(folder) / "models", Path(folder)
        write_model(repository, "simple", SIMPLE_CONFIG, simple_model())
        running = {
            count: stack.enter_context(
                servers.run_inferd(
                    repository, work, flags=[f"--workers={count}"], label=f"{count} processes"
                )
            )
            for count in counts
        }
        for number in range(options.rounds + 1):
            for case in CASES:
                for count in counts[::-1] if number % 2 else counts:
                    into = figures[case.name, count] if number else Figures()  # 0 warms up
                    connections = options.connections * count
                    measure(running[count], case, connections, options.seconds, into)
            print(f"  round {number} of {options.rounds}", file=sys.stderr, flush=True)
        memory = {count: proportional_bytes(one.pid) for count, one in running.items()}
    report(counts, figures, memory)
    return int(any(one.bad for one in figures.values()))


def report(
    counts: list[int], figures: dict[tuple[str, int], Figures], memory: dict[int, int]
) -> None:
    """Print the table."""
    print("| case | processes | CPU µs per request | ratio | requests/s | supervisor µs | MB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for case in CASES:
        first = figures[case.name, counts[0]]
        for count in counts:
            one = figures[case.name, count]
            ratios = [mine / base for mine, base in zip(one.cpu_us, first.cpu_us, strict=True)]
            supervisor = statistics.median(one.supervisor_us) if count > 1 else 0.0
            print(
                f"| {case.name} | {count} | {spread(one.cpu_us)} | "
                f"{statistics.median(ratios):.2f} | {statistics.median(one.requests_per_s):.0f} | "
                f"{supervisor:.2f} | {memory[count] / 1e6:.0f} |"
            )


def default_counts() -> list[int]:
    """Return 1, 2, 4, ... up to the processors there are, at least 1 and 2."""
    counts = [1, 2]
    while counts[-1] * 2 <= len(os.sched_getaffinity(0)):
        counts.append(counts[-1] * 2)
    return counts


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--processes", type=int, nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--connections", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
