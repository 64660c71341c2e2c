"""Compares two builds of this server, measured by turns in one run.

    python bench/compare.py OLD_PYTHON NEW_PYTHON [--rounds 10] [--seconds 1] [--case bin/simple]

Each argument is the Python of an environment in which a build is installed. For every row of
`bench/run.py`, and for the rows whose requests are all different, each round measures both builds
right after each other, in the next round the other one first, and gives one ratio, new / old.
Prints the median ratio of each row with its 95 % interval (bootstrap over the rounds), and the
same for the start and the idle memory. Ends with 1 if an answer was wrong, or if the lower end of a
row's interval is above --limit: then the new build costs more, beyond doubt.
"""

import argparse
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import cases
import load
import make_models
import numpy as np
import servers
from cases import Case
from servers import Server

WORK = Path(__file__).resolve().parent / "out"
VARIED_CONNECTIONS = 16
START_ROUNDS = 5
RESAMPLES = 10_000

Measure = Callable[[Server], float]
"""Returns the CPU microseconds per request of one build."""


@dataclass
class Comparison:
    """One row: what both builds took in each round."""

    name: str
    old: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)

    def ratio(self) -> tuple[float, float, float]:
        """Return the median of new / old and the ends of its 95 % interval."""
        ratios = np.array(self.new) / np.array(self.old)
        random = np.random.default_rng(7)
        medians = np.median(random.choice(ratios, (RESAMPLES, len(ratios))), axis=1)
        low, high = np.percentile(medians, [2.5, 97.5])
        return float(np.median(ratios)), float(low), float(high)

    def line(self) -> str:
        """Return the row of the table."""
        ratio, low, high = self.ratio()
        old, new = statistics.median(self.old), statistics.median(self.new)
        return f"| {self.name} | {old:.1f} | {new:.1f} | {ratio:.3f} | {low:.3f}-{high:.3f} |"


def check_answer(case: Case, row: load.Row) -> float:
    """Return the figure of `row`. Exits if an answer was wrong or lost."""
    if row.bad:
        sys.exit(f"{row.bad} of {row.requests} answers to {case.name} were wrong, from {row.label}")
    return row.cpu_us


def steady(case: Case, connections: int, seconds: int) -> Measure:
    """Return a measurement of one request that is sent again and again."""
    model = cases.MODELS[case.kind]

    def measure(server: Server) -> float:
        return check_answer(case, load.measure_fixed(server, case, model, connections, seconds))

    return measure


def varied(case: Case, twin: str, seconds: int) -> Measure:
    """Return a measurement of requests that differ in id, model, size and values."""
    models = [cases.MODELS[case.kind], twin]
    sizes = cases.SIZES[case.kind]

    def measure(server: Server) -> float:
        requests = [one for size in sizes for one in load.same_size_requests(case, models, size)]
        row, _ = load.measure(server, case, requests, VARIED_CONNECTIONS, seconds)
        return check_answer(case, row)

    return measure


def rows_of(chosen: list[Case], repository: Path, seconds: int) -> dict[str, tuple[Case, Measure]]:
    """Return the measurement of each row by its name."""
    rows = {}
    for case in chosen:
        for connections in case.concurrencies:
            rows[f"{case.name} x{connections}"] = (case, steady(case, connections, seconds))
    for case in chosen:
        if not case.shape:
            twin = f"{case.kind}_twin"
            if not (repository / twin).exists():
                make_models.write_twin(repository, cases.MODELS[case.kind], twin)
            rows[f"{case.name} varied"] = (case, varied(case, twin, seconds))
    return rows


def compare_rows(
    pythons: tuple[str, str], chosen: list[Case], rounds: int, seconds: int
) -> list[Comparison]:
    """Measure both builds by turns."""
    repository = WORK / "models"
    rows = rows_of(chosen, repository, seconds)
    comparisons = {name: Comparison(name) for name in rows}
    with ExitStack() as stack:
        old, new = (
            stack.enter_context(servers.run_inferd(repository, WORK, python=python, label=label))
            for python, label in zip(pythons, ("old", "new"), strict=True)
        )
        for number in range(rounds + 1):
            for name, (_, measure) in rows.items():
                row = comparisons[name]
                turns = [(old, row.old), (new, row.new)]
                for server, figures in turns[::-1] if number % 2 else turns:
                    figure = measure(server)
                    if number:  # the first round warms up
                        figures.append(figure)
            print(f"  round {number} of {rounds}", flush=True)
    return list(comparisons.values())


def compare_start(pythons: tuple[str, str]) -> list[Comparison]:
    """Measure the start and the idle memory of both builds, with one small model."""
    small = WORK / "small"
    make_models.write_model(small, "simple", make_models.SIMPLE_CONFIG, make_models.simple_model())
    ready, resident = Comparison("start to ready, ms"), Comparison("idle memory, MB")
    for _ in range(START_ROUNDS):
        for python, label in zip(pythons, ("old", "new"), strict=True):
            with servers.run_inferd(small, WORK, python=python, label=label) as server:
                time.sleep(0.5)  # for what still happens after ready
                getattr(ready, label).append(server.ready_s * 1000)
                getattr(resident, label).append(servers.resident_bytes(server.pid) / 2**20)
    return [ready, resident]


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    names = {case.name for case in cases.ALL_CASES}
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", help="the Python of the old build's environment")
    parser.add_argument("new", help="the Python of the new build's environment")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=1, help="of each measurement")
    parser.add_argument("--case", action="append", choices=sorted(names), help="default: all")
    parser.add_argument("--limit", type=float, default=1.03, help="of the lower end of a row")
    return parser.parse_args()


def main() -> int:
    """Measure and print; return 1 if a row costs more."""
    options = parse_options()
    chosen = [case for case in cases.ALL_CASES if case.name in (options.case or case.name)]
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    make_models.write_models(WORK / "models")
    pythons = (options.old, options.new)
    rows = compare_start(pythons)
    rows += compare_rows(pythons, chosen, options.rounds, options.seconds)
    print("\n| row | old us | new us | new / old | 95 % interval |\n| --- |" + " ---: |" * 4)
    for row in rows:
        print(row.line())
    worse = [row.name for row in rows if row.ratio()[1] > options.limit]
    print(f"\nrows that cost over {options.limit - 1:.0%} more, beyond doubt: {worse or 'none'}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
