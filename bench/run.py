"""make bench: this server, a C floor, grpcio and, if installed, MLServer, by turns in one run.

Prints one table and writes it as JSON to bench/results/. A target is a ratio, because the figures
themselves differ from machine to machine: it is met if CPU per request divided by the floor's in
the same run is at most the target divided by the floor on the reference machine.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import secrets
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import cases
import load
import make_models
import numpy as np
import servers
from cases import Case
from load import Row, Varied
from servers import Server

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
WORK = HERE / "out"
MLSERVER = HERE.parent / ".venv-peers" / "bin" / "mlserver"
VARIED_CONCURRENCY = 16
VARIED_LIMIT = 0.15
READY_LIMIT_S = 0.5
RESIDENT_LIMIT_MB = 90
CONVNET_LIMIT = 1.03  # times bare ONNX Runtime
REGIONS_LIMIT = 1 / 3  # of the same tensors through a socket
TRTIS_LIMITS = {"simple": 1.4, "identity": 1.1}  # times V2 with the same tensors, bin/...
TOOLS = {
    "wrk": "wrk (Debian: apt-get install wrk)",
    "h2load": "h2load (Debian: apt-get install nghttp2-client)",
    "cc": "a C compiler (Debian: apt-get install gcc libc6-dev)",
}

REFERENCE_FLOOR_US = {"simple": {1: 22, 16: 5}, "identity": {1: 153, 16: 117}}
"""The floor's CPU per request on the reference machine, by concurrency."""

TARGETS_US = {
    "json/simple": {1: 43, 16: 22},
    "bin/simple": {1: 43, 16: 22},
    "grpc/simple": {1: 46, 16: 22},
    "bin/identity": {1: 160, 16: 150},
    "json/identity": {1: 9000, 16: 9000},
    "grpc/identity": {1: 320, 16: 270},
}
"""The server's targets there. Other rows have none: they are for information."""

PEERS = ("mlserver", "grpcio", "bare aio", "bare sync")
"""The other servers: grpcio is this server on grpcio's transport, bare is grpcio alone."""


@dataclass(frozen=True)
class Settings:
    """How long and how often each row is measured."""

    seconds: int
    repeats: int


@dataclass
class Verdict:
    """One line of the table: medians over the repeats."""

    case: str
    concurrency: int
    cpu_us: float
    spread_us: tuple[float, float]
    floor_us: float
    floor_name: str
    limit: float | None
    peers_us: dict[str, float]
    requests_per_s: float
    p50_us: float
    p99_us: float
    bad: int
    noisy: int

    @property
    def ratio(self) -> float:
        """CPU per request as a multiple of the floor's."""
        return self.cpu_us / self.floor_us

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None if there is none."""
        return None if self.limit is None else self.ratio <= self.limit and not self.bad


def check_tools() -> None:
    """Exit and say what to install if a program is missing."""
    missing = [advice for tool, advice in TOOLS.items() if shutil.which(tool) is None]
    if missing:
        sys.exit("make bench needs " + ", ".join(missing))


def measure_start(repository: Path, repeats: int) -> dict[str, float]:
    """Return seconds from start to ready and idle resident megabytes, with one small ONNX model."""
    ready_s, resident_mb = [], []
    for _ in range(repeats):
        with servers.run_inferd(repository, WORK) as server:
            time.sleep(0.5)  # for what still happens after ready
            ready_s.append(server.ready_s)
            resident_mb.append(servers.resident_bytes(server.pid) / 2**20)
    return {
        "start_to_ready_s": statistics.median(ready_s),
        "idle_resident_mb": statistics.median(resident_mb),
    }


class Bench:
    """The running servers and their measurements."""

    def __init__(self, repository: Path, settings: Settings, only: list[Case]) -> None:
        self.rows: list[Row] = []
        self.bare_onnx_us: list[float] = []
        self.varied: list[Varied] = []
        self._repository = repository
        self._settings = settings
        self._cases = only
        self._twins = {kind: f"{kind}_{secrets.token_hex(3)}" for kind in cases.MODELS}
        for kind, twin in self._twins.items():
            make_models.write_twin(repository, cases.MODELS[kind], twin)

    def run(self) -> None:
        """Start all servers and measure them by turns."""
        floor = servers.compile_floor("cc", WORK)
        with ExitStack() as stack:
            inferd = stack.enter_context(servers.run_inferd(self._repository, WORK))
            peers = [inferd]
            if any(case.protocol == "grpc" for case in self._cases):
                on_grpcio = servers.run_inferd(self._repository, WORK, grpc_transport="grpcio")
                peers.append(stack.enter_context(on_grpcio))
                for kind in ("aio", "sync"):
                    bare = servers.run_bare_grpcio(kind, self._repository, WORK)
                    peers.append(stack.enter_context(bare))
            if MLSERVER.exists():
                peers.append(
                    stack.enter_context(servers.run_mlserver(MLSERVER, self._repository, WORK))
                )
            floors = {
                case: stack.enter_context(servers.run_floor(floor, self._first(inferd, case), WORK))
                for case in self._cases
                if case.kind in REFERENCE_FLOOR_US
                and not case.uses_regions
                and case.protocol != "trtis"
            }
            for repeat in range(self._settings.repeats):
                for case in self._cases:
                    self._measure_row(repeat, case, peers, floors.get(case))
            for _ in range(self._settings.repeats):
                for case in self._plain_cases():
                    self._measure_varied(inferd, case)

    def _plain_cases(self) -> list[Case]:
        return [case for case in self._cases if not case.shape]

    def _first(self, inferd: Server, case: Case) -> int:
        """Check the answer to a case and return its size; this also warms up the model."""
        inputs = cases.make_inputs(case.kind, cases.SIZES[case.kind][0], np.random.default_rng(7))
        request = cases.encode(case, cases.MODELS[case.kind], "", inputs)
        return load.check_once(inferd, case, request)

    def _measure_row(
        self, repeat: int, case: Case, peers: list[Server], floor: Server | None
    ) -> None:
        """Measure one case at each concurrency; the order of servers alternates by `repeat`."""
        takers = [peer for peer in peers if _can(peer, case)]
        takers += [floor] if floor else []
        takers = takers[::-1] if repeat % 2 else takers
        if case.kind == "convnet":
            self._measure_bare_onnx()
        for connections in case.concurrencies:
            for server in takers:
                row = self._fixed(server, case, connections)
                self.rows.append(row)
                print(
                    f"  {repeat + 1}/{self._settings.repeats} {case.name} x{connections} "
                    f"{server.label}: {row.cpu_us:.1f} us{' (machine busy)' * row.is_noisy}",
                    flush=True,
                )

    def _fixed(self, server: Server, case: Case, connections: int) -> Row:
        model, seconds = cases.MODELS[case.kind], self._settings.seconds
        if server.label == "floor":
            return load.measure_floor(server, case, model, connections, seconds)
        return load.measure_fixed(server, case, model, connections, seconds)

    def _measure_bare_onnx(self) -> None:
        model_file = self._repository / cases.MODELS["convnet"] / "1" / "model.onnx"
        command = [sys.executable, str(HERE / "bare_onnx.py"), str(model_file)]
        output = subprocess.run(
            [*command, str(self._settings.seconds)], check=True, capture_output=True, text=True
        ).stdout
        self.bare_onnx_us.append(float(output))

    def _measure_varied(self, inferd: Server, case: Case) -> None:
        models = [cases.MODELS[case.kind], self._twins[case.kind]]
        result = load.measure_varied(
            inferd, case, models, VARIED_CONCURRENCY, self._settings.seconds
        )
        self.varied.append(result)
        print(f"  varied {case.name}: {result.difference:+.0%}", flush=True)

    def verdicts(self) -> list[Verdict]:
        """Return the table, a line for each case and concurrency."""
        return [self._verdict(case, count) for case in self._cases for count in case.concurrencies]

    def _verdict(self, case: Case, connections: int) -> Verdict:
        mine = self._select("inferd", case.name, connections)
        floor_name, floor_us, limit = self._floor(case, connections)
        peers = {name: self._select(name, case.name, connections) for name in PEERS}
        cpu_us = [row.cpu_us for row in mine]
        return Verdict(
            case=case.name,
            concurrency=connections,
            cpu_us=statistics.median(cpu_us),
            spread_us=(min(cpu_us), max(cpu_us)),
            floor_us=floor_us,
            floor_name=floor_name,
            limit=limit,
            peers_us={
                name: statistics.median(row.cpu_us for row in rows)
                for name, rows in peers.items()
                if rows
            },
            requests_per_s=statistics.median(row.requests_per_s for row in mine),
            p50_us=statistics.median(row.p50_us for row in mine),
            p99_us=statistics.median(row.p99_us for row in mine),
            bad=sum(row.bad for row in mine),
            noisy=sum(row.is_noisy for row in mine),
        )

    def _floor(self, case: Case, connections: int) -> tuple[str, float, float | None]:
        """Return the name and figure that a row is compared with, and the highest allowed ratio."""
        if case.kind == "convnet":
            return "bare ONNX Runtime", statistics.median(self.bare_onnx_us), CONVNET_LIMIT
        if case.uses_regions:
            rows = self._select("inferd", f"{case.protocol}/{case.kind}", connections)
            limit = REGIONS_LIMIT if case.shape == "regions" else None
            return "sockets", statistics.median(row.cpu_us for row in rows), limit
        if case.protocol == "trtis":
            rows = self._select("inferd", f"bin/{case.kind}", connections)
            return "bin", statistics.median(row.cpu_us for row in rows), TRTIS_LIMITS[case.kind]
        # The floor has the row's own body sizes, except for 150,000 numbers as text: the reference
        # floor is known for their 600 KB in binary.
        name = "bin/identity" if case.name == "json/identity" else case.name
        rows = self._select("floor", name, connections)
        rows = rows or self._select("floor", case.name, connections)
        limit = None
        if case.name in TARGETS_US:
            reference_us = REFERENCE_FLOOR_US[case.kind][connections]
            limit = TARGETS_US[case.name][connections] / reference_us
        return "floor", statistics.median(row.cpu_us for row in rows), limit

    def _select(self, label: str, case: str, connections: int) -> list[Row]:
        wanted = (label, case, connections)
        return [row for row in self.rows if (row.label, row.case, row.concurrency) == wanted]

    def varied_summary(self) -> dict[str, float]:
        """Return for each case how much more varied requests cost, as a fraction.

        The lowest figure of either side counts: noise only ever adds.
        """
        summary = {}
        for case in self._plain_cases():
            mine = [each for each in self.varied if each.case == case.name]
            steady_us = min(each.steady_us for each in mine)
            summary[case.name] = min(each.varied_us for each in mine) / steady_us - 1
        return summary


def _can(peer: Server, case: Case) -> bool:
    """Return whether `peer` takes part in `case`.

    MLServer has no binary extension; the servers on grpcio are there for gRPC only.
    """
    if case.uses_regions:
        return peer.label == "inferd"
    if peer.label in ("grpcio", "bare aio", "bare sync"):
        return case.protocol == "grpc"
    return peer.label == "inferd" or case.protocol not in ("bin", "trtis")


def is_optimised() -> bool:
    """Return whether this Python was built with its own profile, as distributions build it."""
    arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
    return "--enable-optimizations" in arguments or sys.base_prefix == "/usr"


def is_compiled() -> bool:
    """Return whether the request path of this inferd is compiled."""
    origin = getattr(importlib.util.find_spec("inferd.engine.engine"), "origin", None)
    return str(origin).endswith(".so")


def interpreter() -> str:
    """Return which Python runs the server, and whether its figures can be trusted."""
    name = f"{platform.python_implementation()} {platform.python_version()}"
    name += ", the request path compiled" if is_compiled() else ", the request path not compiled"
    if is_optimised():
        return f"The server runs on {name}."
    return (
        f"The server runs on {name}, built without --enable-optimizations: it is 10 to 40 % slower"
        " so. Measure with a distribution's: make clean bench PYTHON=/usr/bin/python3"
    )


def machine() -> dict[str, object]:
    """Return a description of what the figures were measured on."""
    info = Path("/proc/cpuinfo").read_text()
    models = [line.partition(":")[2].strip() for line in info.splitlines() if "model name" in line]
    packages = ("inferd", "numpy", "onnxruntime", "uvloop", "httptools", "orjson", "protobuf")
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "python_is_optimised": is_optimised(),
        "packages": {name: importlib.metadata.version(name) for name in packages},
    }


def table(bench: Bench) -> str:
    """Return the verdicts as a Markdown table."""
    lines = [
        "| case | conc | CPU us/request (spread) | floor us | ratio | target | verdict | "
        + "".join(f"{name} us | " for name in PEERS)
        + "req/s | p50 us | p99 us |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |" + " ---: |" * (len(PEERS) + 3),
    ]
    for each in bench.verdicts():
        low, high = each.spread_us
        verdict = {True: "met", False: "missed", None: "-"}[each.met]
        peers = "".join(
            f" {each.peers_us[name]:.0f} |" if name in each.peers_us else " - |" for name in PEERS
        )
        lines.append(
            f"| {each.case} | {each.concurrency} | {each.cpu_us:.1f} ({low:.1f}-{high:.1f})"
            f"{' busy' * bool(each.noisy)} | {each.floor_us:.1f} | {each.ratio:.2f} "
            f"| {'-' if each.limit is None else f'{each.limit:.2f}'} "
            f"| {'BAD ANSWERS' if each.bad else verdict} |{peers}"
            f" {each.requests_per_s:.0f} | {each.p50_us:.0f} | {each.p99_us:.0f} |"
        )
    return "\n".join(lines)


def report(bench: Bench, start: dict[str, float]) -> str:
    """Return everything that is printed at the end."""
    ready_s, resident_mb = start["start_to_ready_s"], start["idle_resident_mb"]
    lines = [
        table(bench),
        "",
        interpreter(),
        f"start to ready, one small model: {ready_s:.2f} s"
        f" ({'met' if ready_s <= READY_LIMIT_S else 'missed'}, at most {READY_LIMIT_S} s)",
        f"resident memory, idle, one small model: {resident_mb:.0f} MB"
        f" ({'met' if resident_mb <= RESIDENT_LIMIT_MB else 'missed'},"
        f" at most {RESIDENT_LIMIT_MB} MB)",
        "",
        f"Requests all different (ids, model names, sizes, values), {VARIED_CONCURRENCY} at once,"
        f" against the same sizes unchanged; at most {VARIED_LIMIT:+.0%}:",
    ]
    for name, difference in bench.varied_summary().items():
        checked = sum(each.checked for each in bench.varied if each.case == name)
        within = "ok" if difference <= VARIED_LIMIT else "TOO MUCH"
        lines.append(f"  {name:<14} {difference:+.0%} {within}, {checked} answers compared")
    if any("busy" in line for line in lines[:1]):
        lines += ["", "busy: something else used this machine meanwhile; measure again."]
    return "\n".join(lines)


def save(file: Path, bench: Bench, start: dict[str, float], settings: Settings) -> None:
    """Write all figures as JSON."""
    verdicts = [{**asdict(each), "ratio": each.ratio, "met": each.met} for each in bench.verdicts()]
    document = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "settings": asdict(settings),
        "verdicts": verdicts,
        "start": start,
        "varied": [{**asdict(each), "difference": each.difference} for each in bench.varied],
        "bare_onnx_us": bench.bare_onnx_us,
        "rows": [asdict(row) for row in bench.rows],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document, indent=1) + "\n")


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    names = {case.name for case in cases.ALL_CASES}
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="2 s a run, once, nothing kept")
    parser.add_argument("--seconds", type=int, default=4, help="of each run")
    parser.add_argument("--repeats", type=int, default=5, help="of each row")
    parser.add_argument("--case", action="append", choices=sorted(names), help="default: all")
    return parser.parse_args()


def main() -> int:
    """Measure, print, save; return 1 if an answer was wrong or lost, whatever the speed."""
    options = parse_options()
    check_tools()
    print(interpreter(), flush=True)
    settings = Settings(options.seconds, options.repeats)
    if options.quick:
        settings = Settings(2, 1)
    wanted = set(options.case or [case.name for case in cases.ALL_CASES])
    wanted |= {name.partition("-regions")[0] for name in wanted}  # the rows they are compared with
    only = [case for case in cases.ALL_CASES if case.name in wanted]

    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    make_models.write_models(WORK / "models")
    small = WORK / "small"
    make_models.write_model(small, "simple", make_models.SIMPLE_CONFIG, make_models.simple_model())
    start = measure_start(small, settings.repeats)
    bench = Bench(WORK / "models", settings, only)
    bench.run()

    print("\n" + report(bench, start))
    partial = options.quick or options.case
    now = datetime.now(UTC)
    file = WORK / "last.json" if partial else RESULTS / f"{now:%Y-%m-%d}.json"
    save(file, bench, start, settings)
    print(f"\nAll figures: {file.relative_to(HERE.parent)}")
    wrong = [text for each in bench.varied for text in each.wrong]
    bad = sum(each.bad for each in bench.varied) + sum(each.bad for each in bench.verdicts())
    for text in wrong[:10]:
        print(f"WRONG: {text}", file=sys.stderr)
    return 1 if wrong or bad else 0


if __name__ == "__main__":
    sys.exit(main())
