"""Starts our own server as a subprocess for the length of a run."""

import json
import os
import re
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
    """Where a server listens; `grpc` and `metrics`, a URL, are None when they are not tested."""

    url: str
    grpc: str | None
    metrics: str | None


@contextmanager
def serve(repository: Path, *options: str, ready: bool = True) -> Iterator[Target]:
    """Run `inferd serve` on `repository`, on ports the system chooses, until the block ends.

    `options` are further flags. The server has said where it listens once every model was tried;
    `ready` says whether to wait, too, until it is ready.
    """
    command = [
        sys.executable, "-m", "inferd", "serve", str(repository),
        "--http-address", "127.0.0.1", "--http-port", "0",
        "--grpc-address", "127.0.0.1", "--grpc-port", "0",
        "--metrics-port", "0", *options,
    ]  # fmt: skip
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            target = wait(process, log.fileno(), ready=ready)
            yield target
        finally:
            process.terminate()
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait(process: subprocess.Popen[bytes], log: int, *, ready: bool) -> Target:
    """Return where the server listens; raise with its output when it ends or takes too long."""
    deadline = time.monotonic() + DEADLINE_S
    said = ""
    while time.monotonic() < deadline and process.poll() is None:
        said = os.pread(log, os.fstat(log).st_size, 0).decode(errors="replace")
        http = re.search(r"^HTTP +(http://\S+)$", said, re.MULTILINE)
        grpc = re.search(r"^gRPC +(\S+)$", said, re.MULTILINE)
        metrics = re.search(r"^Metrics +(\S+)$", said, re.MULTILINE)
        if http and grpc and metrics:
            target = Target(http[1], grpc[1], metrics[1])
            if not ready or Rest(target.url).get("/v2/health/ready").status == 200:
                return target
        time.sleep(0.05)
    msg = f"the server did not become ready (exit status {process.poll()}); it said:\n{said}"
    raise RuntimeError(msg)


def announce(**addresses: str) -> None:
    """Print where a server listens, as one JSON line, for the process that started it."""
    print(json.dumps(addresses), flush=True)
