"""What `inferd route` costs: CPU per request of HAProxy and two servers, beside one server alone.

    python bench/route.py [--rounds 5] [--seconds 2] [--connections 16] [--threads 1]

One server alone, and two behind a route, are up at once and are asked by turns, with a small
request over JSON and over gRPC. CPU is that of all processes: of the servers, of HAProxy, and of
the route itself, whose looks at the places are part of it. The ratio is that of each round, as
medians.
"""

import argparse
import json
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

CASES = {Case("json", "simple"): 3.5, Case("grpc", "simple"): 4.8}
"""The cases, each with the most that it may cost, as a multiple of one server alone."""


@dataclass
class Figures:
    """What the turns of one case gave, in microseconds of CPU for a request."""

    alone: list[float] = field(default_factory=list)
    routed: list[float] = field(default_factory=list)
    haproxy: list[float] = field(default_factory=list)
    bad: int = 0

    @property
    def ratios(self) -> list[float]:
        """Routed to alone, by round."""
        return [mine / base for mine, base in zip(self.routed, self.alone, strict=True)]


def spread(values: list[float], digits: int = 1) -> str:
    """Return the median with the smallest and the largest."""
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({least:.{digits}f}-{most:.{digits}f})"


def haproxy_of(pid: int) -> int:
    """Return the process of HAProxy that a route has started."""
    [found] = [one for one in servers.family(pid) if one != pid]
    return found


class Bench:
    """One server alone, and two behind a route."""

    def __init__(self, folder: Path, stack: ExitStack, threads: int) -> None:
        write_model(folder / "models", "simple", SIMPLE_CONFIG, simple_model())
        self.alone, *self._places = (
            stack.enter_context(servers.run_inferd(folder / "models", folder, label=f"s{number}"))
            for number in range(3)
        )
        rows = [
            {"host": servers.HOST, "http_port": one.port, "grpc_port": one.grpc_port}
            for one in self._places
        ]
        (folder / "places.json").write_text(json.dumps({"places": rows}))
        ports = servers.free_port(), servers.free_port()
        command = [sys.executable, "-m", "inferd", "route", f"--places={folder / 'places.json'}"]
        command += [f"--http-port={ports[0]}", f"--grpc-port={ports[1]}", "--metrics-port=0"]
        command += [f"--threads={threads}", f"--address={servers.HOST}"]
        self.route = stack.enter_context(
            servers.run_server("route", command, ports, folder / "route.log")
        )
        self._haproxy = haproxy_of(self.route.pid)

    def measure(self, case: Case, connections: int, seconds: int, into: Figures) -> None:
        """Take one turn of each."""
        row = load.measure_fixed(self.alone, case, MODELS[case.kind], connections, seconds)
        into.alone.append(row.cpu_us)
        before, haproxy_s = self._cpu_s(), servers.own_cpu_seconds(self._haproxy)
        routed = load.measure_fixed(self.route, case, MODELS[case.kind], connections, seconds)
        count = max(1, routed.requests)
        into.routed.append((self._cpu_s() - before) / count * 1e6)
        into.haproxy.append((servers.own_cpu_seconds(self._haproxy) - haproxy_s) / count * 1e6)
        into.bad += row.bad + routed.bad

    def _cpu_s(self) -> float:
        return sum(servers.cpu_seconds(one.pid) for one in (self.route, *self._places))


def main() -> int:
    """Print a row for each case; 1 if an answer was wrong or it costs too much."""
    options = parse_options()
    figures = {case: Figures() for case in CASES}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        bench = Bench(Path(folder), stack, options.threads)
        for number in range(options.rounds + 1):
            for case in CASES:
                into = figures[case] if number else Figures()  # 0 warms up
                bench.measure(case, options.connections, options.seconds, into)
            print(f"  round {number} of {options.rounds}", file=sys.stderr, flush=True)
    print("| case | alone, µs | routed, µs | of it HAProxy, µs | ratio | most |")
    print("| --- | --- | --- | --- | --- | --- |")
    for case, one in figures.items():
        print(
            f"| {case.name} | {spread(one.alone)} | {spread(one.routed)} | {spread(one.haproxy)} | "
            f"{spread(one.ratios, 2)} | {CASES[case]} |"
        )
    is_too_much = any(statistics.median(one.ratios) > CASES[case] for case, one in figures.items())
    return int(is_too_much or any(one.bad for one in figures.values()))


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
