"""Runs the same checks of inferd.client against inferd, Triton, MLServer and KServe.

    python interop/servers/run.py [NAME...]

Triton and MLServer come from the environments of `make bench-peers`, KServe from that of
`make test-interop ONLY=kserve`; one that is not there is named.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import servers  # noqa: E402
from make_models import IDENTITY_CONFIG, SIMPLE_CONFIG, simple_model, write_model  # noqa: E402
from python_models import write_python_identity, write_python_simple  # noqa: E402

KSERVE = ROOT / ".venv-interop" / "kserve" / "bin" / "python"
MLSERVER = ROOT / ".venv-peers" / "bin" / "mlserver"
TRITON = ROOT / ".venv-triton"
NAMES = ("inferd", "mlserver", "triton", "kserve")


@contextmanager
def run_kserve(work: Path) -> Iterator[servers.Server]:
    """Run KServe's own Python server."""
    ports = servers.free_port(), servers.free_port()
    program = Path(__file__).with_name("kserve_model.py")
    command = [str(KSERVE), str(program), str(ports[0]), str(ports[1])]
    with servers.run_server("kserve", command, ports, work / "kserve.log") as server:
        yield server


@contextmanager
def running(name: str, work: Path) -> Iterator[servers.Server | None]:
    """Run the server `name`; gives None if it is not installed."""
    models = work / "models"
    write_model(models, "simple", SIMPLE_CONFIG, simple_model())
    write_model(models, "identity_fp32", IDENTITY_CONFIG, None)
    if name == "inferd":
        with servers.run_inferd(models, work) as server:
            yield server
    elif name == "mlserver" and MLSERVER.exists():
        with servers.run_mlserver(MLSERVER, models, work) as server:
            yield server
    elif name == "triton" and servers.has_triton(TRITON):
        write_python_simple(work / "python", "simple")
        write_python_identity(work / "python", "identity_fp32")
        with servers.run_triton(TRITON, work / "python", work) as server:
            yield server
    elif name == "kserve" and KSERVE.exists():
        with run_kserve(work) as server:
            yield server
    else:
        yield None


def check(name: str) -> int:
    """Run the checks against one server; return the exit status."""
    with tempfile.TemporaryDirectory() as folder, running(name, Path(folder)) as server:
        if server is None:
            print(f"{name}: not installed here")
            return 0
        print(f"{name}:", flush=True)
        environ = {
            **os.environ,
            "SERVER_KIND": name,
            "SERVER_URL": f"http://{servers.HOST}:{server.port}",
            "SERVER_GRPC": f"grpc://{servers.HOST}:{server.grpc_port}",
        }
        program = str(Path(__file__).with_name("check_client.py"))
        command = [sys.executable, "-m", "pytest", "-q", "--noconftest", program]
        command += ["-p", "no:cacheprovider", "-c", str(ROOT / "interop" / "pytest.ini")]
        return subprocess.run(command, env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(max(check(name) for name in sys.argv[1:] or NAMES))
