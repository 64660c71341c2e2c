"""What `inferd check` costs: for each repository that its tests break, and for the good ones.

    .venv/bin/python bench/check.py [--every 1] [--json FILE]

It writes the repositories of tests/check one after the other, each with one field of config.pbtxt
broken, checks it, and prints the milliseconds of CPU: the median, the 99th percentile and the most.
No framework is loaded. It also prints what reading the largest config.pbtxt costs the server, which
keeps no positions. The exit status is 1 if a check costs more than LIMIT_MS.
"""

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from inferd.check.places import check_paths
from inferd.config.pbtxt import parse_pbtxt
from inferd.repository.local import Reading

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/check"))

from good import BASES, EVERYTHING
from mutations import mutations_of

LIMIT_MS = 50.0
_PARSES = 200


def write(folder: Path, files: dict[str, str | bytes]) -> None:
    """Write a repository."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def check_ms(folder: Path) -> float:
    """Return the milliseconds of CPU that a check takes."""
    began = time.process_time_ns()
    check_paths([folder], Reading(gpu_count=2))
    return (time.process_time_ns() - began) / 1e6


def parse_us() -> float:
    """Return the microseconds of CPU that the server's parser takes for the largest file."""
    began = time.process_time_ns()
    for _ in range(_PARSES):
        parse_pbtxt(EVERYTHING, "config.pbtxt")
    return (time.process_time_ns() - began) / _PARSES / 1e3


def main() -> int:
    """Check all, print what it cost. Return 1 if one was too much."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--every", type=int, default=1, help="only each Nth repository")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    broken: list[float] = []
    good: list[float] = []
    for name, files in BASES.items():
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "models"
            write(folder, files)
            check_ms(folder)  # imports what it needs
            gc.collect()
            good.append(check_ms(folder))
            file, text = next(iter(files.items()))
            assert isinstance(text, str)
            for mutation in list(mutations_of(text))[:: given.every]:
                (folder / file).write_text(mutation.text)
                broken.append(check_ms(folder))
        print(f"{name:12} {good[-1]:6.1f} ms", flush=True)
    found = {
        "repositories": len(broken),
        "median_ms": statistics.median(broken),
        "p99_ms": statistics.quantiles(broken, n=100)[98],
        "most_ms": max(*broken, *good),
        "parse_us": parse_us(),
    }
    for label, value in found.items():
        print(f"{label:12} {value:8.1f}")
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")
    return int(found["most_ms"] > LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())
