"""A machine behind `inferd route` that falls silent under load: how long do clients wait?

    python tests/support/route_silence.py        # as root, with ip and iptables

Of two servers, one is in a network namespace of its own, whose packets are dropped from one moment
on. Eight clients of four kinds ask without a pause. The exit code is 1 if a request was lost, or
took longer than LONGEST_S.
"""

import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager

import numpy as np
from route_under_load import write_model
from routed import Server, route
from stop_under_load import KINDS

LONGEST_S = 3.0
CLIENTS = 8
FOR_S = 14.0
CUT_S = 3.0
HERE, THERE, FAR = "inferd-near", "inferd-far", "10.213.77.2"


def run(*words):
    """Run a command of the system."""
    subprocess.run(words, check=True)


@contextmanager
def far_machine(models):
    """Yield a place on a machine of its own, and what makes that silent."""
    run("ip", "netns", "add", THERE)
    inside = ("ip", "netns", "exec", THERE)
    with ExitStack() as stack:
        stack.callback(run, "ip", "netns", "del", THERE)
        run("ip", "link", "add", HERE, "type", "veth", "peer", "name", THERE, "netns", THERE)
        run("ip", "addr", "add", "10.213.77.1/24", "dev", HERE)
        run("ip", "link", "set", HERE, "up")
        run(*inside, "ip", "addr", "add", f"{FAR}/24", "dev", THERE)
        run(*inside, "ip", "link", "set", THERE, "up")
        flags = [f"--{one}-address={FAR}" for one in ("http", "grpc")]
        command = [*inside, sys.executable, "-m", "inferd", "serve", str(models), *flags]
        process = subprocess.Popen([*command, "--metrics-port=0"], stdout=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.kill)

        def fall_silent():
            for chain in ("INPUT", "OUTPUT"):
                run(*inside, "iptables", "-A", chain, "-j", "DROP")

        yield {"name": "far", "host": FAR, "http_port": 8000, "grpc_port": 8001}, fall_silent


class Client(threading.Thread):
    """Asks until `until_s`; `longest_s` is its longest request."""

    def __init__(self, kind, ports, number, until_s):
        super().__init__()
        self.answered, self.longest_s, self.lost = 0, 0.0, []
        self._new = lambda: kind(ports)
        self._numbers = np.arange(number, number + 8, dtype=np.int32)
        self._until_s = until_s

    def run(self):
        """See threading.Thread."""
        client = self._new()
        while (began_s := time.monotonic()) < self._until_s:
            try:
                client.ask(self._numbers)
            except Exception as error:  # noqa: BLE001  whatever it is, the request is lost
                self.lost.append(str(error)[:200])
                client.close()
                client = self._new()
            self.answered += 1
            self.longest_s = max(self.longest_s, time.monotonic() - began_s)
        client.close()


def main():
    """Say what was lost, and the longest request; 1 if that is too much."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        models = write_model(folder)
        place, fall_silent = stack.enter_context(far_machine(models))
        near = Server("near", models)
        stack.callback(near.end)
        routed = stack.enter_context(route(folder, [near.place(), place]))
        routed.wait_known("near", "far")
        ports = {"HTTP": routed.http_port, "gRPC": routed.grpc_port}
        until_s = time.monotonic() + FOR_S
        clients = [
            Client(KINDS[number % len(KINDS)], ports, number, until_s) for number in range(CLIENTS)
        ]
        for one in clients:
            one.start()
        time.sleep(CUT_S)
        fall_silent()
        for one in clients:
            one.join()
    lost = [problem for one in clients for problem in one.lost]
    longest_s = max(one.longest_s for one in clients)
    count = sum(one.answered for one in clients)
    sys.stdout.write(f"{len(lost)} of {count} lost, the longest took {longest_s:.2f} s\n")
    for problem in lost:
        sys.stdout.write(f"  {problem}\n")
    return int(bool(lost) or longest_s > LONGEST_S)


if __name__ == "__main__":
    sys.exit(main())
