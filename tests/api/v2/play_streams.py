"""Plays streams of gRPC in orders of events that are drawn from seeds; see stream_world.py.

    python tests/api/v2/play_streams.py 0 10000

It prints each seed for which a stream does not end, or an answer is lost, and why. The exit status
is 1 if there is one.
"""

import logging
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "schedulers")]
from simulation import simulate  # noqa: E402
from stream_world import World  # noqa: E402


def failures(first: int, count: int) -> int:
    """Play `count` seeds from `first` on, print what fails, and return how many do."""
    found = 0
    for seed in range(first, first + count):
        world = World(seed)
        try:
            simulate(world.play)
        except Exception as error:  # noqa: BLE001  any is what is looked for
            found += 1
            sys.stdout.write(f"{seed}: {error!r} after {' '.join(world.told)}\n")
    return found


if __name__ == "__main__":
    logging.disable()  # what fails as planned
    first, count = map(int, sys.argv[1:])
    failed = failures(first, count)
    sys.stdout.write(f"{count} seeds, {failed} failed\n")
    sys.exit(bool(failed))
