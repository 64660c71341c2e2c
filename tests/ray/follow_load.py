"""A group that its load alone makes larger and smaller: how long does that take, and what is lost?

    python tests/ray/follow_load.py

Three nodes on this machine, a replica on one of them, and eight clients, which are four times what
it should have. When three places have answered, all clients but one end, and then two replicas have
to. Times are from the begin of the load, and from its end. Clients never ask twice. The exit code
is 1 if three places took longer than MOST_S to answer, or a request was lost.
"""

import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]

from model_files import write_models
from placed import CLIENTS, bring, cluster_of, group, replicas, until
from placed_load import Followed, Load

from inferd.ray.connection import RayPlacement

MOST_S = 15.0
LOOK_S = 0.02
RULE = {"down_after_s": 10.0}


class Steps:
    """When what was seen for the first time, in seconds."""

    def __init__(self):
        self._began_s = time.monotonic()
        self.seen = {}

    def note(self, *names):
        """Note that all these are so now."""
        for name in names:
            self.seen.setdefault(name, time.monotonic() - self._began_s)

    def write(self, title):
        """Write a line for each."""
        sys.stdout.write(f"{title}\n")
        for name, seconds in self.seen.items():
            sys.stdout.write(f"  {seconds:5.1f} s  {name}\n")

    @property
    def last_s(self):
        """When the last one was seen."""
        return max(self.seen.values())


def follow(placement, is_over):
    """Return the Steps of the deployment until `is_over(status)`."""
    steps = Steps()
    while True:
        status = placement.status()
        [one] = status.groups
        steps.note(f"{one.desired} wanted", *(f"{each.name} {each.phase}" for each in one.replicas))
        if is_over(status):
            return steps
        time.sleep(LOOK_S)


def play(folder):
    """Return (steps up, steps down, all faults)."""
    write_models(folder)
    with ExitStack() as stack:
        cluster = stack.enter_context(cluster_of(*[{"num_cpus": 1}] * 3))
        placement = stack.enter_context(RayPlacement(cluster.address))
        followed = stack.enter_context(Followed(cluster.address))
        bring(placement, group(folder, 1, 3, path=folder / "slow.py", rule=RULE, cpus=1.0))
        until(lambda: followed.ready)
        with Load(followed, 1, "slow", stay=False) as staying:
            time.sleep(5.0)  # the group has seen that one is enough
            with Load(followed, CLIENTS - 1, "slow", stay=False) as more:
                up = follow(placement, lambda _: len(more.answered | staying.answered) == 3)
                up.note("three places have answered")
            down = follow(placement, lambda status: len(replicas(status)) == 1)
        placement.remove()
        return up, down, more.faults + staying.faults


def main():
    """Play, and print when what happened."""
    sys.stdout.write(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    with tempfile.TemporaryDirectory() as folder:
        up, down, faults = play(Path(folder))
    up.write("up, from the begin of the load")
    down.write("down, from its end")
    sys.stdout.write(f"lost: {len(faults)}\n")
    sys.stdout.writelines(f"  {one}\n" for one in faults)
    return 1 if faults or up.last_s > MOST_S else 0


if __name__ == "__main__":
    sys.exit(main())
