"""Faults behind `inferd route` under load: what becomes of each request?

    python tests/support/route_under_load.py --requests 40000

Sixteen clients of four kinds ask two servers through a route without a pause, while servers are
ended one after another, in the way that is asked for, and started again at other ports. Any
request that fails is lost, and an answer with other numbers than the request's is wrong.
"""

import argparse
import signal
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

import numpy as np
from routed import Server, route
from stop_under_load import KINDS, MODEL

CLIENTS = 16
COUNT = 8
WAYS = {"term": signal.SIGTERM, "kill": signal.SIGKILL}


class Load:
    """Clients that ask until `requests` are answered, or `stop`."""

    def __init__(self, ports, requests, count=COUNT, kinds=KINDS):
        self.answered = 0
        self.lost = Counter()
        self.log = ""
        self._requests = requests
        self._count = count
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(kinds[number % len(kinds)], ports, number))
            for number in range(CLIENTS)
        ]

    def start(self):
        """Begin."""
        for one in self._threads:
            one.start()

    @property
    def is_done(self):
        """Whether there were enough requests."""
        return self._ended.is_set()

    def wait(self):
        """Wait for the end of all clients."""
        for one in self._threads:
            one.join()

    def _ask(self, kind, ports, number):
        client = kind(ports)
        numbers = np.arange(number, number + self._count, dtype=np.int32)
        while not self._ended.is_set():
            problem = None
            try:
                answer = client.ask(numbers)
                if not np.array_equal(answer, numbers):
                    problem = "wrong"
            except Exception as error:  # noqa: BLE001  whatever it is, the request is lost
                problem = f"{kind.__name__}: {type(error).__name__} {error}"[:200]
                client.close()
                client = kind(ports)
            with self._lock:
                self.answered += 1
                if problem:
                    self.lost[problem] += 1
                if self.answered >= self._requests:
                    self._ended.set()
        client.close()


def write_model(folder):
    """Write the model that the clients ask."""
    path = Path(folder) / "models" / "same"
    (path / "1").mkdir(parents=True)
    (path / "config.pbtxt").write_text(MODEL)
    return path.parent


def run(way, requests, folder, *, least_faults, count=COUNT):
    """Return the load after `requests`, and the number of servers that were ended meanwhile.

    There are at least so many faults, also if the requests are done before.
    """
    models = write_model(folder)
    names = iter(f"s{number}" for number in range(1000))
    living = [Server(next(names), models) for _ in range(2)]
    faults = 0
    try:
        with route(folder, [one.place() for one in living]) as routed:
            routed.wait_known(*(one.name for one in living))
            load = Load(
                {"HTTP": routed.http_port, "gRPC": routed.grpc_port},
                requests,
                count,
            )
            load.start()
            while not load.is_done or faults < least_faults:
                fresh = Server(next(names), models)
                living.append(fresh)
                routed.rewrite([one.place() for one in living])
                routed.wait_known(fresh.name)
                old = living.pop(0)
                old.signal(WAYS[way])
                old.process.end()
                old.end()
                faults += 1
                routed.rewrite([one.place() for one in living])
            load.wait()
            routed.end()
            load.log = routed.process.said
            return load, faults
    finally:
        for one in living:
            one.end()


def main():
    """Run all that was asked for, and say what was lost; the exit code is 1 if anything was."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=40000)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--numbers", type=int, default=COUNT, help="in a request, 4 bytes each")
    options = parser.parse_args()
    code = 0
    for way in options.ways:
        with tempfile.TemporaryDirectory() as folder:
            load, faults = run(way, options.requests, folder, least_faults=1, count=options.numbers)
        lost = sum(load.lost.values())
        sys.stdout.write(f"{way}: {lost} of {load.answered} lost, {faults} servers ended\n")
        for problem, count in load.lost.most_common():
            sys.stdout.write(f"  {count} times {problem}\n")
            code = 1
        if load.lost:
            sys.stdout.write(load.log)
    return code


if __name__ == "__main__":
    sys.exit(main())
