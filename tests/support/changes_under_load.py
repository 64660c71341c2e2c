"""A server of several processes whose model changes under load: does any process answer the old?

    python tests/support/changes_under_load.py --workers 4 --changes 100 --requests 200000

A model has two versions. A client has the server serve one, then the other, by loads with another
version policy; every tenth asks for a version that is not there, every seventh change is an unload.
Meanwhile 16 clients ask the model. Who begins to ask after a load was answered must hear of that
version, or of a later one, whichever process it reaches. While the model is unloaded, whoever asks
must be refused.
"""

import argparse
import http.client
import itertools
import json
import sys
import threading
from collections import Counter
from functools import partial

from fleet_under_load import write_same
from under_load import asking, serving

CLIENTS = 16
BODY = json.dumps(
    {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [2], "data": [3, 4]}]}
)


class Truth:
    """What was answered to the client that changes the model.

    `step` grows with each change. `served` says by step which version serves, None: none.
    """

    def __init__(self):
        self.served = {}
        self.done_step = 0
        self.begun_step = 0

    def may_be(self, answer, first_step):
        """Tell whether `answer` fits what was true at `first_step`, or any step begun since."""
        steps = range(first_step, self.begun_step + 1)
        return any(self.served.get(step, "?") == answer for step in steps)


def call(connection, path, body):
    """POST; return the status and the parsed body."""
    connection.request("POST", path, body)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read() or b"null")


def ask(port, truth, counts, lock, over, *, keeps):
    """Be one client; with `keeps` it has one connection, otherwise one for each request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while not over.is_set():
        first_step = truth.done_step
        try:
            status, answer = call(connection, "/v2/models/same/infer", BODY)
        except (OSError, http.client.HTTPException) as error:
            status, answer = 0, {"error": repr(error)}
            connection.close()
        heard = answer["model_version"] if status == 200 else None
        is_right = status in (200, 404, 400, 503) and truth.may_be(heard, first_step)
        with lock:
            counts["answered" if status == 200 else "refused"] += 1
            if not is_right:
                counts["wrong"] += 1
                counts.faults.append((first_step, truth.begun_step, status, str(answer)[:200]))
        if not keeps:
            connection.close()
    connection.close()


class Counts(Counter):
    """What became of the requests; `faults` has those that were wrong."""

    def __init__(self):
        super().__init__(answered=0, refused=0, wrong=0, changes=0, failed_loads=0)
        self.faults = []


def load_of(version):
    """Return the body of a load after which that version serves alone."""
    config = {
        "backend": "identity",
        "max_batch_size": 0,
        "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
        "version_policy": {"specific": {"versions": [version]}},
    }
    return json.dumps({"parameters": {"config": json.dumps(config)}})


def change(port, truth, counts, changes):
    """Change the model again and again."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    versions = itertools.cycle((1, 2))
    path = "/v2/repository/models/same"

    def make(action, body, served):
        truth.served[truth.begun_step + 1] = served
        truth.begun_step += 1
        status, answer = call(connection, f"{path}/{action}", body)
        assert status == 200, answer
        truth.done_step = truth.begun_step

    for number in range(1, changes + 1):
        counts["changes"] += 1
        if number % 10 == 0:
            status, _ = call(connection, f"{path}/load", load_of(7))
            assert status == 400, status
            counts["failed_loads"] += 1
        elif number % 7 == 0:
            make("unload", "", None)
        else:
            version = next(versions)
            make("load", load_of(version), str(version))
    connection.close()


def play(workers, changes, requests):
    """Return what became of the requests."""
    counts, lock, truth = Counts(), threading.Lock(), Truth()
    flags = [f"--workers={workers}", "--model-control-mode=explicit", "--load-model=same"]
    with serving(partial(write_same, versions=("1", "2")), flags) as (_, ports, _):
        truth.served[0] = "2"
        port = ports["HTTP"]
        clients = [
            partial(ask, port, truth, counts, lock, keeps=at % 2 == 0) for at in range(CLIENTS)
        ]
        with asking(clients):
            done = 0
            while done < changes or counts["answered"] + counts["refused"] < requests:
                change(port, truth, counts, 10)
                done += 10
    return counts


def main():
    """Play, and print what became of the requests."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--requests", type=int, default=200_000)
    given = parser.parse_args()
    counts = play(given.workers, given.changes, given.requests)
    sys.stdout.write("\n".join([str(dict(counts)), *map(str, counts.faults[:10])]) + "\n")
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
