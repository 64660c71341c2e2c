"""What models in Python cost beside those that run in the server, and BLS beside an ensemble.

    python bench/python.py [--seconds 4] [--repeats 3] [--out FILE]

CPU time per request, worker processes included, as in `run.py`. `simple` is a sum and a difference
of 16 numbers, beside ONNX Runtime in the server; `identity` gives 600 KB back, beside the backend
that does so in the server. A pipeline is a model in Python that calls three others, one after the
other (BLS); the ensemble has the same three steps. A pipeline should cost at most twice as much.
The rows are measured by turns; medians count.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import make_models
import numpy as np
import python_models
from cases import Case, encode, make_inputs
from load import Row, check_once, measure
from servers import Server, run_inferd

PIPELINE_LIMIT = 2.0
STEPS = ["step_1", "step_2", "step_3"]
IN_SERVER = {"simple": "simple", "identity": "identity_fp32"}
ELEMENTS = {"600 KB": 150_000, "64 B": 16}


def write_models(repository: Path) -> None:
    """Write all models there are."""
    simple = make_models.simple_model()
    make_models.write_model(repository, "simple", make_models.SIMPLE_CONFIG, simple)
    make_models.write_model(repository, "identity_fp32", make_models.IDENTITY_CONFIG, None)
    python_models.write_python_simple(repository, "python_simple")
    for name in ("python_identity", *STEPS):
        python_models.write_python_identity(repository, name)
    python_models.write_pipeline(repository, "pipeline", STEPS)
    python_models.write_ensemble(repository, "ensemble", STEPS)


def rows_of() -> Iterator[tuple[str, Case, str, int, int]]:
    """Yield name, case, model, size and connections of each row."""
    for protocol in ("bin", "grpc"):
        for kind, size in (("simple", 1), ("identity", 150_000)):
            for label, model in (("server", IN_SERVER[kind]), ("python", f"python_{kind}")):
                for clients in (1, 16):
                    name = f"{protocol} {kind} {label} {clients}"
                    yield name, Case(protocol, kind), model, size, clients
    for told, size in ELEMENTS.items():
        for model in ("ensemble", "pipeline"):
            for clients in (1, 4):
                yield f"{model} {told} {clients}", Case("bin", "identity"), model, size, clients


def measure_all(server: Server, seconds: int, repeats: int) -> dict[str, list[Row]]:
    """Return what each row cost, as often as asked; each value is compared once before."""
    rows: dict[str, list[Row]] = {}
    random = np.random.default_rng(7)
    for _ in range(repeats):
        for name, case, model, size, clients in rows_of():
            request = encode(case, model, "", make_inputs(case.kind, size, random))
            check_once(server, case, request)
            row, _ = measure(server, case, [request], clients, seconds)
            rows.setdefault(name, []).append(row)
    return rows


def report(rows: dict[str, list[Row]]) -> bool:
    """Print medians and ratios; tell whether no answer failed."""
    cpu_us = {name: statistics.median(row.cpu_us for row in some) for name, some in rows.items()}
    print(f"{'row':28}{'CPU us':>9}{'p50 us':>9}{'req/s':>9}")
    for name, some in rows.items():
        p50_us = statistics.median(row.p50_us for row in some)
        rate = statistics.median(row.requests_per_s for row in some)
        mark = " busy" * any(row.is_noisy for row in some) + " BAD" * any(row.bad for row in some)
        print(f"{name:28}{cpu_us[name]:9.1f}{p50_us:9.1f}{rate:9.1f}{mark}")
    print()
    for name, us in cpu_us.items():
        other = name.replace("python", "server").replace("pipeline", "ensemble")
        if other != name:
            ratio = us / cpu_us[other]
            verdict = ""
            if name.startswith("pipeline"):
                verdict = "met" if ratio <= PIPELINE_LIMIT else "missed"
            print(f"{name:28}{ratio:6.2f} x {other:28}{verdict}")
    return not any(row.bad for some in rows.values() for row in some)


def main() -> int:
    """Measure, print, and write all figures as JSON if asked; return 1 for answers that failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        write_models(Path(name) / "models")
        with run_inferd(Path(name) / "models", Path(name)) as server:
            rows = measure_all(server, options.seconds, options.repeats)
    is_well = report(rows)
    if options.out:
        document = {name: [asdict(row) for row in some] for name, some in rows.items()}
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
