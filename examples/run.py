"""Runs an example: starts `inferd serve` with its models, has its client ask, and ends the server.

    python examples/run.py                    which there are
    python examples/run.py pictures           one of them, on ports that the system chooses
    python examples/run.py digits --stay      and leave its server running until Ctrl-C

An example is a folder. Served are its app.py, its folder models, and what its build.py writes into
a new folder. Its client is ask.py, or ask.mjs for Node.js, given the URLs of REST and of gRPC.
"""

import argparse
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOST = "127.0.0.1"
READY_DEADLINE_S = 120.0
PLACE = re.compile(r"(HTTP|gRPC|Metrics) +(?:http://)?[\d.]+:(\d+)")
PORTS = ("http", "grpc", "metrics")
SERVED_ELSEWHERE = {"javascript": HERE / "digits" / "models"}


def examples() -> list[str]:
    """Return the names of all examples."""
    return sorted(client.parent.name for client in HERE.glob("*/ask.*"))


def models_of(name: str, folder: Path) -> list[Path]:
    """Return what an example serves; `folder` is for what it builds. Raises CalledProcessError."""
    if name in SERVED_ELSEWHERE:
        return [SERVED_ELSEWHERE[name]]
    models = [path for path in (HERE / name / "app.py", HERE / name / "models") if path.exists()]
    if (build := HERE / name / "build.py").exists():
        subprocess.run([sys.executable, str(build), str(folder)], check=True)
        models.append(folder)
    return models


def client_of(name: str) -> list[str]:
    """Return the command of an example's client; a package of Python may have brought Node.js."""
    client = next((HERE / name).glob("ask.*"))
    if client.suffix == ".py":
        return [sys.executable, str(client)]
    beside = Path(sys.executable).with_name("node")
    return [str(beside) if beside.exists() else shutil.which("node") or "node", str(client)]


def check_port(option: str, port: int) -> None:
    """Exit with advice when `port` is taken; 0 is the system's choice."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            sys.exit(
                f"Port {port} on {HOST} cannot be used ({error.strerror}). Choose another with "
                f"--{option} (make run {option.upper().replace('-', '_')}=), or 0 for a free one."
            )


@contextmanager
def serving(models: list[Path], ports: dict[str, int]) -> Iterator[dict[str, int]]:
    """Start a server and give its ports once all models are ready; end it afterwards.

    Of its output only what goes wrong reaches this terminal. Raises RuntimeError if it ends before
    it is ready, or takes too long.
    """
    command = [sys.executable, "-m", "inferd", "serve", *map(str, models)]
    command += [f"--{kind}-address={HOST}" for kind in ("http", "grpc")]
    command += [f"--{kind}-port={port}" for kind, port in ports.items()]
    server = subprocess.Popen(
        [*command, "--log-info=false", "--exit-on-error"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C comes to this process alone, which then stops the server
    )
    try:
        yield wait_ready(server)
    finally:
        server.terminate()
        try:
            server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def wait_ready(server: subprocess.Popen[str]) -> dict[str, int]:
    """Return the ports of http, grpc and metrics, which the server says once it is ready."""
    assert server.stdout is not None
    alarm = threading.Timer(READY_DEADLINE_S, server.kill)
    alarm.start()
    found = {}
    try:
        for line in server.stdout:
            if place := PLACE.match(line):
                found[place[1].lower()] = int(place[2])
            if len(found) == len(PORTS):
                return found
    finally:
        alarm.cancel()
    status = server.wait()
    msg = f"the server ended with exit status {status}; its reason stands above"
    if status == -signal.SIGKILL:
        msg = f"the server was not ready after {READY_DEADLINE_S:.0f} s"
    raise RuntimeError(msg)


def run(name: str, ports: dict[str, int], *, stay: bool) -> int:
    """Run one example; return the exit status of its client."""
    with (
        tempfile.TemporaryDirectory(prefix="inferd-example-") as folder,
        serving(models_of(name, Path(folder)), ports) as found,
    ):
        urls = [f"http://{HOST}:{found['http']}", f"grpc://{HOST}:{found['grpc']}"]
        command = [*client_of(name), *urls]
        status = subprocess.run(command, check=False).returncode
        if stay:
            print(
                f"\nThe server goes on until Ctrl-C. Its dashboard:  {urls[0]}/ui\n"
                f"Its metrics:  http://{HOST}:{found['metrics']}/metrics\n"
                f"To ask again:  {' '.join(command)}\n",
                flush=True,
            )
            threading.Event().wait()
    return status


def main() -> int:
    """Run what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", nargs="?", choices=examples(), help="which example")
    parser.add_argument("--stay", action="store_true", help="leave the server running")
    parser.add_argument("--port", type=int, default=0, help="HTTP port, 0 for a free one")
    parser.add_argument("--grpc-port", type=int, default=0, help="gRPC port, 0 for a free one")
    parser.add_argument(
        "--metrics-port", type=int, default=0, help="metrics port, 0 for a free one"
    )
    options = parser.parse_args()
    if options.name is None:
        print("\n".join(examples()))
        return 0
    wanted = (options.port, options.grpc_port, options.metrics_port)
    for option, port in zip(("port", "grpc-port", "metrics-port"), wanted, strict=True):
        check_port(option, port)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return run(options.name, dict(zip(PORTS, wanted, strict=True)), stay=options.stay)
    except KeyboardInterrupt:
        print()
        return 0
    except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
        print(f"The example {options.name} failed: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
