"""A server with models, asked in the words of the TensorRT Inference Server over real sockets."""

import http.client
import struct
from dataclasses import dataclass

import numpy as np
import pytest
from google.protobuf import text_format
from onnx import TensorProto, helper
from server_thread import server_in_thread

from inferd.config.server import ServerConfig
from inferd.wire.proto import message_class

PACKAGE = "nvidia.inferenceserver"
NAMES = ("INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1")


def make(name, **fields):
    """A message of the old API."""
    return message_class(f"{PACKAGE}.{name}")(**fields)


def read(name, data):
    """A message of the old API out of bytes, or of text."""
    if isinstance(data, str):
        return text_format.Parse(data, make(name))
    return message_class(f"{PACKAGE}.{name}").FromString(data)


@dataclass
class Answer:
    """An HTTP answer; names of headers in lower case."""

    code: int
    headers: dict
    body: bytes

    @property
    def status(self):
        """NV-Status, read by protobuf's own reader; it is one line of ASCII."""
        assert self.headers["nv-status"].isascii()
        return read("RequestStatus", self.headers["nv-status"])

    @property
    def reason(self):
        """The name of the status code."""
        code = self.status.DESCRIPTOR.fields_by_name["code"].enum_type
        return code.values_by_number[self.status.code].name

    @property
    def header(self):
        """NV-InferResponse."""
        assert self.headers["nv-inferresponse"].isascii()
        return read("InferResponseHeader", self.headers["nv-inferresponse"])

    def split(self, *, binary=False):
        """The raw outputs by name, and the header behind them."""
        found, at = {}, 0
        for output in self.header.output:
            if output.HasField("raw"):
                size = output.raw.batch_byte_size
                found[output.name] = self.body[at : at + size]
                at += size
        assert at < len(self.body)
        tail = self.body[at:]
        return found, read("InferResponseHeader", tail if binary else tail.decode("ascii"))


class Connection:
    """One connection to the HTTP port, kept alive."""

    def __init__(self, port):
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def ask(self, method, path, body=None, headers=()):
        """Send one request and return its answer."""
        self._connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in dict(headers).items():
            self._connection.putheader(name, value)
        if body is not None:
            self._connection.putheader("Content-Length", str(len(body)))
        elif method == "POST":
            self._connection.putheader("Content-Length", "0")
        self._connection.endheaders(body)
        answer = self._connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, found, answer.read())

    def get(self, path, **headers):
        """GET `path`."""
        return self.ask("GET", path, headers=headers)

    def post(self, path, body=b"", **headers):
        """POST to `path`."""
        return self.ask("POST", path, body, headers)

    def infer(self, model, header, body=b"", more=()):
        """An inference; `model` may go on with a version and a query."""
        return self.ask(
            "POST", f"/api/infer/{model}", body, {"NV-InferRequest": header, **dict(more)}
        )

    def close(self):
        """Hang up."""
        self._connection.close()


def _identity(*tensors, batch=0, more=""):
    lines = ['backend: "identity"', f"max_batch_size: {batch}", more]
    for index, (datatype, dims) in enumerate(tensors):
        for kind in ("INPUT", "OUTPUT"):
            label = ' label_filename: "labels.txt"' if kind == "OUTPUT" and "labels" in more else ""
            lines.append(
                f'{kind.lower()} {{ name: "{kind}{index}" data_type: TYPE_{datatype} '
                f"dims: [ {dims} ]{label} }}"
            )
    return "\n".join(lines)


def _sum_and_difference():
    kind, shape = TensorProto.INT32, ["n", 16]
    nodes = [
        helper.make_node(operator, NAMES[:2], [output])
        for operator, output in zip(("Add", "Sub"), NAMES[2:], strict=True)
    ]
    values = [helper.make_tensor_value_info(name, kind, shape) for name in NAMES]
    graph = helper.make_graph(nodes, "graph", values[:2], values[2:])
    opset = helper.make_opsetid("", 13)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    return model.SerializeToString()


SEQUENCE = "sequence_batching { max_sequence_idle_microseconds: 60000000 }"
FAULTY = 'backend: "faulty" parameters { key: "fault" value { string_value: "raise_error" } }'
POLICY = "version_policy { specific { versions: [1, 3] } }"
DELAY = 'parameters { key: "execute_delay_ms" value { string_value: "50" } }'
RESHAPED = "dims: [ 4 ] reshape { shape: [ 2, 2 ] }"
SCALAR = "dims: [ 1 ] reshape { shape: [ ] }"
GROUPS = "instance_group { count: 2 kind: KIND_CPU } instance_group { kind: KIND_CPU }"
ENSEMBLE = """
platform: "ensemble" max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: 10 }
output { name: "OUT" data_type: TYPE_FP32 dims: 10 }
ensemble_scheduling { step {
  model_name: "ten" model_version: -1
  input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "OUT" }
} }"""
MODELS = {
    "flat": (_identity(("FP32", "4")), ["1"]),
    "free": (_identity(("FP32", "-1, 2"), batch=4), ["1"]),
    "pair": (_identity(("INT32", "16"), ("INT32", "16"), batch=8), ["1"]),
    "words": (_identity(("STRING", "2"), batch=8), ["1"]),
    "ten": (_identity(("FP32", "10"), batch=8, more="# labels"), ["1"]),
    "doubles": (_identity(("FP64", "3")), ["1"]),
    "halves": (_identity(("FP16", "4")), ["1"]),
    "flags": (_identity(("BOOL", "4")), ["1"]),
    "sequence": (_identity(("INT32", "1"), batch=8, more=SEQUENCE), ["1"]),
    "some": (_identity(("INT32", "1"), more=POLICY), ["1", "2", "3"]),
    "last": (_identity(("INT32", "1")), ["1", "2"]),
    "größe": (_identity(("FP32", "3"), more="# labels"), ["1"]),
    "repeat": ('backend: "repeat"', ["1"]),
    "faulty": (FAULTY, ["1"]),
    "simple": ("max_batch_size: 8", ["1"]),
    "slow": (_identity(("FP32", "4"), more=DELAY), ["1"]),
    "shaped": (_identity(("FP32", "4"), batch=4).replace("dims: [ 4 ]", RESHAPED), ["1"]),
    "scalar": (_identity(("FP32", "1"), batch=4).replace("dims: [ 1 ]", SCALAR), ["1"]),
    "two_groups": (_identity(("FP32", "4"), more=GROUPS), ["1"]),
    "whole": (ENSEMBLE, ["1"]),
}  # fmt: skip


@pytest.fixture(scope="session")
def repository(tmp_path_factory):
    """The models of all tests."""
    root = tmp_path_factory.mktemp("models")
    for name, (config, versions) in MODELS.items():
        for version in versions:
            (root / name / version).mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(config)
        (root / name / "labels.txt").write_text("ant\nbée\ncat\n")
    (root / "simple" / "1" / "model.onnx").write_bytes(_sum_and_difference())
    return root


@pytest.fixture(scope="session")
def serve(repository):
    """`with serve(option=value) as server` runs a server of the models, in a thread."""

    def run(**options):
        ports = {"http_port": 0, "grpc_port": 0, "metrics_port": 0}
        return server_in_thread(
            ServerConfig(**{"model_repository": (str(repository),), **ports, **options})
        )

    return run


@pytest.fixture(scope="session")
def server(serve):
    """The server of most tests."""
    with serve() as running:
        yield running


@pytest.fixture
def connect():
    """connect(server) is a Connection; all are closed in the end."""
    made = []

    def to(server):
        made.append(Connection(server.http_port))
        return made[-1]

    yield to
    for connection in made:
        connection.close()


@pytest.fixture
def http_client(connect, server):
    """A Connection to the server of most tests."""
    return connect(server)


@pytest.fixture(scope="session")
def messages():
    """messages(name, field=...) makes a message of the old API, messages.read(name, data) reads."""
    make.read = read
    return make


@pytest.fixture(scope="session")
def strings():
    """strings("a", "b") is a tensor of them."""

    def encode(*texts):
        found = [text.encode() for text in texts]
        return b"".join(struct.pack("<I", len(one)) + one for one in found)

    return encode


@pytest.fixture(scope="session")
def pair():
    """The header and body of a good request to "pair", and its two arrays."""
    both = np.arange(32, dtype=np.int32).reshape(2, 16)
    header = (
        'batch_size: 1 input { name: "INPUT0" dims: 16 batch_byte_size: 64 } '
        'input { name: "INPUT1" dims: 16 batch_byte_size: 64 } '
        'output { name: "OUTPUT0" } output { name: "OUTPUT1" }'
    )
    return header, both.tobytes(), both
