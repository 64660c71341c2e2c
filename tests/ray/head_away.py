"""A cluster whose head is killed, and does not come back: what do clients lose, and for how long?

    python tests/ray/head_away.py --minutes 60

Three nodes on this machine, a replica on each, and clients that never ask twice. A replica is ended
in the meantime, which fronts must hear of without the head.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]

from model_files import write_models
from placed import bring, cluster_of, group, replicas, until
from placed_load import Followed, Load

from inferd.ray.connection import RayPlacement


def play(minutes, clients, pause_s):
    """Return (counts of requests, faults, the longest wait, ready places at the end)."""
    with tempfile.TemporaryDirectory() as folder:
        write_models(Path(folder))
        nodes = [{"num_cpus": 1}] * 3
        with (
            cluster_of(*nodes) as cluster,
            RayPlacement(cluster.address) as placement,
            Followed(cluster.address) as followed,
        ):
            [first, *_] = replicas(bring(placement, group(Path(folder), 3, cpus=1.0)))
            until(lambda: followed.ready)
            with Load(followed, clients, pause_s=pause_s) as load:
                time.sleep(5)
                cluster.head_node.kill_gcs_server()
                time.sleep(min(10, minutes * 20))
                os.kill(first.pid, signal.SIGTERM)
                end_s = time.monotonic() + minutes * 60
                while time.monotonic() < end_s:
                    time.sleep(1)
                    if load.counts["nowhere"] or load.counts["lost"]:
                        break
            places = len(followed.ready)
            return load.counts, load.faults, load.longest_s, places


def main():
    """Play, and print what became of the requests."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--pause", type=float, default=0.1, metavar="SECONDS")
    given = parser.parse_args()
    began = time.monotonic()
    counts, faults, longest_s, places = play(given.minutes, given.clients, given.pause)
    sys.stdout.write(
        f"{time.monotonic() - began:.0f} s: {dict(counts)}, longest {longest_s * 1e3:.0f} ms, "
        f"{places} places at the end\n" + "".join(f"{each}\n" for each in faults[:20])
    )
    return 1 if counts["lost"] or counts["nowhere"] else 0


if __name__ == "__main__":
    sys.exit(main())
