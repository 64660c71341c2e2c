"""What real clients are run against: a server process, and a small service of every kind of call.

Every test runs on both transports unless it asks for what only ours has.
"""

import asyncio
import re
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from inferd.aio.event_loop import new_event_loop
from inferd.config.server import ServerConfig
from inferd.engine.engine import Engine
from inferd.errors import InvalidRequest
from inferd.http.grpc.handler import Stream, Unary
from inferd.server.options import grpc_options
from inferd.transport.grpc_server import GrpcServer
from inferd.transport.http2_server import Http2Server

# Test folders are no packages: this is how the tests here find what they share.
sys.path.insert(0, str(Path(__file__).parent))

ECHO = """
backend: "identity"
input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }
"""
SLOW = 'parameters { key: "execute_delay_ms" value: { string_value: "700" } }'
ENDLESS = SLOW.replace("700", "3600000")


# --- certificates -------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """A folder with ca.pem, and server.pem and client.pem with their keys, which ca signed."""
    folder = tmp_path_factory.mktemp("tls")
    usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]  # Python 3.13 asks for it
    _openssl(folder, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca", *usage)
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "basicConstraints=CA:FALSE"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    for who in ("server", "client"):
        files = ["-keyout", f"{who}.key", "-out", f"{who}.pem", "-subj", f"/CN={who}"]
        _openssl(folder, *files, *signed, *names)
    return folder


def _openssl(folder, *arguments):
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    command = ["openssl", "req", "-x509", *key, *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


# --- the test service, in a thread --------------------------------------------------------------


@dataclass
class Seen:
    """What the handlers of the test service have noticed."""

    started: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)
    metadata: list = field(default_factory=list)
    peers: list = field(default_factory=list)


class Service:
    """The handlers of the test service; they tell `seen` what happens to them."""

    def __init__(self, seen):
        self._seen = seen

    def methods(self):
        """Return them by path."""
        found = {
            "Echo": Unary(self.echo),
            "Fail": Unary(self.fail),
            "BreakDown": Unary(self.break_down),
            "Wait": Unary(self.wait),
            "Sum": Stream(self.total),
            "Repeat": Stream(self.repeat),
            "Chat": Stream(self.chat),
            "FailLate": Stream(self.fail_late),
            "Endless": Stream(self.endless),
        }
        return {f"/test.Service/{name}": method for name, method in found.items()}

    async def echo(self, data, call):
        self._seen.metadata = call.metadata
        self._seen.peers.append(call.peer)
        call.add_initial([("x-initial", "first"), ("x-initial-bin", b"\0\xff")])
        call.add_trailing([("x-trailing", "last"), ("x-trailing-bin", bytes(range(256)))])
        return [data[: len(data) // 2], data[len(data) // 2 :]]

    async def fail(self, data, call):
        call.add_trailing([("x-trailing", "last")])
        msg = "100 % wrong: \u00fc\u6a21"
        raise InvalidRequest(msg)

    async def break_down(self, data, call):
        msg = "a secret"
        raise ZeroDivisionError(msg)

    async def wait(self, data, call):
        self._seen.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self._seen.cancelled.set()
            raise

    async def total(self, messages, call):
        count = size = 0
        async for message in messages:
            count, size = count + 1, size + len(message)
        yield [f"{count} {size}".encode()]

    async def repeat(self, messages, call):
        async for message in messages:
            count, size = map(int, bytes(message).split())
            for number in range(count):
                yield [bytes([number % 256]) * size]

    async def chat(self, messages, call):
        self._seen.started.set()
        try:
            async for message in messages:
                yield [b"re: ", message]
        finally:  # grpcio ends the messages of a cancelled call, we cancel the handler
            self._seen.cancelled.set()

    async def fail_late(self, messages, call):
        async for message in messages:
            yield [message]
        msg = "late"
        raise InvalidRequest(msg)

    async def endless(self, messages, call):
        self._seen.started.set()
        try:
            while True:
                yield [bytes(1000)]
                await asyncio.sleep(0.001)
        finally:
            self._seen.cancelled.set()


@dataclass
class Served:
    """A server in a thread: its address, and what its handlers have seen."""

    port: int
    seen: Seen

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"


@contextmanager
def serving(transport, **options):
    """Run the test service until the block ends."""
    settings = msgspec.structs.replace(grpc_options(ServerConfig()), **options)
    kind = Http2Server if transport == "own" else GrpcServer
    seen, started = Seen(), threading.Event()
    state = {}

    async def serve():
        engine = Engine()
        engine.readiness.finish_loading()
        server = kind(engine, settings, Service(seen).methods())
        state["port"] = await server.start("127.0.0.1", 0)
        state["loop"], state["end"] = asyncio.get_running_loop(), asyncio.Event()
        started.set()
        await state["end"].wait()
        await server.stop(0.0)

    def run():
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(serve())
        finally:
            started.set()

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    assert "port" in state, "the server did not start"
    try:
        yield Served(state["port"], seen)
    finally:
        state["loop"].call_soon_threadsafe(state["end"].set)
        thread.join()


@pytest.fixture(scope="session", params=["own", "grpcio"])
def transport(request):
    """Which transport carries the calls."""
    return request.param


@pytest.fixture
def serve(transport):
    """serve(options...) runs the test service on the transport, with options of its own."""
    return lambda **options: serving(transport, **options)


@pytest.fixture(scope="session")
def tls_options(certificates):
    """The options for TLS on the gRPC port."""
    return {
        "use_ssl": True,
        "server_cert": str(certificates / "server.pem"),
        "server_key": str(certificates / "server.key"),
    }


@pytest.fixture(scope="session")
def shared(transport):
    """The test service, plain, for all tests that change nothing."""
    with serving(transport) as server:
        yield server


@pytest.fixture
def server(shared):
    """The shared test service, with a clean memory."""
    shared.seen.__init__()
    return shared


# --- whole servers ------------------------------------------------------------------------------


@dataclass
class Running:
    """A server process and its ports."""

    process: subprocess.Popen
    http_port: int
    grpc_port: int

    @property
    def url(self):
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def grpc_url(self):
        return f"http://127.0.0.1:{self.grpc_port}"

    @property
    def address(self):
        return f"127.0.0.1:{self.grpc_port}"


@contextmanager
def running(repository, *flags):
    """Run `inferd serve` until the block ends."""
    command = [sys.executable, "-m", "inferd", "serve", str(repository)]
    command += ["--http-address=127.0.0.1", "--grpc-address=127.0.0.1"]
    command += ["--allow-metrics=false", *flags]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    )
    said, ready = [], threading.Event()

    def listen():
        for line in process.stdout:
            said.append(line)
            if re.search(r"\bready$", line):
                ready.set()
        ready.set()

    reader = threading.Thread(target=listen)
    reader.start()
    try:
        ready.wait(60)
        ports = re.search(
            r" live at http\S*127\.0\.0\.1:(\d+)(?: and 127\.0\.0\.1:(\d+))?", "".join(said)
        )
        assert ready.is_set() and ports, "".join(said)
        yield Running(process, int(ports[1]), int(ports[2] or ports[1]))
        assert "Traceback" not in "".join(said), "".join(said)
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join()
        process.stdout.close()


@pytest.fixture(scope="session")
def repository(tmp_path_factory):
    """Models: echo gives back at once, slow after 0.7 s, endless not while a test runs.

    repeat answers for each element.
    """
    root = tmp_path_factory.mktemp("models")
    repeat = 'backend: "repeat"'
    models = {"echo": ECHO, "slow": ECHO + SLOW, "endless": ECHO + ENDLESS, "repeat": repeat}
    for name, config in models.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(config)
    return root


@pytest.fixture(scope="session")
def start(repository):
    """start(flags...) runs a server process for the length of a with block."""
    return lambda *flags: running(repository, *flags)


@pytest.fixture(scope="session")
def inferd(start, transport):
    """A server process with separate ports."""
    with start("--http-port=0", "--grpc-port=0", f"--grpc-transport={transport}") as run:
        yield run


@pytest.fixture(scope="session")
def own(start):
    """A server process with separate ports, gRPC on our own transport."""
    with start("--http-port=0", "--grpc-port=0", "--grpc-transport=own") as run:
        yield run


@pytest.fixture(scope="session")
def program():
    """program(name) returns where it is; the test is skipped, naming it, where there is none."""

    def find(name):
        found = shutil.which(name)
        if found is None:
            pytest.skip(f"{name} is not on this machine: nothing here was tried with it")
        return found

    return find
