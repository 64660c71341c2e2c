"""Servers behind `inferd route`: real ones, on ports the system chooses."""

import json
import signal
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

from server_process import ON_FREE_PORTS, Process

ROUTE = ("-m", "inferd", "route")
WHERE = r"routes at https?://127\.0\.0\.1:(\d+) and 127\.0\.0\.1:(\d+)"
GRPC = r"gRPC +127\.0\.0\.1:(\d+)"
ON_FREE_ROUTE_PORTS = ("--address=127.0.0.1", "--http-port=0", "--grpc-port=0", "--metrics-port=0")
SMALL = ("--max-places=4", "--max-groups=2")
"""The configuration is a tenth as long then."""


class Server:
    """A server, started, and its place."""

    def __init__(self, name, *arguments):
        self.name = name
        self.process = Process(*arguments, *ON_FREE_PORTS)
        self.http_port, self.grpc_port = map(
            int, self.process.wait_for(r"http://127\.0\.0\.1:(\d+) and 127\.0\.0\.1:(\d+)").groups()
        )
        self.process.wait_for(r"\bready$")

    def place(self, **changes):
        """Return its place, as a file of places has it."""
        return {
            "name": self.name,
            "host": "127.0.0.1",
            "http_port": self.http_port,
            "grpc_port": self.grpc_port,
        } | changes

    def signal(self, number):
        """Send a signal."""
        self.process.process.send_signal(number)

    def end(self):
        """End it now, if it has not."""
        self.process.process.kill()
        self.process.process.wait()
        self.process.process.stdout.close()


def route_process(*arguments):
    """Start `inferd route`."""
    return Process(*arguments, command=ROUTE, program=sys.executable)


MODEL = """
backend: "identity"
max_batch_size: 0
input {{ name: "INPUT0" data_type: TYPE_INT32 dims: [ -1 ] }}
output {{ name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1 ] }}
{}
"""


def write_repository(folder, models, version="1"):
    """Write models that answer what they are asked, by name, with more of their configuration."""
    for name, more in models.items():
        (folder / name / version).mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(MODEL.format(more))
    return folder


class Route:
    """`inferd route`, started with a file of places; `rewrite` changes the file."""

    def __init__(self, file, places, *arguments):
        self.file = file
        self.rewrite(places)
        self.process = route_process(f"--places={file}", *ON_FREE_ROUTE_PORTS, *SMALL, *arguments)
        self.http_port, self.grpc_port = map(int, self.process.wait_for(WHERE).groups())
        self.metrics_port = int(self.process.wait_for(r"metrics at http://127\.0\.0\.1:(\d+)")[1])

    def rewrite(self, places):
        """Have the file name other places, all at once."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps({"places": places}))
        fresh.replace(self.file)

    def wait_known(self, *names):
        """Wait until it sends requests to places of these names, since the last time."""
        missing = set(names)
        while missing:
            missing.discard(self.process.wait_for(r"place (\S+) is sent requests")[1])

    def end(self):
        """End it, and return its exit code; everything that it said is in process.said."""
        self.process.process.send_signal(signal.SIGTERM)
        return self.process.end()


@contextmanager
def servers(*arguments, count=2):
    """Yield servers named a, b, ..., which end afterwards."""
    with ExitStack() as stack:
        started = []
        for name in "abcdef"[:count]:
            one = Server(name, *arguments)
            stack.callback(one.end)
            started.append(one)
        yield started


@contextmanager
def route(folder, places, *arguments):
    """Yield a route to `places`, which ends afterwards."""
    one = Route(Path(folder) / "places.json", places, *arguments)
    try:
        yield one
    finally:
        one.process.process.kill()
        one.process.process.wait()
        one.process.process.stdout.close()
