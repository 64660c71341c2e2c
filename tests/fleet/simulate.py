"""Runs the simulation of several processes with many seeds: `make simulate SEEDS=1000000`."""

import argparse
import logging
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from world import World

CHUNK = 500


def failures_of(first, count):
    """Return what goes wrong in `count` lives from seed `first`, with the seeds."""
    logging.disable(logging.CRITICAL)
    found = []
    for seed in range(first, first + count):
        try:
            World(seed).live()
        except Exception as error:  # noqa: BLE001 - of the server as of the simulation
            found.append(f"seed {seed}: {error!r}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=None, help="as many as cores by default")
    given = parser.parse_args()
    began_s = time.monotonic()
    starts = range(given.first, given.first + given.seeds, CHUNK)
    counts = [min(CHUNK, given.first + given.seeds - start) for start in starts]
    failed = 0
    with ProcessPoolExecutor(given.processes) as pool:
        for start, count, found in zip(
            starts, counts, pool.map(failures_of, starts, counts), strict=True
        ):
            failed += len(found)
            for one in found:
                print(one, flush=True)  # noqa: T201
            done = start + count - given.first
            if done % (20 * CHUNK) == 0 or done == given.seeds:
                took_s = time.monotonic() - began_s
                print(f"{done} seeds, {failed} failed, {took_s:.0f} s", flush=True)  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
