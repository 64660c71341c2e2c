"""Shared memory, Redis servers, collectors of spans and certificates for several folders."""

import itertools
import mmap
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

with suppress(ImportError):  # the environments of frameworks lack it
    from hypothesis import HealthCheck, settings

    # How long an example takes, or making one, says nothing of what it shows.
    settings.register_profile("inferd", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("inferd")

# Test folders are no packages: this is how tests find what several folders share.
sys.path.insert(0, str(Path(__file__).parent / "support"))

FOLDER = Path("/dev/shm")
_numbers = itertools.count()


class SharedObject:
    """An object of shared memory as a client has it: `key` is its name, `memory` its bytes."""

    def __init__(self, size):
        self.key = f"/test_inferd_{os.getpid()}_{next(_numbers)}"
        self.path = FOLDER / self.key[1:]
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self.resize(size)
        self.memory = mmap.mmap(self._fd, size)

    def resize(self, size):
        """Make it shorter or longer; of `memory` touch only what is left."""
        os.ftruncate(self._fd, size)

    def write(self, array, offset=0):
        """Put the bytes of `array` there."""
        self.memory[offset : offset + array.nbytes] = array.tobytes()

    def read(self, dtype, count, offset=0):
        """Return a copy of what is there."""
        return np.frombuffer(self.memory, dtype, count, offset).copy()

    def remove(self):
        """Take its name away."""
        self.path.unlink()

    def close(self):
        """Leave nothing behind."""
        with suppress(FileNotFoundError):
            self.remove()
        self.memory.close()
        os.close(self._fd)


@pytest.fixture(scope="session", autouse=True)
def own_crash_records(tmp_path_factory):
    """Servers here are not told of processes that other runs of the tests have killed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        yield


@pytest.fixture
def shared():
    """shared(size) makes an object of shared memory; at the end all are gone."""
    made = []

    def make(size=4096):
        made.append(SharedObject(size))
        return made[-1]

    yield make
    for each in made:
        each.close()
    assert not list(FOLDER.glob(f"test_inferd_{os.getpid()}_*"))


class Collector(ThreadingHTTPServer):
    """A receiver of OpenTelemetry's spans over HTTP that keeps what it gets."""

    daemon_threads = True  # `requests` are the path, headers and message of each

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.requests = []

    @property
    def url(self):
        """Where to send spans."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1/traces"

    def spans(self):
        """Return all spans that have come."""
        return [
            span
            for _, _, request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class _Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        # Not above: environments with a framework have no OpenTelemetry.
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
        self.server.requests.append((self.path, self.headers, request))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def collector():
    """A running Collector."""
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class RedisServer:
    """A real redis-server on `port`, which keeps nothing on disk."""

    PATIENCE_S = 30

    def __init__(self, binary, *options):
        # Bound, so that nobody else gets the port while the server is not there.
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind(("127.0.0.1", 0))
        self.port = self._place.getsockname()[1]
        port = [] if "--tls-port" in options else ["--port", str(self.port)]
        options = [option.replace("{port}", str(self.port)) for option in options]
        self._command = [binary, "--bind", "127.0.0.1", *port, "--save", "", *options]
        self._process = None

    def start(self):
        """Have it answer."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + self.PATIENCE_S
        while True:
            with suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            assert self._process.poll() is None and time.monotonic() < deadline
            time.sleep(0.001)

    def stop(self):
        """Have it end."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self):
        """Have it end for good."""
        self.stop()
        self._place.close()


@pytest.fixture
def c_compiler():
    """The path of a C compiler."""
    found = shutil.which("cc")
    if found is None:
        pytest.skip("cc is not here (Debian: gcc)")
    return found


@pytest.fixture
def redis_server():
    """redis_server(*options) is a server that has started; at the end all have ended."""
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("redis-server is not here (Debian: redis-server)")
    made = []

    def make(*options):
        made.append(RedisServer(binary, *options))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """A folder with ca.pem, and server.pem with server.key, which ca signed for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("tls")
    # Python 3.13 and later refuse a certificate authority that does not say what its key is for.
    usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    _openssl(folder, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca", *usage)
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-subj", "/CN=server"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"]
    _openssl(folder, "-keyout", "server.key", "-out", "server.pem", *signed, *names)
    return folder


def _openssl(folder, *arguments):
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    command = ["openssl", "req", "-x509", *key, *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
