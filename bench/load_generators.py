"""Compares `inferd bench` with perf_analyzer: the same server, the same model, in turns.

    python bench/load_generators.py [--perf-analyzer PROGRAM] [--rounds 3] [--seconds 3]

The model takes 2 ms, one request at a time, without using a core, so that what is compared are the
clocks of the two and not their hunger. Prints the medians of both at 1 to 64 requests at a time
over REST and gRPC, and their ratio, for which the median of the rounds counts; the exit code is 1
if one is more than 5 % off. perf_analyzer is the one that `make test-interop ONLY=perf_analyzer`
installs. On a machine that others use, too, `chrt -r 1` before it (as root) keeps them away.
"""

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / ".venv-interop/perf_analyzer/bin/perf_analyzer"
CONCURRENCIES = (1, 4, 16, 64)
LIMIT = 0.05
APP = """
import time
from typing import Annotated

import inferd
import numpy as np

Rows = Annotated[np.ndarray, inferd.Spec("FP32", [16])]


@inferd.model
def waits(x: Rows) -> Rows:
    time.sleep({seconds})
    return x
"""


def start(folder: Path, wait_s: float) -> tuple["subprocess.Popen[str]", dict[str, str]]:
    """Start a server; return it and its URLs by protocol."""
    app = folder / "app.py"
    app.write_text(APP.format(seconds=wait_s))
    command = [sys.executable, "-m", "inferd", "serve", str(app)]
    command += ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    places = {}
    for line in server.stdout or ():
        if found := re.search(r"(HTTP|gRPC)  (?:http://)?[0-9.]+:(\d+)", line):
            places[found[1].lower()] = f"127.0.0.1:{found[2]}"
        if "ready" in line and len(places) == 2:
            return server, places
    msg = "the server does not become ready"
    raise RuntimeError(msg)


def ours(protocol: str, place: str, concurrency: int, seconds: float) -> float:
    """Return the median in ms that inferd bench measures; NaN where it says that it cannot."""
    command = [sys.executable, "-m", "inferd", "bench", "waits", "--json", "-c", str(concurrency)]
    command += ["--url", f"{protocol}://{place}", "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    [point] = json.loads(done.stdout)["points"]
    if point["latency"] is None:
        print(f"  {protocol} {concurrency}: {point['verdict']['reason']}")
        return float("nan")
    return float(point["latency"]["percentiles"]["p50"]["value"]) / 1e3


def theirs(program: Path, protocol: str, place: str, concurrency: int, seconds: float) -> float:
    """Return the median in ms that perf_analyzer measures."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.csv"
        command = [str(program), "-m", "waits", "-i", protocol, "-u", place, "-f", str(table)]
        command += [f"--concurrency-range={concurrency}", "-p", str(int(seconds * 1000)), "-r", "3"]
        command += ["-s", "1000"]
        libraries = sorted((program.parents[1] / "lib").glob("python*/site-packages/nvidia/*/lib"))
        environ = {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, libraries))}
        subprocess.run(command, env=environ, check=True, capture_output=True)
        [row] = csv.DictReader(table.read_text().splitlines())
    return float(row["p50 latency"]) / 1e3


def main() -> int:
    """Compare; return 1 if a median is too far off."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--perf-analyzer", type=Path, default=PROGRAM)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--wait-ms", type=float, default=2)
    given = parser.parse_args()
    worst = 0.0
    with tempfile.TemporaryDirectory() as name:
        server, places = start(Path(name), given.wait_ms / 1e3)
        try:
            for protocol in ("http", "grpc"):
                for concurrency in CONCURRENCIES:
                    pairs = []
                    for _ in range(given.rounds):
                        where = (protocol, places[protocol], concurrency, given.seconds)
                        pairs.append((ours(*where), theirs(given.perf_analyzer, *where)))
                    ratio = median(a / b for a, b in pairs)
                    worst = max(worst, abs(ratio - 1)) if ratio == ratio else float("inf")
                    both = " / ".join(f"{median(side):.3f}" for side in zip(*pairs, strict=True))
                    print(f"{protocol} {concurrency:3}: {both} ms, {ratio - 1:+.1%}", flush=True)
        finally:
            server.terminate()
            server.wait()
    print(f"the most that a median is off: {worst:.1%}, allowed {LIMIT:.0%}")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
