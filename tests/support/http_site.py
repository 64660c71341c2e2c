"""An HTTP server on the test's own loop, and clients that send and read raw bytes.

A test here that is a coroutine runs on the event loop of servers. Nothing sleeps: clients wait
for what the server sends, models for events, and timeouts for `site.pass_time`.
"""

import asyncio
import inspect
import socket
import ssl
import struct
import subprocess
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec
import numpy as np
import pytest

from inferd.aio.event_loop import new_event_loop
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.metadata import ModelState
from inferd.core.request import InferResponse
from inferd.engine.engine import Engine
from inferd.engine.serving.served import Served
from inferd.errors import BackendFailed
from inferd.memory.capacity import UNLIMITED
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.transport.http_server import HttpOptions, HttpServer

OPTIONS = HttpOptions(
    max_header_bytes=16384,
    max_body_bytes=2**31,
    max_input_bytes=2**26,
    max_connections=1000,
    idle_timeout_s=300.0,
    header_timeout_s=60.0,
    body_timeout_s=60.0,
    write_timeout_s=60.0,
    max_connection_age_ms=None,
    max_connection_requests=None,
    drain_window_s=1.0,
    half_floats_in_json=True,
    non_finite="tokens",
    not_ready_status=400,
    ssl_context=None,
)

HANGS_S = 60


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run tests that are coroutines, on the loop the server uses."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
        runner.run(asyncio.wait_for(test, HANGS_S))  # so that one that hangs shows where
    return True


class Identity:
    """A scheduler whose model gives back input T as output T."""

    pending_count = 0

    async def run(self, request):
        outputs = [Tensor("T", t.datatype, t.shape, t.data) for t in request.inputs]
        return InferResponse("", "", outputs=outputs)


class Held(Identity):
    """A scheduler that answers once `release` is set; the semaphores count what happened."""

    def __init__(self):
        self.release = asyncio.Event()
        self.started = asyncio.Semaphore(0)
        self.cancelled = asyncio.Semaphore(0)

    async def run(self, request):
        self.started.release()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.release()
            raise
        return await super().run(request)


class Failing(Identity):
    """A scheduler that raises `error`."""

    def __init__(self, error):
        self.error = error

    async def run(self, request):
        raise self.error


def served(name, scheduler, version=1, datatype=DataType.FP32, dims=(-1,), **settings):
    config = ModelConfig(
        name=name,
        input=(ModelInput("T", datatype, dims),),
        output=(ModelOutput("T", datatype, dims),),
        **settings,
    )
    return Served(config, version, "onnx_onnxv1", scheduler)


class Answer(NamedTuple):
    """One answer; `headers` has names in lower case."""

    status: int
    headers: dict
    body: bytes

    @property
    def error(self):
        """The message of a V2 error object, whose content type is exactly what clients want."""
        assert self.headers["content-type"] == "application/json"
        [(key, text)] = msgspec.json.decode(self.body).items()
        assert key == "error"
        return text

    @property
    def json(self):
        assert self.headers["content-type"] == "application/json"
        return msgspec.json.decode(self.body)


class Client:
    """One connection, raw."""

    def __init__(self, connected):
        self.socket = connected
        self.received = b""

    async def send(self, *pieces):
        loop = asyncio.get_running_loop()
        for piece in pieces:
            await loop.sock_sendall(self.socket, piece)

    async def ask(self, *pieces):
        """Send, and return the one answer."""
        await self.send(*pieces)
        return await self.answer()

    async def answer(self, *, has_body=True):
        """Read one answer, as strictly as its framing says."""
        head = await self._until(b"\r\n\r\n")
        status_line, *lines = head[:-4].split(b"\r\n")
        version, status, _reason = status_line.split(b" ", 2)
        assert version == b"HTTP/1.1"
        headers = {}
        for line in lines:
            name, value = line.decode().split(": ", 1)
            assert name.lower() not in headers
            headers[name.lower()] = value
        size = 0 if int(status) < 200 or not has_body else int(headers["content-length"])
        while len(self.received) < size:
            await self._more()
        body, self.received = self.received[:size], self.received[size:]
        return Answer(int(status), headers, body)

    async def begun(self):
        """Wait for the first bytes of an answer."""
        while not self.received:
            await self._more()

    async def rest(self):
        """Return what comes until the server closes; b"" for a clean close now."""
        try:
            while True:
                await self._more()
        except EOFError:
            rest, self.received = self.received, b""
            return rest

    async def _until(self, mark):
        while mark not in self.received:
            await self._more()
        head, self.received = self.received.split(mark, 1)
        return head + mark

    async def _more(self):
        data = await asyncio.get_running_loop().sock_recv(self.socket, 1 << 20)
        if not data:
            raise EOFError(self.received)
        self.received += data

    def end(self):
        """Say that nothing more will be sent."""
        self.socket.shutdown(socket.SHUT_WR)

    def close(self):
        self.socket.close()

    def reset(self):
        """Close with a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def models_for_tests(held):
    """Return an engine with models, FP32 [-1] in and out: see Site."""
    engine = Engine(allow_client_shm=True)
    for version in (1, 3):
        engine.catalog.add(served("id", Identity(), version))
    engine.catalog.add(served("a/b c", Identity()))
    engine.catalog.add(served("held", held))
    engine.catalog.add(served("failing", Failing(BackendFailed("the model broke"))))
    engine.catalog.add(served("crashing", Failing(ArithmeticError("a secret"))))
    return engine


class Site:
    """A server with models, FP32 [-1] in and out: id (versions 1, 3), held, failing, crashing."""

    def __init__(self, options, engine=None, routes=None):
        self.now = 1000.0
        self.held = Held()
        self.engine = engine or models_for_tests(self.held)
        self.server = HttpServer(self.engine, options, routes=routes, clock=lambda: self.now)
        self.clients = []
        self.port = 0

    def is_loaded(self, *, broken=False):
        """Finish loading; with `broken`, one model has failed."""
        if broken:
            self.engine.catalog.set_state("broken", 1, ModelState.UNAVAILABLE, "no good file")
        self.engine.readiness.finish_loading()

    async def connect(self, **options):
        """Return a client; options are socket options set before it connects."""
        connected = socket.socket()
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for name, value in options.items():
            connected.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
        client = Client(connected)
        self.clients.append(client)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connected, ("127.0.0.1", self.port))
        return client

    def pass_time(self, seconds):
        self.now += seconds
        self.server.sweep()

    async def ask(self, *pieces):
        """Ask over a connection of its own."""
        client = await self.connect()
        answer = await client.ask(*pieces)
        client.close()
        return answer

    async def has_no_connections(self):
        """Wait until every connection has gone; then nothing may be held any more."""
        assert await self.server.endpoint.wait_until_empty(30)
        async with asyncio.timeout(30):  # an answer that is given up may end a turn later
            while self.engine.capacity.buffered_bytes:  # noqa: ASYNC110  nothing else tells
                await asyncio.sleep(0.001)
        assert not self.server.endpoint._turned_away


@pytest.fixture
def serving():
    """`async with serving(option=value) as site` runs a server on a port the system chooses.

    It serves the models of Site, or those of another `engine`, by V2's routes or other `routes`.
    """

    @asynccontextmanager
    async def serve(
        *, loaded=True, engine=None, routes=None, max_inflight_bytes=UNLIMITED, **changes
    ):
        site = Site(msgspec.structs.replace(OPTIONS, **changes), engine, routes)
        site.engine.capacity.max_bytes = max_inflight_bytes
        if loaded:
            site.is_loaded()
        site.port = await site.server.start("127.0.0.1", 0)
        try:
            yield site
        finally:
            for client in site.clients:
                client.close()
            site.server.close()
            await site.has_no_connections()

    return serve


@pytest.fixture(scope="session")
def models():
    """models() is an engine with the models of `serving`, and what holds the model "held"."""

    def build():
        held = Held()
        return models_for_tests(held), held

    return build


@pytest.fixture(scope="session")
def add_model():
    """add_model(engine, name, scheduler, setting=...) adds a model T -> T, FP32 [-1]."""

    def add(engine, name, scheduler, **settings):
        engine.catalog.add(served(name, scheduler, **settings))

    return add


@pytest.fixture(scope="session")
def infer():
    """infer(values, model, *header lines) is the bytes of an inference request, JSON in and out."""
    return infer_bytes


def infer_bytes(values=(1.5,), *lines, model="id", **how):
    tensor = {"name": "T", "datatype": "FP32", "shape": [len(values)], "data": values}
    body = msgspec.json.encode({"inputs": [tensor]})
    return post_bytes(f"/v2/models/{model}/infer", body, *lines, **how)


class Scripted:
    """A scheduler of a decoupled model that answers as the test says, while somebody listens.

    `say` is a queue: a float is an answer, an error is raised, an InferResponse is answered as it
    is, None is the end. `taken` counts the
    answers that were asked for, and `left` is set when the stream was closed.
    """

    def __init__(self):
        self.say = asyncio.Queue()
        self.taken = 0
        self.started = asyncio.Event()
        self.left = asyncio.Event()
        self.requests = []

    async def stream(self, request):
        self.requests.append(request)
        self.started.set()
        try:
            while (said := await self.say.get()) is not None:
                self.taken += 1
                if isinstance(said, Exception):
                    raise said
                if isinstance(said, InferResponse):
                    yield said
                    continue
                tensor = Tensor.from_numpy("T", np.atleast_1d(np.float32(said)), DataType.FP32)
                yield InferResponse("", "", outputs=[tensor], final=False)
        finally:
            self.left.set()


@pytest.fixture(scope="session")
def identity():
    """Return an Identity."""
    return Identity()


@pytest.fixture
def scripted():
    """A new Scripted."""
    return Scripted()


@pytest.fixture(scope="session")
def post():
    """post(path, body, *header lines) is the bytes of a request; as_chunks cuts the body."""
    return post_bytes


def post_bytes(path, body=b"", *lines, as_chunks=0, version="1.1", length=None):
    framing = f"Content-Length: {len(body) if length is None else length}"
    if as_chunks:
        framing = "Transfer-Encoding: chunked"
        cuts = [body[at : at + as_chunks] for at in range(0, len(body), as_chunks)]
        body = b"".join(b"%x\r\n%b\r\n" % (len(cut), cut) for cut in (*cuts, b""))
    head = "\r\n".join([f"POST {path} HTTP/{version}", "Host: there", framing, *lines])
    return head.encode() + b"\r\n\r\n" + body


@pytest.fixture(scope="session")
def binary():
    """binary(data, *header lines) is a raw binary request: FP32 in, the same bytes out."""

    def build(data, *lines, model="id", **how):
        lines = ("Inference-Header-Content-Length: 0", *lines)
        return post_bytes(f"/v2/models/{model}/infer", data, *lines, **how)

    return build


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """Paths of a certificate for 127.0.0.1 that signs itself, and of its key."""
    folder = tmp_path_factory.mktemp("tls")
    names = ["-subj", "/CN=server", "-addext", "subjectAltName=IP:127.0.0.1"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    command = ["openssl", "req", "-x509", *key, "-keyout", "key.pem", "-out", "cert.pem", *names]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture
def tls_context(certificate):
    """The server's side of TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context
