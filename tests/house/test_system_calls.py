"""What a request must not ask the system for."""

import asyncio
import socket
import sys
import threading

import pytest

from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.config.server import ServerConfig
from inferd.core.interfaces import Opened
from inferd.core.request import InferResponse
from inferd.engine.engine import Engine
from inferd.engine.serving.served import Served
from inferd.schedulers.direct import DirectScheduler
from inferd.schedulers.execution.execution import Execution
from inferd.server.options import http_options
from inferd.tensor.dtype import DataType
from inferd.transport.http_server import HttpServer

BODY = b'{"inputs":[{"name":"IO","datatype":"INT32","shape":[3],"data":[1,2,3]}]}'
HEAD = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(BODY)
REQUEST_COUNT = 40
WARM_UP_COUNT = 20
PATIENCE_S = 30


class Echo:
    """Gives its input back."""

    def execute(self, requests):
        return [InferResponse(r.model, "1", r.id, r.inputs) for r in requests]

    def close(self):
        pass


def engine_with(*, may_run_inline):
    tensor = {"name": "IO", "datatype": DataType.INT32, "dims": (3,)}
    config = ModelConfig(name="m", input=(ModelInput(**tensor),), output=(ModelOutput(**tensor),))
    instance = Echo()
    execution = Execution("m", [Opened(instance, instance)], may_run_inline=may_run_inline)
    engine = Engine()
    engine.catalog.add(Served(config, 1, "onnx_onnxv1", DirectScheduler(execution)))
    engine.readiness.finish_loading()
    return engine


def client(port, answers, warm):
    """Send requests one after the other, from a thread of its own."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
        for number in range(REQUEST_COUNT):
            if number == WARM_UP_COUNT:
                warm.set()
            connection.sendall(HEAD + BODY)
            answers.append(connection.recv(65536))


@pytest.mark.slow
def test_no_request_asks_for_the_event_loop():
    """In Python 3.11 that is getpid(), and each system call makes the code after it slow."""
    answers, asked, warm = [], [], threading.Event()

    def note(frame, event, arg):
        if event == "c_call" and arg is asyncio.get_running_loop and warm.is_set():
            asked.append(frame.f_code.co_qualname)

    async def serve():
        engine = engine_with(may_run_inline=True)
        server = HttpServer(engine, http_options(ServerConfig()))
        port = await server.start("127.0.0.1", 0)
        sys.setprofile(note)
        try:
            await asyncio.to_thread(client, port, answers, warm)
        finally:
            sys.setprofile(None)
            server.close()
            await engine.close(PATIENCE_S)

    asyncio.run(serve())
    assert [answer.partition(b"\r\n")[0] for answer in answers] == (
        [b"HTTP/1.1 200 OK"] * REQUEST_COUNT
    )
    # Once a second the server looks at its clocks: on a slow machine, during these requests too.
    assert set(asked) <= {"Listener.keep_sweeping"}
