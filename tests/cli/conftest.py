"""A server in this process, commands against it, and servers that are none."""

import json
import signal
import socket
import threading
from collections.abc import Iterator
from typing import NamedTuple

import pytest

import inferd
from inferd.cli.main import main

IDENTITY = """backend: "identity"
max_batch_size: {batch}
input {{ name: "x" data_type: TYPE_{datatype} dims: {dims} }}
output {{ name: "y" data_type: TYPE_{datatype} dims: {dims} }}
"""
MODELS = {
    "rows": IDENTITY.format(batch=8, datatype="FP32", dims="[ 3 ]"),
    "ints": IDENTITY.format(batch=0, datatype="INT32", dims="[ -1 ]"),
    "texts": IDENTITY.format(batch=0, datatype="STRING", dims="[ -1 ]"),
    "seq": IDENTITY.format(batch=4, datatype="FP32", dims="[ 1 ]") + "sequence_batching { }",
    "pixels": IDENTITY.format(batch=0, datatype="UINT8", dims="[ 2, 2, 3 ]"),
}


def counted(count: int) -> Iterator[int]:
    """The model "counted": as many answers as are wanted."""
    yield from range(count)


class Said(NamedTuple):
    """What a command returned and wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        """Its standard output as JSON."""
        return json.loads(self.out)


@pytest.fixture(scope="package")
def served(tmp_path_factory):
    """A server with identity models and a decoupled one; clients may load and unload them."""
    folder = tmp_path_factory.mktemp("models")
    for name, config in MODELS.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(config)
    options = {"model_control_mode": "explicit", "load_model": ["*"], "log_info": False}
    with inferd.Server(counted, model_repository=[str(folder)], **options) as server:
        yield server


@pytest.fixture(autouse=True)
def same_interrupt():
    """What Ctrl-C does is as before, whatever a command has made of it."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def command(capsys, monkeypatch, served):
    """command(words...) runs one against the server; `url` is another, "" for none."""
    for name in ("INFERD_URL", "INFERD_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    def run(*words, url=None, protocol="http"):
        where = served.http_url if protocol == "http" else f"grpc://{served.grpc_url}"
        where = where if url is None else url
        code = main([*words, *(["--url", where] if where else [])])
        return Said(code, *capsys.readouterr())

    return run


@pytest.fixture
def dead_url():
    """A URL at which nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{one.getsockname()[1]}"


@pytest.fixture
def other_server():
    """other_server(answer) answers the first request of each connection with bytes; host:port."""
    sockets = []

    def start(answer):
        listening = socket.create_server(("127.0.0.1", 0))
        sockets.append(listening)

        def serve():
            while True:
                try:
                    one, _ = listening.accept()
                except OSError:
                    return
                with one:
                    try:
                        request = one.recv(65536)
                        one.sendall(answer(request) if callable(answer) else answer)
                    except OSError:
                        continue

        threading.Thread(target=serve, daemon=True).start()
        return f"127.0.0.1:{listening.getsockname()[1]}"

    yield start
    for one in sockets:
        one.shutdown(socket.SHUT_RDWR)
        one.close()
