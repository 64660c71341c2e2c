"""A server process to send raw frames to, and the count of the points at the end."""

import contextlib
import itertools
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

# Test folders are no packages: this is how the tests here find what they share.
sys.path.insert(0, str(Path(__file__).parent))

from raw_http2 import Peer

TRANSPORT = os.environ.get("GRPC_TRANSPORT", "own")
"""Which transport the points are asked of: own or grpcio."""

ECHO = """
backend: "identity"
input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }
"""
SLOW = 'parameters { key: "execute_delay_ms" value: { string_value: "700" } }'
ENDLESS = 'parameters { key: "execute_delay_ms" value: { string_value: "60000" } }'

_POINT = "http2_point"


def pytest_configure(config):
    config.addinivalue_line(
        "markers", f"{_POINT}(section, level, text): one rule of HTTP/2, HPACK or gRPC"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if report.when == "call" or report.failed:  # a report goes to the process that counts
        report.user_properties += [(_POINT, mark.args) for mark in item.iter_markers(_POINT)]
    return report


def pytest_terminal_summary(terminalreporter):
    points = {}
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        for name, point in getattr(report, "user_properties", ()):
            if name == _POINT:
                points.setdefault(tuple(point), set()).add(report.outcome)
    if not points:
        return
    terminalreporter.section("HTTP/2 points")
    failing = [point for point, states in points.items() if states != {"passed"}]
    for section, level, text in failing:
        terminalreporter.write_line(f"failed: {section} {level} {text}")
    passed = len(points) - len(failing)
    terminalreporter.write_line(f"{len(points)} points, {passed} passed, {len(failing)} failed")


@dataclass
class Running:
    """A server process and its gRPC port."""

    process: subprocess.Popen
    port: int
    said: list

    @property
    def resident_bytes(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024

    @property
    def socket_count(self):
        count = 0
        for link in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed since it was listed
                count += os.readlink(link).startswith("socket:")
        return count

    def wait_for(self, is_true):
        """Return whether something about the process becomes true in a minute."""
        pause, deadline = threading.Event(), time.monotonic() + 60
        while not is_true() and time.monotonic() < deadline:
            pause.wait(0.02)
        return is_true()

    @property
    def cpu_s(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100


@contextmanager
def running(repository, *flags):
    """Run a server until the block ends."""
    command = [sys.executable, "-m", "inferd", "serve", str(repository)]
    command += ["--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--http-port=0"]
    chosen = [f"--grpc-transport={TRANSPORT}"] if TRANSPORT else []
    command += ["--grpc-port=0", "--metrics-port=0", *chosen, *flags]
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
        found = re.search(r"is live at .*127\.0\.0\.1:(\d+)", "".join(said))
        assert found, "".join(said)
        yield Running(process, int(found[1]), said)
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
    """Models: echo gives back at once, slow after 0.7 s, endless not while a test runs."""
    root = tmp_path_factory.mktemp("models")
    for name, more in {"echo": "", "slow": SLOW, "endless": ENDLESS}.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(ECHO + more)
    return root


@pytest.fixture(scope="session")
def start(repository):
    """start(flags...) runs a server of the test's own for the length of a with block."""
    return lambda *flags: running(repository, *flags)


@pytest.fixture(scope="session")
def server(start):
    """The server of most tests; it counts no pings, which tests use to see who is alive."""
    with start("--grpc-http2-max-ping-strikes=0") as run:
        yield run


@pytest.fixture
def connect(server):
    """connect(settings..., options) opens a connection to `server`, or to another `port`."""
    opened = []

    def open_one(*values, port=server.port, **options):
        opened.append(Peer(port, *values, **options))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


@pytest.fixture
def peer(connect):
    """A connection that is open and settled."""
    return connect()
