"""Faults behind `inferd route` under load: what becomes of each request?

    python tests/support/route_under_load.py --requests 40000

Sixteen clients of four kinds ask three servers through a route without a pause, while servers are
ended, one or two at once, in the way that is asked for, and started again at other ports. Any
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
from routed import Server, route, servers
from running_fleet import until
from stop_under_load import KINDS, MODEL

CLIENTS = 16
COUNT = 8
AROUND = 300
"""So many requests are answered between one event and the next, at least."""
WAYS = {"term": signal.SIGTERM, "kill": signal.SIGKILL}


class Load:
    """Clients that ask until `stop`."""

    def __init__(self, ports, count=COUNT, kinds=KINDS):
        self.answered = 0
        self.lost = Counter()
        self.log = ""
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

    def stop(self):
        """Have all clients end."""
        self._ended.set()
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
        client.close()


def write_model(folder):
    """Write the model that the clients ask."""
    path = Path(folder) / "models" / "same"
    (path / "1").mkdir(parents=True)
    (path / "config.pbtxt").write_text(MODEL)
    return path.parent


def run(way, requests, folder, *, count=COUNT, at_once=1):
    """Return the load after at least so many `requests`, and how many servers were ended meanwhile.

    With each fault, `at_once` of three servers are ended, and others started.
    """
    models = write_model(folder)
    names = iter(f"s{number}" for number in range(1000))
    living = [Server(next(names), models) for _ in range(3)]
    ended = 0
    try:
        with route(folder, [one.place() for one in living]) as routed:
            routed.wait_known(*(one.name for one in living))
            load = Load({"HTTP": routed.http_port, "gRPC": routed.grpc_port}, count)
            load.start()
            while not ended or load.answered < requests:
                enough = load.answered + AROUND
                until(lambda enough=enough: load.answered > enough)
                old, living = living[:at_once], living[at_once:]
                for one in old:
                    one.signal(WAYS[way])
                for one in old:
                    one.process.end()
                    one.end()
                enough = load.answered + AROUND
                until(lambda enough=enough: load.answered > enough)
                fresh = [Server(next(names), models) for _ in old]
                living += fresh
                ended += at_once
                routed.rewrite([one.place() for one in living])
                routed.wait_known(*(one.name for one in fresh))
            load.stop()
            routed.end()
            load.log = routed.process.said
            return load, ended
    finally:
        for one in living:
            one.end()


def run_with_short_connections(requests, folder):
    """Return the load after so many `requests` to servers that end each connection at once."""
    ages = ("--http-max-connection-age=20", "--grpc-max-connection-age=20")
    models = write_model(folder)
    with servers(models, *ages) as living, route(folder, [one.place() for one in living]) as routed:
        routed.wait_known(*(one.name for one in living))
        load = Load({"HTTP": routed.http_port, "gRPC": routed.grpc_port})
        load.start()
        until(lambda: load.answered >= requests)
        load.stop()
    return load


def main():
    """Run all that was asked for, and say what was lost; the exit code is 1 if anything was."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=40000)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--numbers", type=int, default=COUNT, help="in a request, 4 bytes each")
    parser.add_argument("--at-once", type=int, default=1, choices=(1, 2), help="of three servers")
    options = parser.parse_args()
    code = 0
    for way in options.ways:
        with tempfile.TemporaryDirectory() as folder:
            load, faults = run(
                way, options.requests, folder, count=options.numbers, at_once=options.at_once
            )
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
