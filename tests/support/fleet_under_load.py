"""A server of several processes under clients, while its processes are ended: what is lost?

    python tests/support/fleet_under_load.py --workers 2 --what roll --seconds 60
    python tests/support/fleet_under_load.py --workers 2 --what kill --every 5 --seconds 120

`roll`: SIGUSR2 replaces the processes one after the other, again and again; nothing may be lost.
`kill`: a process is killed every few seconds; only requests that it had may be lost, one for each
connection it had. Half of the clients keep their connections, half open one for each request; an
answer with other numbers than the request's is wrong, and no connection may be refused.
"""

import argparse
import os
import random
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import stop_under_load
from stop_under_load import COUNT, KINDS, MODEL, PlainGrpc, PlainHttp, Refused
from under_load import asking, serving, wait_until_replaced

CLIENTS = 16


class Counts(stop_under_load.Counts):
    """What became of the requests; `refused` are connections that were."""

    def __init__(self):
        super().__init__()
        self["refused"] = 0


def fresh(kind):
    """Return a client like `kind` that opens a connection for each request."""

    class Fresh(kind):
        def ask(self, numbers):
            try:
                return super().ask(numbers)
            finally:
                self.close()
                self.__init__(self.ports)

        def __init__(self, ports):
            self.ports = ports
            super().__init__(ports)

    Fresh.__name__ = f"Fresh{kind.__name__}"
    return Fresh


CLIENT_KINDS = (*KINDS, fresh(PlainHttp), fresh(PlainHttp), fresh(PlainGrpc), PlainHttp)


def ask_until(kind, ports, counts, lock, over):
    """Be one client until `over` is set."""
    client = kind(ports)
    while not over.is_set():
        numbers = np.random.randint(-(2**31), 2**31, COUNT, np.int64).astype(np.int32)
        what = "answered"
        try:
            if not np.array_equal(client.ask(numbers), numbers):
                what = "wrong"
        except Refused as error:
            # gRPC says that it "failed to connect" where a process was killed that had accepted.
            what = "refused" if "onnection refused" in repr(error.__cause__) else "lost"
        except Exception as error:  # noqa: BLE001  a client may raise anything
            what = "lost"
            with lock:
                counts.faults.append(f"{kind.__name__}: {error!r}"[:300])
        with lock:
            counts[what] += 1
        if what != "answered":
            client.close()
            client = kind(ports)
            time.sleep(0.02)
    client.close()


def children_of(pid):
    """Return the pids of the processes that `pid` has started."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def write_same(folder, versions=("1",)):
    """Write a model that gives back what it gets into a repository."""
    for version in versions:
        (folder / "same" / version).mkdir(parents=True)
    (folder / "same" / "config.pbtxt").write_text(MODEL)


def play(workers, what, seconds, every_s, options=()):
    """Return (counts, how often a process was ended, the log)."""
    counts, lock = Counts(), threading.Lock()
    ends = 0
    with serving(write_same, [f"--workers={workers}", *options]) as (server, ports, log):
        kinds = [CLIENT_KINDS[at % len(CLIENT_KINDS)] for at in range(CLIENTS)]
        with asking(partial(ask_until, kind, ports, counts, lock) for kind in kinds):
            end_s = time.monotonic() + seconds
            while time.monotonic() < end_s:
                time.sleep(every_s)
                if what == "roll":
                    server.send_signal(signal.SIGUSR2)
                    ends += 1
                elif children := children_of(server.pid):  # else all wait to be started again
                    os.kill(random.choice(children), signal.SIGKILL)
                    ends += 1
            time.sleep(every_s)
            if what == "roll":
                wait_until_replaced(log)
    return counts, ends, "".join(log)


def main():
    """Play, and print what became of the requests."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--what", choices=("roll", "kill"), default="roll")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=5.0)
    given, options = parser.parse_known_args()
    counts, ends, log = play(given.workers, given.what, given.seconds, given.every, options)
    report = [f"{given.what}, {ends} times: {dict(counts)}", *counts.faults[:20]]
    sys.stdout.write("\n".join(report) + "\n")
    if counts["wrong"] or counts["refused"] or (given.what == "roll" and counts["lost"]):
        sys.stdout.write(log[-5000:])
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
