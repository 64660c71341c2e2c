"""Starts our own server as a subprocess for the length of a run."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from conformance.rest import Rest

DEADLINE_S = 60.0


@dataclass
class Target:
    """Where a server listens; `grpc` is None when only REST is tested."""

    url: str
    grpc: str | None


def free_port() -> int:
    """Return a port of 127.0.0.1 nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serve(repository: Path, *, ready: bool = True) -> Iterator[Target]:
    """Run `inferd serve` on `repository` until the block ends.

    `ready` says whether the server is to become ready; else it is waited for until it is live and
    every model has been tried.
    """
    http, grpc = free_port(), free_port()
    command = [
        sys.executable, "-m", "inferd", "serve", str(repository),
        "--http-address", "127.0.0.1", "--http-port", str(http),
        "--grpc-address", "127.0.0.1", "--grpc-port", str(grpc),
    ]  # fmt: skip
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait(Rest(f"127.0.0.1:{http}"), process, log.fileno(), ready=ready)
            yield Target(f"http://127.0.0.1:{http}", f"127.0.0.1:{grpc}")
        finally:
            process.terminate()
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait(rest: Rest, process: subprocess.Popen[bytes], log: int, *, ready: bool) -> None:
    """Poll until the server answers; raise with its output when it ends or stays away."""
    path = "/v2/health/ready" if ready else "/v2/models/single/ready"
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if rest.get(path).status == 200:
                return
        except (OSError, AssertionError):
            pass
        time.sleep(0.05)
    size = os.fstat(log).st_size
    said = os.pread(log, size, 0).decode(errors="replace")
    msg = f"the server did not become ready (exit status {process.poll()}); it said:\n{said}"
    raise RuntimeError(msg)


def announce(**addresses: str) -> None:
    """Print where a server listens, as one JSON line, for the process that started it."""
    print(json.dumps(addresses), flush=True)
