"""Fuzzes all targets side by side, each for some seconds.

    python fuzz/run.py [--seconds 30] [--jobs N] [TARGET...]

What a target has learned is kept in .fuzz/, for the next run to go on from; what it found, an
input that makes it fail, is kept in .fuzz/found/, and the run fails.
"""

import argparse
import hashlib
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PATHS = ("fuzz", "tests/support", "tests/http/h2")
"""Where targets import from, beside the package."""
KEPT = ROOT / ".fuzz"
SLOWEST_S = 10
"""An input that takes longer counts as found: whoever sends it keeps the server from others."""
MOST_MB = 2048
MOST_BYTES = 8192
SLICE_S = 300
"""Then a new process goes on with what was learned: the fuzzer's own memory grows by a kilobyte for
each input of some targets, though not the target's."""
_COVERED = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)")


class Outcome(NamedTuple):
    """What became of one target; `found` is the end of its output if it failed."""

    name: str
    runs: int
    covered: int
    corpus: int
    found: str


def targets() -> list[str]:
    """Return the names of all targets."""
    return sorted(path.stem for path in (HERE / "targets").glob("*.py"))


def write_seeds(name: str) -> Path:
    """Write a target's seeds beside what it has learned; return the folder."""
    folder = KEPT / name
    folder.mkdir(parents=True, exist_ok=True)
    for seed in importlib.import_module(f"targets.{name}").SEEDS:
        (folder / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    return folder


def fuzz(name: str, folder: Path, seconds: int) -> Outcome:
    """Run one target, in a process of its own for each slice of the time."""
    slices = [SLICE_S] * (seconds // SLICE_S) + [seconds % SLICE_S] * (seconds % SLICE_S > 0)
    runs = 0
    outcome = Outcome(name, 0, 0, 0, "")
    for slice_s in slices:
        outcome = _fuzz_slice(name, folder, slice_s)
        runs += outcome.runs
        if outcome.found or not outcome.runs:
            break
    return outcome._replace(runs=runs if outcome.runs else 0)


def _fuzz_slice(name: str, folder: Path, seconds: int) -> Outcome:
    found = KEPT / "found" / name
    found.mkdir(parents=True, exist_ok=True)
    options = {
        "max_total_time": seconds,
        "timeout": SLOWEST_S,
        "rss_limit_mb": MOST_MB,
        "max_len": MOST_BYTES,
        "artifact_prefix": f"{found}/",
        "print_final_stats": 1,
        "verbosity": 1,
    }
    words = [f"-{option}={value}" for option, value in options.items()]
    command = [sys.executable, str(HERE / "one.py"), name, str(folder), *words]
    environ = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ)
    said = done.stdout.decode(errors="replace")
    runs = re.search(r"number_of_executed_units:\s*(\d+)", said)
    covered = _COVERED.findall(said)
    last = covered[-1] if covered else ("0", "0", "0")
    end = "" if done.returncode == 0 else _reason(said)
    return Outcome(name, int(runs[1]) if runs else 0, int(last[0]), int(last[2]), end)


def _reason(said: str) -> str:
    """Return what libFuzzer said from the failure on."""
    places = [said.find(one) for one in ("=== Uncaught Python exception", "==ERROR", "== ERROR")]
    start = min((one for one in places if one >= 0), default=max(len(said) - 4000, 0))
    return said[start : start + 4000]


def run_all(names: list[str], seconds: int, jobs: int) -> Iterator[Outcome]:
    """Yield the outcome of each target, `jobs` at a time."""
    folders = [write_seeds(name) for name in names]
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(fuzz, names, folders, [seconds] * len(names))


def main() -> int:
    """Fuzz; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=30, help="for each target")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="side by side")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all if none is named")
    given = parser.parse_args()
    sys.path += [str(ROOT / folder) for folder in PATHS]
    failed = 0
    print(f"{'target':<22}{'runs':>10}{'covered':>9}{'inputs':>8}")
    for one in run_all(given.targets or targets(), given.seconds, given.jobs):
        print(f"{one.name:<22}{one.runs:>10,}{one.covered:>9,}{one.corpus:>8,}", flush=True)
        if one.found or not one.runs:
            failed += 1
            print(f"--- {one.name} failed; the input lies in .fuzz/found/{one.name}/\n{one.found}")
    passed = len(given.targets or targets()) - failed
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
