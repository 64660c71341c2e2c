"""One server process for all client tests, its model repository, and a sample of each datatype."""

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from plugins import with_plugins

PRINTED = [1.0, 1.1, 2.0, 2.1, 3.0, 3.1]
BFLOAT16 = ml_dtypes.bfloat16
PLACE = r"^(HTTP|gRPC|Metrics)  (?:https?://)?([0-9.]+:\d+)"


@dataclass
class Sample:
    """A tensor [2, 3] of one datatype, with the ends of its range."""

    datatype: str
    array: np.ndarray


def _integers(datatype, dtype):
    ends = np.iinfo(dtype)
    return Sample(datatype, np.array([[ends.min, 0, 1], [2, 100, ends.max]], dtype))


def _floats(datatype, dtype):
    ends = ml_dtypes.finfo(dtype)
    small = ends.smallest_subnormal
    return Sample(datatype, np.array([[ends.min, -0.0, small], [0.1, 1, ends.max]], dtype))


SAMPLES = [
    Sample("BOOL", np.array([[True, False, True], [False, False, True]])),
    *(_integers(f"UINT{bits}", f"uint{bits}") for bits in (8, 16, 32, 64)),
    *(_integers(f"INT{bits}", f"int{bits}") for bits in (8, 16, 32, 64)),
    _floats("FP16", np.float16),
    _floats("BF16", BFLOAT16),
    _floats("FP32", np.float32),
    _floats("FP64", np.float64),
    Sample(
        "BYTES",
        np.array(
            [[b"", b"a\x00b", b'"\\\n\x7f/'], ["äöü".encode(), "日本🚀".encode(), b"x" * 999]],
            np.object_,
        ),
    ),
]


@pytest.fixture(params=SAMPLES, ids=lambda sample: sample.datatype)
def sample(request):
    """Each datatype in turn."""
    return request.param


@pytest.fixture(scope="session")
def samples():
    """Samples by datatype."""
    return {sample.datatype: sample for sample in SAMPLES}


@pytest.fixture(scope="session")
def same():
    """same(got, expected) asserts one dtype, one shape, and bit for bit the same values."""

    def check(got, expected):
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        if got.dtype == np.object_:  # JSON gives text, binary gives bytes
            texts = [v.encode() if isinstance(v, str) else v for v in got.ravel()]
            assert texts == list(expected.ravel())
        else:
            assert got.tobytes() == expected.tobytes()

    return check


# --- the repository ---


def _identity(datatypes, batching=False, dims="-1, -1", **parameters):
    lines = ['backend: "identity"', f"max_batch_size: {8 if batching else 0}"]
    for index, datatype in enumerate(datatypes):
        tensor = f"data_type: TYPE_{datatype.replace('BYTES', 'STRING')} dims: [ {dims} ]"
        lines.append(f'input {{ name: "INPUT{index}" {tensor} }}')
        lines.append(f'output {{ name: "OUTPUT{index}" {tensor} }}')
    for key, value in parameters.items():
        lines.append(f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}')
    return "\n".join(lines)


def _ensemble(model, datatype, dims, more="", out=None, maps=("INPUT0", "OUTPUT0")):
    """Return the configuration of an ensemble of one step."""
    reads, writes = maps
    return (
        f'platform: "ensemble"\n{more}\n'
        f'input {{ name: "INPUT0" data_type: TYPE_{datatype} dims: [ {dims} ] }}\n'
        f'output {{ name: "OUTPUT0" data_type: TYPE_{datatype} dims: [ {out or dims} ] }}\n'
        f'ensemble_scheduling {{ step {{ model_name: "{model}" model_version: -1 '
        f'input_map {{ key: "{reads}" value: "INPUT0" }} '
        f'output_map {{ key: "{writes}" value: "OUTPUT0" }} }} }}'
    )


def _onnx(nodes, inputs, outputs, constants=()):
    def values(tensors):
        return [helper.make_tensor_value_info(*tensor) for tensor in tensors]

    graph = helper.make_graph(nodes, "graph", values(inputs), values(outputs), list(constants))
    opset = helper.make_opsetid("", 13)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def _add_sub():
    node = helper.make_node
    nodes = [node(op, ["INPUT0", "INPUT1"], [f"OUTPUT{i}"]) for i, op in enumerate(("Add", "Sub"))]
    both = [[(f"{kind}{i}", TensorProto.INT32, ["batch", 16]) for i in (0, 1)] for kind in _PUTS]
    return _onnx(nodes, *both)


_PUTS = ("INPUT", "OUTPUT")


def _one_to_one(nodes, datatype, out_datatype=None):
    return _onnx(
        nodes,
        [("INPUT0", datatype, ["batch", 3])],
        [("OUTPUT0", out_datatype or datatype, ["batch", 3])],
    )


def _double_halves():
    return _one_to_one([helper.make_node("Add", ["INPUT0"] * 2, ["OUTPUT0"])], TensorProto.FLOAT16)


def _strings():
    return _one_to_one([helper.make_node("Identity", ["INPUT0"], ["OUTPUT0"])], TensorProto.STRING)


def _round_to_bf16():
    nodes = [helper.make_node("Cast", ["INPUT0"], ["OUTPUT0"], to=TensorProto.BFLOAT16)]
    return _one_to_one(nodes, TensorProto.FLOAT, TensorProto.BFLOAT16)


def _printed_example():
    """Return the specs' printed model: a constant that consumes its inputs."""
    node, floating = helper.make_node, TensorProto.FLOAT
    nodes = [
        node("Cast", ["input0"], ["float0"], to=floating),
        node("Cast", ["input1"], ["float1"], to=floating),
        node("ReduceSum", ["float0"], ["sum0"], keepdims=0),
        node("ReduceSum", ["float1"], ["sum1"], keepdims=0),
        node("Add", ["sum0", "sum1"], ["sum"]),
        node("Mul", ["sum", "zero"], ["nothing"]),
        node("Add", ["printed", "nothing"], ["output0"]),
    ]
    constants = [
        helper.make_tensor("printed", floating, [3, 2], PRINTED),
        helper.make_tensor("zero", floating, [], [0.0]),
    ]
    inputs = [("input0", TensorProto.UINT32, [2, 2]), ("input1", TensorProto.BOOL, [3])]
    return _onnx(nodes, inputs, [("output0", floating, [3, 2])], constants)


_MYMODEL = """
platform: "onnxruntime_onnx"
version_policy { all { } }
input { name: "input0" data_type: TYPE_UINT32 dims: [ 2, 2 ] }
input { name: "input1" data_type: TYPE_BOOL dims: [ 3 ] }
output { name: "output0" data_type: TYPE_FP32 dims: [ 3, 2 ] }
"""
_ADD_SUB = "max_batch_size: 8"


def _write(root, name, config, files=()):
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(config)
    for version, content in dict(files).items():
        (root / name / version).mkdir(exist_ok=True)
        (root / name / version / "model.onnx").write_bytes(content)


@pytest.fixture(scope="session")
def repository(tmp_path_factory):
    """A repository of the models all tests use."""
    root = tmp_path_factory.mktemp("models")
    for each in SAMPLES:
        _write(root, f"flat_{each.datatype}", _identity([each.datatype]))
        batching = _identity([each.datatype], batching=True, dims="-1")
        _write(root, f"batch_{each.datatype}", batching)
    _write(root, "three", _identity(["FP32", "BYTES", "INT64"]))
    _write(root, "a model with ü", _identity(["INT32"]))
    animals = _identity(["FP32"], batching=True, dims="3")
    _write(root, "animals", animals.replace("output {", 'output { label_filename: "labels.txt"'))
    (root / "animals" / "labels.txt").write_text("ant\nbee\n")
    _write(root, "zoo", _ensemble("animals", "FP32", "3", "max_batch_size: 8"))
    _write(root, "repeated", _ensemble("repeat", "INT32", "-1", out="1", maps=("IN", "OUT")))
    _write(root, "slow", _identity(["FP32"], dims="1", execute_delay_ms=400))
    # Not while a test runs: who waits so long for it gives up, however busy the machine is.
    _write(root, "endless", _identity(["FP32"], dims="1", execute_delay_ms=3_600_000))
    _write(root, "repeat", 'backend: "repeat"')
    _write(root, "faulty", 'backend: "faulty"')
    onnx_config = 'backend: "onnxruntime"\nmax_batch_size: 8'
    _write(root, "add_sub", onnx_config, {"1": _add_sub()})
    _write(root, "onnx_FP16", onnx_config, {"1": _double_halves()})
    _write(root, "onnx_BYTES", onnx_config, {"1": _strings()})
    _write(root, "onnx_BF16", onnx_config, {"1": _round_to_bf16()})
    _write(root, "mymodel", _MYMODEL, {"1": _printed_example(), "2": _printed_example()})
    return root


# --- the server ---


class ServerProcess:
    """`python -m inferd serve`; `http` and `grpc` are host:port, `said` what it printed so far."""

    def __init__(self, *arguments):
        address = ("--http-address=127.0.0.1", "--grpc-address=127.0.0.1")
        ports = ("--http-port=0", "--grpc-port=0", "--metrics-port=0")
        command = (sys.executable, "-m", "inferd", "serve", *address, *ports)
        self.process = subprocess.Popen(
            [*command, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=with_plugins(),
        )
        self.said = ""
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read)  # a full pipe would block the server
        self._reader.start()
        self.wait_for(r"\b(not )?ready\b")
        places = dict(re.findall(PLACE, self.said, re.MULTILINE))
        self.http, self.grpc = places["HTTP"], places["gRPC"]
        self.metrics = places["Metrics"]

    @property
    def http_port(self):
        """The HTTP port as a number."""
        return int(self.http.rpartition(":")[2])

    def wait_for(self, pattern):
        """Wait until it says something."""
        with self._more:
            assert self._more.wait_for(lambda: re.search(pattern, self.said), 60), self.said

    def terminate(self):
        """Send SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    def end(self):
        """Wait for the end and return the exit code."""
        self._reader.join()
        return self.process.wait()

    def kill(self):
        """Leave nothing behind."""
        self.process.kill()
        self.end()
        self.process.stdout.close()

    def _read(self):
        for line in self.process.stdout:
            with self._more:
                self.said += line
                self._more.notify_all()


@pytest.fixture(scope="session")
def server(repository):
    """The server of all tests. It must end well, and have met nothing it does not understand."""
    process = ServerProcess(repository)
    try:
        yield process
        process.terminate()
        assert process.end() == 0
        assert "unexpected" not in process.said
    finally:
        process.kill()


@dataclass
class Answer:
    """An HTTP answer."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self):
        """The body as JSON."""
        return json.loads(self.body)


@pytest.fixture(scope="session")
def ask(server):
    """ask(path, body=..., headers=...) returns the Answer; a body makes it a POST."""

    def send(path, body=None, headers=None, port=server.http_port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET" if body is None else "POST", path, body, headers or {})
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    return send


@pytest.fixture
def start(repository):
    """start(arguments...) starts another server, of the same models unless others are given."""
    started = []

    def run(*arguments, models=repository):
        started.append(ServerProcess(models, *arguments))
        return started[-1]

    yield run
    for process in started:
        process.kill()


@pytest.fixture(scope="module")
def start_for_module():
    """start_for_module(arguments..., models) starts a server all tests of a module use."""
    started = []

    def run(*arguments, models):
        started.append(ServerProcess(models, *arguments))
        return started[-1]

    yield run
    for process in started:
        process.terminate()
        code = process.end()
        process.kill()
        assert (code, "unexpected" in process.said) == (0, False), process.said


@pytest.fixture(scope="session")
def broken_server(tmp_path_factory):
    """A server one of whose two models cannot be loaded."""
    root = tmp_path_factory.mktemp("broken")
    _write(root, "broken", 'backend: "faulty"\n' + _parameter("fault", "load"))
    _write(root, "sound", _identity(["FP32"], dims="1"))
    process = ServerProcess(root)
    yield process
    process.kill()


@pytest.fixture(scope="session")
def explicit_server(tmp_path_factory):
    """A server whose models clients control; what lies in `root` is for the tests to say."""
    root = tmp_path_factory.mktemp("explicit")
    process = ServerProcess(root, "--model-control-mode=explicit")
    process.root = root
    yield process
    process.kill()


@pytest.fixture
def write_identity(explicit_server):
    """write_identity(name, dims, more config) puts an identity model, FP32, into its repository."""

    def write(name, dims="1", *more):
        text = "\n".join([_identity(["FP32"], dims=dims), *more])
        if (explicit_server.root / name).exists():
            (explicit_server.root / name / "config.pbtxt").write_text(text)
        else:
            _write(explicit_server.root, name, text)

    return write


def _parameter(key, value):
    return f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}'


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """A folder with ca.pem, and server.pem and client.pem with their keys, signed by ca."""
    folder = tmp_path_factory.mktemp("tls")
    _openssl(folder, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "basicConstraints=CA:FALSE"]
    names = "subjectAltName=IP:127.0.0.1,DNS:localhost"
    for who in ("server", "client"):
        files = ["-keyout", f"{who}.key", "-out", f"{who}.pem", "-subj", f"/CN={who}"]
        _openssl(folder, *files, *signed, "-addext", names)
    return folder


def _openssl(folder, *arguments):
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    command = ["openssl", "req", "-x509", *key, *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="session")
def printed_values():
    """The FP32 values the specs print in the answer."""
    return list(PRINTED)


@pytest.fixture(scope="session")
def big():
    """20 MB of FP32 that no compression makes small, [1000, 5000]."""
    return np.random.default_rng(0).standard_normal((1000, 5000), np.float32)
