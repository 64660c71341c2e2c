"""Starts and stops the servers that the bench compares, and reads their CPU time and memory."""

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

HOST = "127.0.0.1"
_CPU_CLOCK = 2  # the kind of clock in the id of a process's CPU clock (clock_getcpuclockid)
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
READY_DEADLINE_S = 60.0

_STUB = "pytriton/tritonserver/python_backend_stubs/{}/triton_python_backend_stub"
_TELL_PATHS = """
import sysconfig
print(sysconfig.get_python_version(), sysconfig.get_config_var("LIBDIR"))
print(sysconfig.get_path("purelib"))
"""


@dataclass(frozen=True)
class Server:
    """A running server; a port is 0 if the server does not speak that protocol."""

    label: str
    pid: int
    port: int
    grpc_port: int = 0
    ready_s: float = field(default=0.0, compare=False)


def family(pid: int) -> list[int]:
    """Return `pid` and all its living descendants."""
    found, left = [], [pid]
    while left:
        member = left.pop()
        found.append(member)
        for children in Path(f"/proc/{member}/task").glob("*/children"):
            try:
                left += map(int, children.read_text().split())
            except OSError:
                continue  # the thread ended while we looked
    return found


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds, user and system, that `pid` and its descendants have used.

    In nanoseconds: /proc has hundredths of a second, which are too coarse for a short turn.
    """
    used_s = 0.0
    for member in family(pid):
        with suppress(OSError):  # it has ended
            used_s += own_cpu_seconds(member)
    return used_s


def own_cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process, without those of its children. Raises OSError."""
    return time.clock_gettime_ns(_CPU_CLOCK | (~pid << 3)) / 1e9


def machine_cpu_seconds() -> float:
    """Return the CPU seconds that everything on this machine has used."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICKS_PER_S  # less idle and iowait


def resident_bytes(pid: int) -> int:
    """Return the resident bytes of `pid` and its descendants, shared pages counted for each."""
    total = 0
    for member in family(pid):
        for line in Path(f"/proc/{member}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1]) * 1024
    return total


def free_port() -> int:
    """Return a TCP port that is not in use at the moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def is_ready(port: int, path: str = "/v2/health/ready") -> bool:
    """Return whether GET `path` is answered with 200, asking once."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def is_open(port: int) -> bool:
    """Return whether the port is listened on; for servers that speak no HTTP."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def wait_ready(
    process: subprocess.Popen[bytes], ports: tuple[int, int], log: Path, started: float
) -> float:
    """Return the seconds from `started` to ready. Exits with the end of the log if it fails."""
    while not (is_ready(ports[0]) if ports[0] else is_open(ports[1])):
        if process.poll() is not None or time.monotonic() > started + READY_DEADLINE_S:
            last_words = log.read_text(errors="replace")[-2000:]
            sys.exit(f"{process.args!r} did not become ready:\n{last_words}")
        time.sleep(0.002)
    return time.monotonic() - started


@contextmanager
def run_server(
    label: str, command: list[str], ports: tuple[int, int], log: Path, **environ: str
) -> Iterator[Server]:
    """Run `command` as the server `label`, with its output in `log`. Yields the ready Server."""
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environ},
        )
    try:
        ready_s = wait_ready(process, ports, log, started)
        yield Server(label, process.pid, *ports, ready_s)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def run_inferd(
    repository: Path,
    work: Path,
    grpc_transport: str = "own",
    flags: Sequence[str] = (),
    *,
    python: str = sys.executable,
    label: str = "inferd",
) -> Iterator[Server]:
    """Run the server of the environment of `python`, with default settings except for `flags`."""
    ports = (free_port(), free_port())
    command = [python, "-m", "inferd", "serve", str(repository)]
    command += ["--http-address", HOST, "--grpc-address", HOST]
    command += ["--http-port", str(ports[0]), "--grpc-port", str(ports[1]), "--metrics-port", "0"]
    command += ["--grpc-transport", grpc_transport, *flags]
    label = label if grpc_transport == "own" else grpc_transport
    with run_server(label, command, ports, work / f"{label}.log") as server:
        yield server


@contextmanager
def run_bare_grpcio(kind: str, repository: Path, work: Path) -> Iterator[Server]:
    """Run grpcio's own server, `aio` or `sync`, with minimal handlers."""
    ports = (0, free_port())
    program = Path(__file__).resolve().parent / "grpcio_server.py"
    command = [sys.executable, str(program), kind, str(repository), str(ports[1])]
    label = f"bare {kind}"
    with run_server(label, command, ports, work / f"grpcio-{kind}.log") as server:
        yield server


@contextmanager
def run_mlserver(program: Path, repository: Path, work: Path) -> Iterator[Server]:
    """Run MLServer, from its own environment, on the ONNX models of `repository`."""
    peers = Path(__file__).resolve().parent / "peers"
    folder = work / "mlserver"
    subprocess.run(
        [sys.executable, str(peers / "mlserver_folder.py"), str(repository), str(folder)],
        check=True,
    )
    ports = (free_port(), free_port())
    environ = {
        "PYTHONPATH": str(peers),
        "MLSERVER_HOST": HOST,
        "MLSERVER_HTTP_PORT": str(ports[0]),
        "MLSERVER_GRPC_PORT": str(ports[1]),
        "MLSERVER_METRICS_PORT": str(free_port()),
        "MLSERVER_PARALLEL_WORKERS": "0",
        "MLSERVER_GRPC_MAX_MESSAGE_LENGTH": str(1 << 26),
        "MLSERVER_DEBUG": "false",
    }
    command = [str(program), "start", str(folder)]
    with run_server("mlserver", command, ports, work / "mlserver.log", **environ) as server:
        yield server


def has_triton(environment: Path) -> bool:
    """Return whether an environment has Triton, with the stub that it needs for its Python."""
    stub = f"site-packages/{_STUB}"
    return any(
        (folder / stub.format(folder.name.removeprefix("python"))).exists()
        for folder in environment.glob("lib/python3*")
    )


@contextmanager
def run_triton(environment: Path, repository: Path, work: Path) -> Iterator[Server]:
    """Run Triton, from the wheel of nvidia-pytriton in `environment`, on models in Python.

    The models run on the interpreter of the environment.
    """
    printed = subprocess.run(
        [str(environment / "bin" / "python"), "-c", _TELL_PATHS],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    version, library, packages = printed.split()
    folder = Path(packages) / "pytriton" / "tritonserver"
    backends = work / "triton-backends"
    shutil.rmtree(backends, ignore_errors=True)
    shutil.copytree(folder / "backends", backends)
    shutil.copy(Path(packages) / _STUB.format(version), backends / "python")
    for name in ("numpy", "numpy.libs"):  # models import from there, not from PYTHONPATH
        (backends / "python" / name).symlink_to(Path(packages) / name)
    ports = (free_port(), free_port())
    command = [str(folder / "bin" / "tritonserver"), f"--model-repository={repository}"]
    command += [f"--backend-directory={backends}", "--allow-metrics=false"]
    command += [f"--http-address={HOST}", f"--http-port={ports[0]}"]
    command += [f"--grpc-address={HOST}", f"--grpc-port={ports[1]}"]
    libraries = f"{Path(packages) / 'nvidia_pytriton.libs'}:{library}"
    log = work / "triton.log"
    path = f"{environment / 'bin'}:{os.environ['PATH']}"  # for the models' Python to find its home
    environ = {"LD_LIBRARY_PATH": libraries, "PATH": path}
    with run_server("triton", command, ports, log, **environ) as server:
        yield server


def compile_floor(compiler: str, work: Path) -> Path:
    """Compile the C floor into `work` and return the program."""
    program = work / "floor"
    source = Path(__file__).resolve().parent / "floor.c"
    subprocess.run([compiler, "-O2", "-o", str(program), str(source)], check=True)
    return program


@contextmanager
def run_floor(program: Path, answer_bytes: int, work: Path) -> Iterator[Server]:
    """Run the floor; each of its answers has a body of `answer_bytes`, whatever the request."""
    ports = (free_port(), 0)
    command = [str(program), str(ports[0]), str(answer_bytes)]
    with run_server("floor", command, ports, work / "floor.log") as server:
        yield server
