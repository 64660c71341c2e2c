"""Checks an image with podman or docker: python deploy/image/check.py IMAGE [--program podman]

It runs as a user that is not root, on a read-only root: it gets ready, answers, passes its health
check, takes the command lines of other servers, and drains when it is stopped. Prints one line for
each, and returns how many failed. Containers use the network of this machine, on free ports.
"""

import argparse
import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

ROOT = Path(__file__).parents[2]
MOST_MEGABYTES = 300
PATIENCE_S = 60
GRACE_S = 20

SLOW = """
import inferd
import numpy as np
from numpy.typing import NDArray


@inferd.model
def slow(x: NDArray[np.float32]) -> NDArray[np.float32]:
    with open("/models/go") as go:
        print("slow has begun", flush=True)
        go.readline()
    return 2 * x
"""
"""A model that answers once a line is written to the pipe `go` beside it."""


class Running(NamedTuple):
    """A container that is ready: its `name` for the engine, its HTTP port, and what it says."""

    name: str
    port: int
    log: IO[str]

    def wait_for(self, pattern: str) -> None:
        """Read on until a line of the log matches. Raises AssertionError if none does in time."""
        _wait_for(self.log, pattern)


class Engine:
    """podman or docker, and the options that a container of the checks has."""

    def __init__(self, program: str, image: str, more: Sequence[str]) -> None:
        self.program = program
        self.image = image
        self._more = more

    def say(self, *arguments: str) -> str:
        """Return what a command of the engine prints. Raises CalledProcessError."""
        command = [self.program, *arguments]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    @contextlib.contextmanager
    def running(self, models: Path, *arguments: str) -> Iterator[Running]:
        """Run a container, and give it once it is ready; remove it afterwards.

        An absolute path as the first argument takes the place of its entry point.
        """
        port = _free_port()
        if arguments and arguments[0].startswith("/usr/bin/"):
            entry, *rest = arguments
            entries, arguments = [f"--entrypoint={entry}"], tuple(rest)
        else:
            entries = []
        options = [
            "run", "--detach", "--read-only", "--tmpfs=/tmp", "--network=host", "--cap-drop=ALL",
            "--security-opt=no-new-privileges", f"--volume={models}:/models:ro", *self._more,
        ]  # fmt: skip
        for name, value in {
            "HTTP_PORT": port, "GRPC_PORT": port, "METRICS_PORT": port,
            "HTTP_ADDRESS": "127.0.0.1", "GRPC_ADDRESS": "127.0.0.1",
        }.items():  # fmt: skip
            options.append(f"--env=INFERD_{name}={value}")
        options += entries
        container = self.say(*options, self.image, *arguments)
        try:
            with self._log(container) as log:
                _wait_for(log, r"\bready$")
                assert _ask(port, "/v2/health/ready")[0] == 200
                yield Running(container, port, log)
        finally:
            subprocess.run(
                [self.program, "rm", "--force", container], check=False, stdout=subprocess.DEVNULL
            )

    @contextlib.contextmanager
    def _log(self, container: str) -> Iterator[IO[str]]:
        """Give what a container says, as it comes; it ends when PATIENCE_S are over."""
        follower = subprocess.Popen(
            [self.program, "logs", "--follow", container],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        end = threading.Timer(PATIENCE_S, follower.kill)
        end.start()
        with follower:
            try:
                assert follower.stdout is not None
                yield follower.stdout
            finally:
                end.cancel()
                follower.kill()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def _ask(port: int, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    with contextlib.closing(client):
        client.request("GET" if body is None else "POST", path, body)
        answer = client.getresponse()
        return answer.status, answer.read()


def _wait_for(log: IO[str], pattern: str) -> None:
    said = ""
    for line in log:
        said += line
        if re.search(pattern, line.rstrip()):
            return
    msg = f"the container has not said {pattern!r}, within {PATIENCE_S} s:\n{said}"
    raise AssertionError(msg)


def check_size(engine: Engine, models: Path) -> str:
    """The image is small enough."""
    del models
    size = int(engine.say("image", "inspect", "--format={{.Size}}", engine.image)) / 1e6
    assert size < MOST_MEGABYTES, f"{size:.0f} MB"
    return f"{size:.0f} MB, fewer than {MOST_MEGABYTES}"


def check_user(engine: Engine, models: Path) -> str:
    """It does not run as root, and can write to /tmp alone."""
    with engine.running(models) as server:
        found = engine.say("exec", server.name, "id", "-u")
        assert found == "1000", found
        run = [engine.program, "exec", server.name, "touch", "/opt/x", "/tmp/x"]
        said = subprocess.run(run, capture_output=True, text=True)
        assert "/opt/x" in said.stderr, said.stderr
        assert "/tmp/x" not in said.stderr, said.stderr
    return "user 1000, read-only root"


def check_answers(engine: Engine, models: Path) -> str:
    """It answers requests, with metrics on the same port."""
    with engine.running(models) as server:
        body = (ROOT / "examples/digits/digit.json").read_bytes()
        status, answer = _ask(server.port, "/v2/models/digits/infer", body)
        assert status == 200, answer
        digit = json.loads(answer)["outputs"][0]["data"]
        assert digit == [3], digit
        assert b"inferd_inflight_requests" in _ask(server.port, "/metrics")[1]
    return "an ONNX model, over REST; metrics"


def check_health(engine: Engine, models: Path) -> str:
    """Its health check passes while the server is live, and is part of the image."""
    described = json.loads(engine.say("image", "inspect", engine.image))[0]
    health = described.get("Healthcheck") or described["Config"].get("Healthcheck")
    [program] = [word for word in health["Test"] if word.startswith("/")]
    with engine.running(models) as server:
        engine.say("exec", server.name, program)
        without = [engine.program, "exec", "--env=INFERD_HTTP_PORT=1", server.name, program]
        assert subprocess.run(without, capture_output=True).returncode == 1
    return program


def check_others(engine: Engine, models: Path) -> str:
    """The command lines of other servers start it."""
    program = "/usr/bin/tensorflow_model_server"
    lines = [
        ("tritonserver", "--model-store=/models"),
        ("mlserver", "start", "/models"),
        ("--model_path=/models/digits", "--model_name=digits", "--file_system_poll_wait_seconds=0"),
        (program, "--model_base_path=/models/digits", "--model_name=digits"),
    ]
    for line in lines:
        with engine.running(models, *line) as server:
            assert _ask(server.port, "/v2/models/digits/ready")[0] == 200, line
    return ", ".join(line[0] for line in lines)


def check_stop(engine: Engine, models: Path) -> str:
    """SIGTERM finishes what is in flight, within the grace period."""
    (models / "slow.py").write_text(SLOW)
    os.mkfifo(models / "go", 0o644)
    go = os.open(models / "go", os.O_RDWR)  # both ends: nobody waits for another to open it
    tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [4]}
    body = json.dumps({"inputs": [tensor]}).encode()
    answers: list[tuple[int, bytes]] = []
    with engine.running(models, "/models/slow.py") as server:
        url = "/v2/models/slow/infer"
        client = threading.Thread(target=lambda: answers.append(_ask(server.port, url, body)))
        client.start()
        server.wait_for("slow has begun")
        started = time.monotonic()
        stop = subprocess.Popen(
            [engine.program, "stop", f"--time={GRACE_S}", server.name], stdout=subprocess.DEVNULL
        )
        server.wait_for("SIGTERM: finishing what is in flight")
        os.write(go, b"\n")
        assert stop.wait() == 0
        took = time.monotonic() - started
        client.join()
        code = engine.say("inspect", "--format={{.State.ExitCode}}", server.name)
    os.close(go)
    assert [status for status, _ in answers] == [200], answers
    assert code == "0", code
    assert took < GRACE_S, took
    return f"the request in flight was answered, ended with 0 after {took:.1f} s of {GRACE_S}"


CHECKS = (check_size, check_user, check_answers, check_health, check_others, check_stop)


def main() -> int:
    """Run the checks; return how many failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("image")
    parser.add_argument("--program", default="podman" if shutil.which("podman") else "docker")
    parser.add_argument("--option", action="append", default=[], help="of `run`; may be repeated")
    given = parser.parse_args()
    engine = Engine(given.program, given.image, given.option)
    failed = 0
    for check in CHECKS:
        name = check.__name__.removeprefix("check_")
        with tempfile.TemporaryDirectory() as place:
            models = Path(place)
            models.chmod(0o755)
            shutil.copytree(ROOT / "examples/digits/models/digits", models / "digits")
            try:
                print(f"{name:8} ok      {check(engine, models)}", flush=True)
            except Exception as error:  # noqa: BLE001  one that fails does not hide the others
                failed += 1
                print(f"{name:8} FAILED  {type(error).__name__}: {error}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
