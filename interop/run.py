"""Runs the tests of other projects' clients, each in an environment of its own.

    python interop/run.py [--install] [NAME...]

A folder with requirements.txt is tested by pytest in a virtual environment, one with package.json
by Node's own test runner. All environments stay in .venv-interop/ and are made anew when what they
need has changed.
"""

import ctypes.util
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
ENVIRONMENTS = ROOT / ".venv-interop"
PROTOS = [ROOT / "src/inferd/wire/proto", ROOT / "src/inferd/config/proto"]
HOST = "127.0.0.1"
READY_WITHIN_S = 60.0
TESTS_WITHIN_S = 300

IDENTITY = """backend: "identity"
input {{ name: "INPUT0" data_type: TYPE_{datatype} dims: {dims} }}
output {{ name: "OUTPUT0" data_type: TYPE_{datatype} dims: {dims} }}
"""
ROWS = """backend: "identity"
max_batch_size: 64
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 3 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "labels.txt" }
"""
REPEAT = """backend: "repeat"
model_transaction_policy { decoupled: true }
input [ { name: "IN" data_type: TYPE_INT32 dims: -1 },
        { name: "DELAY" data_type: TYPE_UINT32 dims: -1 },
        { name: "WAIT" data_type: TYPE_UINT32 dims: 1 } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: 1 },
         { name: "IDX" data_type: TYPE_UINT32 dims: 1 } ]
"""
# A folder of MLServer's: one tree of LightGBM's, which says 1 where "a" is at most 0.5, else 2.
SETTINGS = {"name": "forest", "implementation": "mlserver_lightgbm.LightGBMModel"}
FOREST = """tree
version=v4
num_class=1
num_tree_per_iteration=1
label_index=0
max_feature_idx=1
objective=regression
feature_names=a b
feature_infos=[0:1] [0:1]
tree_sizes=300

Tree=0
num_leaves=2
num_cat=0
split_feature=0
split_gain=1
threshold=0.5
decision_type=2
left_child=-1
right_child=-2
leaf_value=1 2
leaf_weight=1 1
leaf_count=1 1
internal_value=0
internal_weight=0
internal_count=2
is_linear=0
shrinkage=1


end of trees
"""
DATATYPES = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"]
DATATYPES += ["FP16", "FP32", "FP64", "STRING"]


def write_repository(folder: Path) -> None:
    """Write identity models for every datatype, rows that batch, sequences, and the digits."""
    for datatype in DATATYPES:
        name = f"echo_{datatype.replace('STRING', 'BYTES')}"
        (folder / name / "1").mkdir(parents=True)
        text = IDENTITY.format(datatype=datatype, dims="[ -1, -1 ]")
        (folder / name / "config.pbtxt").write_text(text)
    (folder / "rows" / "1").mkdir(parents=True)
    (folder / "rows" / "config.pbtxt").write_text(ROWS)
    (folder / "rows" / "labels.txt").write_text("red\ngreen\nblue\n")
    (folder / "forest").mkdir()
    (folder / "forest" / "model-settings.json").write_text(json.dumps(SETTINGS))
    (folder / "forest" / "model.txt").write_text(FOREST)
    (folder / "repeat" / "1").mkdir(parents=True)
    (folder / "repeat" / "config.pbtxt").write_text(REPEAT)
    shutil.copytree(ROOT / "conformance" / "repos" / "v2" / "seq", folder / "seq")
    shutil.copytree(ROOT / "examples" / "digits" / "models" / "digits", folder / "digits")


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a certificate for HOST that signs itself, and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    names = ["-subj", "/CN=server", "-addext", f"subjectAltName=IP:{HOST}"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    command = ["openssl", "req", "-x509", *kind, "-keyout", key, "-out", cert, *names]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


@contextmanager
def free_ports(count: int) -> Iterator[list[int]]:
    """Give TCP ports that the system gives to nobody else until the block ends."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as a server does
            probe.bind((HOST, 0))
        yield [probe.getsockname()[1] for probe in probes]


@contextmanager
def serving(repository: Path, log: Path, *flags: str, tls: Path | None = None) -> Iterator[None]:
    """Run a server until the block ends; its log must not tell of anything unexpected."""
    command = [sys.executable, "-m", "inferd", "serve", str(repository), *flags]
    command += [f"--{one}-address={HOST}" for one in ("http", "grpc", "metrics")]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        [port] = [flag.split("=")[1] for flag in flags if flag.startswith("--http-port")]
        wait_ready(process, f"{'https' if tls else 'http'}://{HOST}:{port}", log, tls)
        yield
    finally:
        process.terminate()
        process.wait(30)
    said = log.read_text()
    if "Traceback" in said or "unexpected failure" in said:
        sys.exit(f"a server says:\n{said}")


def wait_ready(process: subprocess.Popen[bytes], url: str, log: Path, tls: Path | None) -> None:
    """Wait until the server is ready. Exits, with its last words, if it never is."""
    context = ssl.create_default_context(cafile=tls) if tls else None
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/v2/health/ready", context=context):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.02)
    process.kill()
    sys.exit(f"a server did not become ready:\n{log.read_text()}")


@contextmanager
def all_servers(folder: Path) -> Iterator[dict[str, dict[str, str]]]:
    """Run the three servers; gives how to reach each."""
    repository = folder / "models"
    write_repository(repository)
    cert, key = write_certificate(folder)
    secure = ["--http-use-ssl", f"--http-server-cert={cert}", f"--http-server-key={key}"]
    with ExitStack() as stack:
        http, grpc, metrics, one, tls = stack.enter_context(free_ports(5))
        flags = {
            "two_ports": [
                f"--http-port={http}",
                f"--grpc-port={grpc}",
                f"--metrics-port={metrics}",
            ],
            "one_port": [f"--http-port={one}", f"--grpc-port={one}", "--metrics-port=0"],
            "tls": [f"--http-port={tls}", f"--grpc-port={tls}", "--metrics-port=0", *secure],
        }
        for name, words in flags.items():
            trusted = cert if name == "tls" else None
            server = serving(repository, folder / f"{name}.log", *words, tls=trusted)
            stack.enter_context(server)
        yield {
            "two_ports": {
                "url": f"http://{HOST}:{http}",
                "grpc": f"{HOST}:{grpc}",
                "metrics": f"http://{HOST}:{metrics}/metrics",
            },
            "one_port": {"url": f"http://{HOST}:{one}", "grpc": f"{HOST}:{one}"},
            "tls": {"url": f"https://{HOST}:{tls}", "grpc": f"{HOST}:{tls}", "ca": str(cert)},
        }


def is_made(environment: Path, needs: Path) -> bool:
    """Tell whether the environment is there and was made for just these needs."""
    made = environment / "made-for"
    return made.exists() and made.read_text() == needs.read_text()


def make_python(name: str) -> list[str]:
    """Make the virtual environment of a client; return the command that tests it."""
    environment, needs = ENVIRONMENTS / name, HERE / name / "requirements.txt"
    python = environment / "bin" / "python"
    if not is_made(environment, needs):
        print(f"Installing {name} into {environment.relative_to(ROOT)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        install = [python, "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
        subprocess.run([*install, "-r", needs], check=True)
        (environment / "made-for").write_text(needs.read_text())
    # From the root, so that the folder kserve is not taken for the package kserve.
    where = ["-c", str(HERE / "pytest.ini"), "--rootdir", str(ROOT)]
    return [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *where]


def make_node(name: str) -> list[str]:
    """Install the packages of a Node client; return the command that tests it."""
    environment, needs = ENVIRONMENTS / name, HERE / name / "package.json"
    if not is_made(environment, needs):
        print(f"Installing {name} into {environment.relative_to(ROOT)}", flush=True)
        shutil.rmtree(environment, ignore_errors=True)
        environment.mkdir(parents=True)
        shutil.copy(needs, environment)
        install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"]
        subprocess.run(install, cwd=environment, check=True)
        (environment / "made-for").write_text(needs.read_text())
    return ["node", "--test", "--test-reporter=spec"]


def command_for(name: str) -> list[str]:
    """Make the environment of a client; return the command that tests it."""
    folder = HERE / name
    if (folder / "package.json").exists():
        return [*make_node(name), *sorted(map(str, folder.glob("*.test.js")))]
    return [*make_python(name), str(folder)]


def run_tests(name: str, servers: dict[str, dict[str, str]]) -> bool:
    """Run the tests of one client; tell whether all is well."""
    environ = {**os.environ, "SERVERS": json.dumps(servers)}
    environ["NODE_PATH"] = str(ENVIRONMENTS / name / "node_modules")  # these two are for Node
    environ["PROTOS"] = os.pathsep.join(map(str, PROTOS))
    command = command_for(name)
    print(f"--- {name}", flush=True)
    return not subprocess.run(command, env=environ, timeout=TESTS_WITHIN_S, check=False).returncode


def missing(name: str) -> str | None:
    """Return what a client needs and this machine lacks, or None."""
    if name == "grpc_js" and not (shutil.which("node") and shutil.which("npm")):
        return "no node and npm here"
    if name == "perf_analyzer" and not ctypes.util.find_library("b64"):
        return "no libb64 here (Debian's package libb64-0d)"
    if name == "tensorrtserver" and not (shutil.which("cc") and shutil.which("nm")):
        return "no C compiler here"
    if name == "tensorrtserver" and sys.version_info >= (3, 12):
        return "its numpy has no wheel for Python 3.12"
    return None


def main() -> int:
    """Test the clients named, or all, or only install them; return 1 when one of them fails."""
    known = sorted(file.parent.name for file in HERE.glob("*/requirements.txt"))
    known += sorted(file.parent.name for file in HERE.glob("*/package.json"))
    words = sys.argv[1:]
    names = [word for word in words if word != "--install"] or known
    if unknown := set(names) - set(known):
        sys.exit(f"there is no client {', '.join(unknown)}, expected of {', '.join(known)}")
    skipped = {name: reason for name in names if (reason := missing(name))}
    names = [name for name in names if name not in skipped]
    if "--install" in words:
        for name in names:
            command_for(name)
        return 0
    with tempfile.TemporaryDirectory() as folder, all_servers(Path(folder)) as servers:
        failed = [name for name in names if not run_tests(name, servers)]
    for name, reason in skipped.items():
        print(f"skipped: {name}: {reason}")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
