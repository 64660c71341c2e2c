"""What models in Python cost compared to those in the server, and BLS compared to an ensemble.

    python bench/python.py [--seconds 4] [--repeats 3] [--only WORD] [--out FILE]

CPU time per request, worker processes included, as in `run.py`. `simple` is a sum and a difference
of 16 numbers, compared to ONNX Runtime in the server; `identity` returns 600 KB, compared to the
server's own backend. A pipeline is a model in Python that calls three others in sequence (BLS); the
ensemble has the same three steps. A pipeline should cost at most twice as much. If
`make bench-peers` has installed Triton, it runs the same model.py files in the same run. All rows
and servers are measured by turns; medians count.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import make_models
import numpy as np
import python_models
from cases import Case, encode, make_inputs
from load import Row, check_once, measure
from servers import Server, has_triton, run_inferd, run_triton

TRITON = Path(__file__).resolve().parent.parent / ".venv-triton"
PIPELINE_LIMIT = 2.0
CLIENTS = (1, 4)
SIDE_BY_SIDE = f"pipeline x{CLIENTS[-1]}"
"""One instance runs one pipeline at a time; these overlap, as the requests of an ensemble do."""

TRITON_LIMITS = {"simple": 1.0, "identity": 0.6}
"""As a multiple of what Triton takes for the same model.py."""

Rows = dict[str, dict[str, list[Row]]]
"""Name of the row -> label of the server -> measurements."""

STEPS = ["step_1", "step_2", "step_3"]
IN_SERVER = {"simple": "simple", "identity": "identity_fp32"}
ELEMENTS = {"600 KB": 150_000, "64 B": 16}


def write_models(repository: Path) -> None:
    """Write the models for this server: all of them."""
    simple = make_models.simple_model()
    make_models.write_model(repository, "simple", make_models.SIMPLE_CONFIG, simple)
    make_models.write_model(repository, "identity_fp32", make_models.IDENTITY_CONFIG, None)
    write_python_models(repository)


def write_python_models(repository: Path) -> None:
    """Write the models in Python, and the ensemble of them."""
    python_models.write_python_simple(repository, "python_simple")
    for name in ("python_identity", *STEPS):
        python_models.write_python_identity(repository, name)
    python_models.write_pipeline(repository, "pipeline", STEPS)
    python_models.write_pipeline(repository, "pipelines", STEPS, instance_count=CLIENTS[-1])
    python_models.write_ensemble(repository, "ensemble", STEPS)


def rows_of() -> Iterator[tuple[str, Case, str, int, int]]:
    """Yield name, case, model, size and connections of each row."""
    for protocol in ("bin", "grpc"):
        for kind, size in (("simple", 1), ("identity", 150_000)):
            for label, model in (("server", IN_SERVER[kind]), ("python", f"python_{kind}")):
                for clients in (1, 16):
                    name = f"{protocol} {kind} {label} {clients}"
                    yield name, Case(protocol, kind), model, size, clients
    for size_text, size in ELEMENTS.items():
        case = Case("bin", "identity")
        for model in ("ensemble", "pipeline"):
            for clients in CLIENTS:
                yield f"{model} {size_text} {clients}", case, model, size, clients
        yield f"{SIDE_BY_SIDE} {size_text} {CLIENTS[-1]}", case, "pipelines", size, CLIENTS[-1]


def measure_all(servers: list[Server], seconds: int, repeats: int, only: str) -> Rows:
    """Return `repeats` measurements of each row; values are compared once before each."""
    rows: Rows = {}
    random = np.random.default_rng(7)
    for repeat in range(repeats):
        for name, case, model, size, clients in rows_of():
            if only not in name:
                continue
            request = encode(case, model, "", make_inputs(case.kind, size, random))
            for server in servers[::-1] if repeat % 2 else servers:
                if server.label == "triton" and model in IN_SERVER.values():
                    continue  # it has no backend for these
                check_once(server, case, request)
                row, _ = measure(server, case, [request], clients, seconds)
                rows.setdefault(name, {}).setdefault(server.label, []).append(row)
    return rows


def cpu_us(rows: Rows, name: str, label: str = "inferd") -> float:
    """Return the median of a row; NaN if it was not measured."""
    some = rows.get(name, {}).get(label)
    return statistics.median(row.cpu_us for row in some) if some else math.nan


def report(rows: Rows) -> bool:
    """Print medians and ratios; return whether no answer failed."""
    print(f"{'row':28}{'server':8}{'CPU us':>9}{'p50 us':>9}{'req/s':>9}")
    for name, by_server in rows.items():
        for label, some in by_server.items():
            p50_us = statistics.median(row.p50_us for row in some)
            rate = statistics.median(row.requests_per_s for row in some)
            mark = " busy" * any(row.is_noisy for row in some)
            mark += " BAD" * any(row.bad for row in some)
            us = cpu_us(rows, name, label)
            print(f"{name:28}{label:8}{us:9.1f}{p50_us:9.1f}{rate:9.1f}{mark}")
    print()
    for name in rows:
        other = name.replace("python", "server").replace(SIDE_BY_SIDE, "ensemble")
        other = other.replace("pipeline", "ensemble")
        if other != name and other in rows:
            limit = PIPELINE_LIMIT if name.startswith("pipeline") else None
            print_ratio(name, cpu_us(rows, name) / cpu_us(rows, other), other, limit)
    print()
    for name in rows:
        if "server" not in name:
            limit = next((TRITON_LIMITS[kind] for kind in TRITON_LIMITS if kind in name), None)
            ratio = cpu_us(rows, name) / cpu_us(rows, name, "triton")
            print_ratio(name, ratio, "Triton", limit)
    return not any(row.bad for by in rows.values() for some in by.values() for row in some)


def print_ratio(name: str, ratio: float, other: str, limit: float | None) -> None:
    """Print a row's ratio to `other`, and whether it is within `limit`."""
    if math.isnan(ratio):
        print(f"{name:28}   -    {other} was not measured")
        return
    verdict = f"(limit {limit:g}: {'met' if ratio <= limit else 'missed'})" if limit else ""
    print(f"{name:28}{ratio:6.2f} x {other:28}{verdict}")


def main() -> int:
    """Measure, print, and write all figures as JSON if asked; return 1 if an answer failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="only rows with this in their names")
    parser.add_argument("--triton", type=Path, default=TRITON, help="the environment it is in")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        work = Path(name)
        write_models(work / "models")
        servers = [stack.enter_context(run_inferd(work / "models", work))]
        if has_triton(options.triton):
            write_python_models(work / "python")
            servers.append(stack.enter_context(run_triton(options.triton, work / "python", work)))
        else:
            print("Triton is not installed: make bench-peers does that")
        rows = measure_all(servers, options.seconds, options.repeats, options.only)
    is_well = report(rows)
    if options.out:
        document = {
            name: {label: [asdict(row) for row in some] for label, some in by_server.items()}
            for name, by_server in rows.items()
        }
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
