"""Confined workers: a model that tries everything gets nothing, and one that works still does.

Where the kernel cannot confine, each of these tests is that the server says so and does not start.
"""

import contextlib
import functools
import json
import os
import resource
import socket
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http
from server_process import ON_FREE_PORTS, Process
from serving import ADD_SUB, ADD_SUB_CONFIG, ONE_CONFIG, parameter, running, write_model
from tritonclient.utils import InferenceServerException

from inferd import system
from inferd.errors import InvalidConfig

MISSING = system.missing_for_confinement()

# Runs what it is sent: a body that sets `said`. It is told who the server is.
HOSTILE = """
class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        [code] = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        names = {"said": "done"}
        try:
            exec(code.decode(), names)
        except BaseException as error:
            names["said"] = type(error).__name__
        output = np.array([str(names["said"])], object)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", output)])
"""
STRINGS = ONE_CONFIG.replace("TYPE_INT32", "TYPE_STRING")
EXPLICIT = {"model_control_mode": "explicit"}

PRELUDE = """
import ctypes, errno, os, resource, shutil, socket, subprocess, sys, tempfile, threading
libc = ctypes.CDLL(None, use_errno=True)
server = os.getppid()

def raw(*call):
    if libc.syscall(*map(ctypes.c_long, call)) < 0:
        raise OSError(ctypes.get_errno(), "")

def child(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stderr.strip().rpartition("\\n")[2].partition(":")[0] if done.returncode else "done"
"""

NETWORK = {
    "tcp": "socket.create_connection(('127.0.0.1', {port}))",
    "tcp over IPv6": "socket.socket(socket.AF_INET6).connect(('::1', {port}))",
    "udp": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
    "a listener": "socket.create_server(('127.0.0.1', 0))",
    "a unix socket": "socket.socket(socket.AF_UNIX).connect('{listener}')",
    "an abstract unix socket": "socket.socket(socket.AF_UNIX).connect('\\0{abstract}')",
    "a pair that is connected elsewhere": "socket.socketpair()[0].connect('{listener}')",
    "a pair of datagrams": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "a pair of raw ones": "socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)",
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)",
    "vsock": "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
    "from a child": "said = child(sys.executable, '-c', 'import socket; socket.socket()')",
    "from a thread": "thread = threading.Thread(target=lambda: found.append(attempt()))\n"
    "found = []\n"
    "def attempt():\n"
    "    try: socket.socket()\n"
    "    except OSError as error: return type(error).__name__\n"
    "thread.start(); thread.join(); [said] = found",
}
FILES = {
    "home": "open(os.path.expanduser('~/planted'), 'w')",
    "the folder for temporary files": "open('{temporary}/planted', 'w')",
    "shared memory": "open('/dev/shm/planted', 'w')",
    "its own code": "open('{repository}/hostile/1/model.py', 'a')",
    "the code of another model": "open('{repository}/other/1/model.py', 'r+')",
    "a new file beside another model": "open('{repository}/other/1/planted', 'w')",
    "a new model": "os.mkdir('{repository}/planted')",
    "a link to another model": "os.symlink('/etc', '{repository}/planted')",
    "no more of another model": "os.unlink('{repository}/other/1/model.py')",
    "another model elsewhere": "os.rename('{repository}/other', tempfile.gettempdir() + '/other')",
    "another model cut": "os.truncate('{repository}/other/1/model.py', 0)",
    "a pipe": "os.mkfifo('{repository}/other/1/planted')",
    "through a link of its own": "link = tempfile.gettempdir() + '/link'\n"
    "os.symlink('{repository}/other/1', link); open(link + '/planted', 'w')",
    "by a child": "said = child(sys.executable, '-c', 'open(\"{repository}/planted\", \"w\")')",
    "memory of the server": "open('/proc/%d/mem' % server, 'r+b')",
    "the environment of the server": "open('/proc/%d/environ' % server).read()",
    "a descriptor of the server": "open('/proc/%d/fd/0' % server)",
}
PROCESSES = {
    "a signal to the server": "os.kill(server, 0)",
    "a signal to its group": "os.killpg(os.getpgid(server), 0)",
    "a signal by a descriptor": "import signal\nsignal.pidfd_send_signal(os.pidfd_open(server), 0)",
    "ptrace": "if libc.ptrace(16, server, None, None) < 0: raise OSError(ctypes.get_errno(), '')",
    "limits of the server": "resource.prlimit(server, resource.RLIMIT_CPU, (1, 1))",
    "the server's priority": "os.setpriority(os.PRIO_PROCESS, server, 19)",
    "the priority of all": "os.setpriority(os.PRIO_USER, 0, 19)",
    "the server's scheduler": "os.sched_setscheduler(server, os.SCHED_IDLE, os.sched_param(0))",
    "a namespace": "if libc.unshare(0x10000000) < 0: raise OSError(ctypes.get_errno(), '')",
    "another root": "os.chroot('/')",
    "keys": "raw({keyctl}, 0, -3, 1)",
    "shared memory of System V": "raw({shmget}, 0, 4096, 0o1600)",
}
NUMBERS = {
    "x86_64": {"keyctl": 250, "shmget": 29},
    "aarch64": {"keyctl": 219, "shmget": 194},
}
ALLOWED = {
    "a temporary file": "with tempfile.NamedTemporaryFile() as file: file.write(b'x')",
    "a copy with its mode and times": "shutil.copy2(sys.executable, tempfile.gettempdir())",
    "a folder, moved and removed": "folder = tempfile.mkdtemp(); os.mkdir(folder + '/a')\n"
    "os.mkdir(folder + '/b'); os.rename(folder + '/a', folder + '/b/c'); shutil.rmtree(folder)",
    "a program": "subprocess.run(['true'], check=True, stdin=subprocess.DEVNULL)",
    "a forked process": "import multiprocessing\n"
    "one = multiprocessing.get_context('fork').Process(target=int); one.start(); one.join()\n"
    "said = 'done' if one.exitcode == 0 else one.exitcode",
    "an end of its own child": "one = subprocess.Popen(['sleep', '60']); one.kill(); one.wait()",
    "an event loop": "import asyncio; asyncio.run(asyncio.sleep(0))",
    "a pair of sockets": "one, other = socket.socketpair(); one.sendall(b'x'); other.recv(1)",
    "its own limits": "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))",
    "its own processor": "os.sched_setaffinity(0, os.sched_getaffinity(0))",
    "reading": "open('/etc/hostname').read()",
    "nothing": "open(os.devnull, 'w').write('x')",
    "what is allowed by the operator": "open('{writable}/written', 'w').write('x')",
}


def refuses(root, **options):
    """A server that is to confine, where that cannot be, does not start."""
    with (
        pytest.raises(InvalidConfig, match=r"--confine-workers=on needs Linux 6\.12"),
        running(root, confine_workers=True, **options),
    ):
        pass


def where_it_can_be(test):
    """Run `test`; where the kernel cannot confine, check that the server refuses to start."""

    @functools.wraps(test)
    def instead(*_, **__):
        with tempfile.TemporaryDirectory() as folder:
            write_model(Path(folder), "m", HOSTILE, STRINGS)
            refuses(Path(folder))

    return instead if MISSING else test


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """try_it(code) has the hostile model run it; return "done", or the type of what it raised."""
    if MISSING:
        yield None
        return
    folder = tmp_path_factory.mktemp("confined")
    root, writable = folder / "models", folder / "writable"
    writable.mkdir()
    write_model(root, "hostile", HOSTILE, STRINGS)
    write_model(root, "other", ADD_SUB, ADD_SUB_CONFIG)
    places = {
        **NUMBERS[os.uname().machine],
        "repository": root,
        "writable": writable,
        "temporary": tempfile.gettempdir(),
        "listener": folder / "listener",
        "abstract": f"inferd-{os.getpid()}",
    }
    with (
        contextlib.closing(socket.socket(socket.AF_UNIX)) as listener,
        contextlib.closing(socket.socket(socket.AF_UNIX)) as abstract,
        running(root, confine_workers=True, worker_writable=(str(writable),)) as asked,
    ):
        for one, name in (
            (listener, str(places["listener"])),
            (abstract, "\0" + places["abstract"]),
        ):
            one.bind(name)
            one.listen()

        def try_it(code):
            code = PRELUDE + code.format(port=asked.server.http_port, **places)
            return asked.ask("hostile", IN=np.array([code.encode()], object))["OUT"][0].decode()

        yield try_it
        assert not (root / "planted").exists() and not Path("~/planted").expanduser().exists()
        ones = np.ones(16, np.int32)
        assert asked.ask("other", INPUT0=ones, INPUT1=ones)["OUTPUT0"].tolist() == [2] * 16


@pytest.mark.parametrize("code", NETWORK.values(), ids=NETWORK)
@where_it_can_be
def test_there_is_no_network(hostile, code):
    assert hostile(code) == "PermissionError"


@pytest.mark.parametrize("code", FILES.values(), ids=FILES)
@where_it_can_be
def test_files_elsewhere_are_not_written(hostile, code):
    assert hostile(code) == "PermissionError"


@pytest.mark.parametrize("code", PROCESSES.values(), ids=PROCESSES)
@where_it_can_be
def test_other_processes_are_out_of_reach(hostile, code):
    limits = resource.getrlimit(resource.RLIMIT_CPU)
    assert hostile(code) == "PermissionError"
    assert resource.getrlimit(resource.RLIMIT_CPU) == limits


@where_it_can_be
def test_rings_and_later_calls_are_not_there(hostile):
    assert hostile("raw(425, 1, 0)") == hostile("raw(470)") == "OSError"
    assert hostile("try: raw(425, 1, 0)\nexcept OSError as error: said = error.errno") == "38"


@where_it_can_be
def test_modes_owners_and_times_of_files_stay(hostile):
    before = Path("/etc/hostname").stat()
    for code in ("chmod('/etc/hostname', 0o777)", "utime('/etc/hostname')"):
        assert hostile(f"os.{code}") == "done"
    assert hostile("os.setxattr('/etc/hostname', 'user.a', b'x')") == "OSError"
    assert Path("/etc/hostname").stat() == before


@where_it_can_be
def test_root_is_only_not_bound_by_modes(hostile):
    kinds = "('CapPrm', 'CapEff', 'CapInh', 'CapAmb')"
    code = "said = sum(int(one.split()[1], 16) for one in open('/proc/self/status') "
    code += f"if one.startswith({kinds}))"
    assert hostile(code) in ("0", "4")  # 2 of two kinds, if root has it


@pytest.mark.parametrize("code", ALLOWED.values(), ids=ALLOWED)
@where_it_can_be
def test_what_models_do_is_left_to_them(hostile, code):
    assert hostile(code) == "done"


CALLS = """
class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        one = pb_utils.get_input_tensor_by_name(request, "IN")
        asked = pb_utils.InferenceRequest(
            model_name="double", requested_output_names=["OUT"], inputs=[one])
        return pb_utils.InferenceResponse(asked.exec().output_tensors())
"""
DOUBLE = """
class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(one, "IN").as_numpy() for one in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", 2 * one)]) for one in inputs]
"""


@where_it_can_be
def test_large_tensors_pass_through_shared_memory_and_calls(serve):
    small = ("python,shm-default-byte-size=65536",)
    options = {"confine_workers": True, "backend_config": small}
    with serve(options, calls=CALLS, double=DOUBLE) as asked:
        for count in (1, 5_000, 3_000_000):
            values = np.arange(count, dtype=np.int32)
            assert (asked.ask("calls", IN=values)["OUT"] == 2 * values).all()


@where_it_can_be
def test_models_end_and_load_again_also_from_files_that_are_sent(serve, eventually, tmp_path):
    folders = {*Path(tempfile.gettempdir()).glob("inferd-worker-*")}
    with serve({"confine_workers": True, **EXPLICIT, "load_model": ("m",)}, m=DOUBLE) as asked:
        assert asked.ask("m", IN=np.ones(1, np.int32))["OUT"] == [2]
        own = {*Path(tempfile.gettempdir()).glob("inferd-worker-*")} - folders
        assert own and all(folder.stat().st_mode & 0o777 == 0o700 for folder in own)
        code = (tmp_path / "models/m/1/model.py").read_text().replace("2 * one", "3 * one")
        config = {
            "backend": "python",
            "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [-1]}],
            "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [-1]}],
        }
        files = {"file:1/model.py": code.encode()}
        asked.http.load_model("m", config=json.dumps(config), files=files)
        assert asked.ask("m", IN=np.ones(1, np.int32))["OUT"] == [3]
        eventually(lambda: not any(folder.exists() for folder in own))


LEARNED = """
from sklearn.linear_model import LinearRegression

class TritonPythonModel:
    def initialize(self, args):
        self.learned = LinearRegression(n_jobs=2).fit([[0.0], [1.0]], [0.0, 2.0])

    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(one, "IN").as_numpy() for one in requests]
        found = [self.learned.predict(one.reshape(-1, 1)).round() for one in inputs]
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", one.astype(np.int32))])
            for one in found
        ]
"""


@pytest.mark.slow
@where_it_can_be
def test_a_framework_works(serve):
    with serve({"confine_workers": True}, m=LEARNED) as asked:
        assert asked.ask("m", IN=np.array([3, 4], np.int32))["OUT"].tolist() == [6, 8]


UNPACK = """
import pathlib, sys
folder = pathlib.Path(sys.argv[0]).parents[1]
(folder / "unpacked").write_text("done")
"""


@pytest.mark.slow
@where_it_can_be
def test_an_interpreter_that_a_model_brings_is_as_confined(serve, venv, tmp_path):
    planted = tmp_path / "planted"
    folder = venv()
    python = folder / "bin" / "python"
    python.write_text(python.read_text().replace("exec", f"echo x > {planted}\nexec"))
    (folder / "bin" / "conda-unpack").write_text(UNPACK)
    path = tmp_path / "env.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        archive.add(folder, ".")
    kept = (f"python,environment-directory={tmp_path / 'kept'}",)
    config = ONE_CONFIG + parameter("EXECUTION_ENV_PATH", path)
    with serve({"confine_workers": True, "backend_config": kept}, m=(DOUBLE, config)) as asked:
        assert asked.ask("m", IN=np.ones(1, np.int32))["OUT"] == [2]
    assert next((tmp_path / "kept").glob("*/unpacked")).read_text() == "done"
    assert not planted.exists()


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (parameter("inferd_python", "3"), "is not made with --confine-workers=on"),
        (parameter("inferd_process", "server"), "runs in a worker process"),
    ],
)
@where_it_can_be
def test_what_would_run_elsewhere_does_not_load(serve, config, told):
    with serve({"confine_workers": True, **EXPLICIT}, m=(DOUBLE, ONE_CONFIG + config)) as asked:
        with pytest.raises(InferenceServerException, match=told):
            asked.http.load_model("m")
        assert not asked.http.is_model_ready("m")


@where_it_can_be
def test_other_backends_are_confined_in_their_workers(serve, tmp_path):
    """ONNX models stay in the server unless they want otherwise: they are data."""
    places = Path(__file__).parents[3] / "examples/digits/models/digits"
    (tmp_path / "models").mkdir(exist_ok=True)
    (tmp_path / "models" / "digits").symlink_to(places)
    in_workers = ("onnxruntime,process=worker",)
    with serve({"confine_workers": True, "backend_config": in_workers}) as asked:
        metadata = asked.http.get_model_metadata("digits")
        [image] = metadata["inputs"]
        wanted = tritonclient.http.InferInput(image["name"], [1, *image["shape"][1:]], "FP32")
        wanted.set_data_from_numpy(np.zeros((1, *image["shape"][1:]), np.float32))
        assert asked.http.infer("digits", [wanted]).get_response()["outputs"]


def test_a_server_on_a_kernel_that_cannot_does_not_start(models, monkeypatch):
    monkeypatch.setenv("INFERD_WITHOUT", "landlock")
    process = Process(models(m=DOUBLE), "--confine-workers=on", *ON_FREE_PORTS)
    assert process.end() == 1
    process.process.stdout.close()
    assert "--confine-workers=on needs Linux 6.12 or newer with Landlock: this kernel has none" in (
        process.said
    )
