"""A server process with every port open, to be attacked, and what it shows of itself."""

import contextlib
import http.client
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from plugins import with_plugins

ECHO = """
backend: "identity"
max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: -1 }
output { name: "OUT" data_type: TYPE_FP32 dims: -1 }
"""
TEXT = """
backend: "identity"
input { name: "IN" data_type: TYPE_STRING dims: -1 }
output { name: "OUT" data_type: TYPE_STRING dims: -1 }
"""
SERVICE = "/inference.GRPCInferenceService/"
OLD_SERVICE = "/nvidia.inferenceserver.GRPCService/"
PATIENCE_S = 60
MIB = 1 << 20
BODY_BYTES = 16 * MIB
ON_FREE_PORTS = [
    f"--{kind}-port=0" for kind in ("http", "grpc", "metrics", "sagemaker", "vertex-ai")
]
OPTIONS = [
    *("--http-address=127.0.0.1", "--grpc-address=127.0.0.1", *ON_FREE_PORTS),
    *("--allow-sagemaker=true", "--sagemaker-default-model=echo"),
    *("--allow-vertex-ai=true", "--vertex-ai-default-model=echo"),
    *("--model-control-mode=explicit", "--load-model=*", "--ui=full"),
    "--backend-config=python,shm-default-byte-size=65536",
    "--backend-config=python,shm-growth-limit-byte-size=8000000",
    f"--http-max-body-bytes={BODY_BYTES}",
    f"--http-max-input-size={BODY_BYTES}",
]


@dataclass
class Target:
    """A server, its `ports` by name, the `folder` that its repository and its log lie in."""

    folder: Path
    process: subprocess.Popen
    ports: dict = field(default_factory=dict)

    @property
    def repository(self):
        """The folder of models."""
        return self.folder / "models"

    @property
    def written(self):
        """The folder in which clients may choose files for logs and traces."""
        return self.folder / "written"

    def log(self):
        """Return what it has logged."""
        return (self.folder / "log.txt").read_text()

    def wait_ready(self):
        """Read the ports from the log as soon as the models have loaded."""
        deadline = time.monotonic() + PATIENCE_S
        while not re.search(r"INFO +ready$", said := self.log(), re.MULTILINE):
            assert self.process.poll() is None and time.monotonic() < deadline, said
            threading.Event().wait(0.01)
        table = r"^(HTTP|gRPC|SageMaker|Vertex AI|Metrics) +(?:http://)?127\.0\.0\.1:(\d+)"
        found = re.findall(table, said, re.MULTILINE)
        self.ports = {name: int(port) for name, port in found}

    def ask(self, method, path, body=None, headers=None, port="HTTP"):
        """Return status and body of one answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[port], timeout=PATIENCE_S)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def send(self, data, port="HTTP"):
        """Send bytes of HTTP/1.1 and return all that comes until the server hangs up."""
        with socket.create_connection(("127.0.0.1", self.ports[port]), PATIENCE_S) as client:
            received = bytearray()
            # It may be refused before all of it has come.
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                client.sendall(data)
                while piece := client.recv(65536):
                    received += piece
            return bytes(received)

    def hang_up(self, data, port="HTTP"):
        """Send bytes and no more after them; return all that comes until the server hangs up."""
        with socket.create_connection(("127.0.0.1", self.ports[port]), PATIENCE_S) as client:
            received = bytearray()
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                while piece := client.recv(65536):
                    received += piece
            return bytes(received)

    def call(self, method, message):
        """Send a message over gRPC; return the code of the status, and the answer or the error."""
        with grpc.insecure_channel(f"127.0.0.1:{self.ports['gRPC']}", _UNLIMITED) as channel:
            try:
                return grpc.StatusCode.OK, channel.unary_unary(method)(message, timeout=PATIENCE_S)
            except grpc.RpcError as error:
                return error.code(), error.details()

    def stream(self, method, messages):
        """Send messages in one stream and return those of the answer, or the error."""
        with grpc.insecure_channel(f"127.0.0.1:{self.ports['gRPC']}", _UNLIMITED) as channel:
            try:
                answers = channel.stream_stream(method)(iter(messages), timeout=PATIENCE_S)
                return grpc.StatusCode.OK, list(answers)
            except grpc.RpcError as error:
                return error.code(), error.details()

    def check_sound(self):
        """Infer over every port: whatever came before, each client gets its own values."""
        value = struct.pack("<f", os.getpid() % 1000 + 0.5)
        tensor = {"name": "IN", "datatype": "FP32", "shape": [1, 1]}
        request = {"inputs": [tensor | {"data": [struct.unpack("<f", value)[0]]}]}
        for port, path in (
            ("HTTP", "/v2/models/echo/infer"),
            ("SageMaker", "/invocations"),
            ("Vertex AI", "/predict"),
        ):
            status, answer = self.ask("POST", path, json.dumps(request), port=port)
            assert status == 200, answer
            assert json.loads(answer)["outputs"][0]["data"] == request["inputs"][0]["data"]
        code, answer = self.call(SERVICE + "ModelInfer", grpc_request(b"\1\1", value))
        assert code is grpc.StatusCode.OK and value in answer
        assert "Traceback" not in self.log()

    def descriptors(self):
        """Return how many files, sockets and pipes it has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def resident_bytes(self):
        """Return how much memory it has."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024

    def in_flight(self):
        """Return what its metrics tell of requests and bytes under way, all of which must be 0."""
        _, text = self.ask("GET", "/metrics", port="Metrics")
        return dict(re.findall(r"^(inferd_inflight\w+) (\S+)$", text.decode(), re.MULTILINE))


_UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


def start_target(folder, *more):
    """Start a server with the models "echo" and "text" in `folder`; more options may follow."""
    for name, config in (("echo", ECHO), ("text", TEXT)):
        (folder / "models" / name / "1").mkdir(parents=True)
        (folder / "models" / name / "config.pbtxt").write_text(config)
    written = folder / "written"
    written.mkdir()
    more = (f"--log-directory={written}", f"--trace-directory={written}", *more)
    command = [sys.executable, "-m", "inferd", "serve", f"--model-repository={folder / 'models'}"]
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [*command, *OPTIONS, *more], stdout=log, stderr=log, env=with_plugins()
        )
    target = Target(folder, process)
    target.wait_ready()
    return target


def field_of(number, data):
    """Return one field of a message: a number, or bytes with their length."""
    if isinstance(data, int):
        return varint(number << 3) + varint(data)
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(number):
    """Return a number as protobuf writes it; negative ones have 64 bits."""
    number &= 2**64 - 1
    pieces = bytearray()
    while number > 0x7F:
        pieces.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(pieces) + bytes([number])


def grpc_request(shape, raw, model=b"echo", more=b"", of_input=b""):
    """Return a ModelInferRequest for "IN"; `shape` are packed dims, `raw` are its contents."""
    tensor = field_of(1, b"IN") + field_of(2, b"FP32") + field_of(3, shape) + of_input
    contents = b"" if raw is None else field_of(7, raw)
    return field_of(1, model) + field_of(5, tensor) + more + contents
