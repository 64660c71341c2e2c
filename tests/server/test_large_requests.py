"""However many protocols send large requests, the server decodes and encodes one at a time."""

import asyncio
import json
import threading

import grpc
import numpy as np
import pytest
from google.protobuf import text_format
from patience import until

from inferd.aio import offload as offload_module
from inferd.aio.offload import Offload, Work
from inferd.config.server import ServerConfig
from inferd.core.request import InferRequest
from inferd.server.server import Server
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.wire.proto import message_class
from inferd.wire.v2.grpc.codec import encode_infer_request

ECHO = """
backend: "identity"
input { name: "x" data_type: TYPE_STRING dims: -1 }
output { name: "x" data_type: TYPE_STRING dims: -1 }
"""
COUNT = 10_000
TEXT = "t" * 64
STRINGS = b"".join([len(TEXT).to_bytes(4, "little"), TEXT.encode()]) * COUNT
RAW = {"name": "x", "datatype": "BYTES", "shape": [COUNT]}
V2_BODY = json.dumps({"inputs": [RAW | {"data": [TEXT] * COUNT}]}).encode()
GENERATE_BODY = json.dumps({"x": [TEXT] * COUNT}).encode()
TRTIS_HEADER = f'input {{ name: "x" dims: {COUNT} batch_byte_size: {len(STRINGS)} }}'
TRTIS_HEADER = f'batch_size: 1 {TRTIS_HEADER} output {{ name: "x" }}'
TIMES = 3


class NotingOffload(Offload):
    """Holds every function in its thread until `open` is set, and notes how many there are."""

    def __init__(self):
        super().__init__()
        self.open = threading.Event()
        self.arrived, self.begun = [], []
        self.running = dict.fromkeys(Work, 0)
        self.most = dict.fromkeys(Work, 0)

    async def run(self, work, function, *args):
        number = len(self.arrived)
        self.arrived.append(work)

        def noted(*args):
            self.begun.append((work, number))
            self.running[work] += 1  # only threads of its own kind write it, one at a time
            self.most[work] = max(self.most[work], self.running[work])
            assert self.open.wait(30)
            try:
                return function(*args)
            finally:
                self.running[work] -= 1

        return await super().run(work, noted, *args)


async def post(port, path, body, headers=""):
    """Return the whole answer, head and body, to one request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    return answer


def v2_message():
    data = np.frombuffer(STRINGS, np.uint8)
    inputs = [Tensor("x", DataType.BYTES, (COUNT,), memoryview(data))]
    return b"".join(encode_infer_request(InferRequest("echo", inputs=inputs)))


def trtis_message():
    request = message_class("nvidia.inferenceserver.InferRequest")(model_name="echo")
    request.model_version = -1
    text_format.Parse(TRTIS_HEADER, request.meta_data)
    request.raw_input.append(STRINGS)
    return request.SerializeToString()


class Calls:
    """One large call by each protocol; each returns whether its answer has the strings."""

    def __init__(self, server, channel):
        self._server = server
        self._channel = channel

    async def _post(self, port, path, body, headers=""):
        answer = await post(port, path, body, headers)
        return answer.startswith(b"HTTP/1.1 200 ") and answer.count(TEXT.encode()) == COUNT

    def rest(self):
        return self._post(self._server.http_port, "/v2/models/echo/infer", V2_BODY)

    def generate(self):
        path = "/v2/models/echo/generate"
        return self._post(self._server.http_port, path, GENERATE_BODY)

    def sagemaker(self):
        return self._post(self._server.cloud_ports["SageMaker"], "/invocations", V2_BODY)

    def trtis_rest(self):
        headers = f"NV-InferRequest: {TRTIS_HEADER}\r\n"
        return self._post(self._server.http_port, "/api/infer/echo", STRINGS, headers)

    async def _unary(self, path, message):
        answer = await self._channel.unary_unary(path)(message, timeout=30)
        return answer.count(TEXT.encode()) == COUNT

    async def _stream(self, path, message):
        [answer] = [one async for one in self._channel.stream_stream(path)(iter([message]))]
        return answer.count(TEXT.encode()) == COUNT

    def grpc_unary(self):
        return self._unary("/inference.GRPCInferenceService/ModelInfer", v2_message())

    def grpc_stream(self):
        return self._stream("/inference.GRPCInferenceService/ModelStreamInfer", v2_message())

    def trtis_grpc(self):
        return self._unary("/nvidia.inferenceserver.GRPCService/Infer", trtis_message())

    def trtis_grpc_stream(self):
        return self._stream("/nvidia.inferenceserver.GRPCService/StreamInfer", trtis_message())

    def all(self):
        protocols = (
            *(self.rest, self.generate, self.sagemaker, self.trtis_rest),
            *(self.grpc_unary, self.grpc_stream, self.trtis_grpc, self.trtis_grpc_stream),
        )
        return [asyncio.ensure_future(call()) for call in protocols * TIMES]


@pytest.fixture
def config(repository):
    models = str(repository(echo=ECHO))
    return ServerConfig(
        model_repository=(models,),
        allow_metrics=False,
        http_port=0,
        grpc_port=0,
        allow_sagemaker=True,
        sagemaker_port=0,
    )


def test_all_protocols_share_the_threads_for_large_requests(config, monkeypatch):
    asyncio.run(fill(config, monkeypatch))


async def fill(config, monkeypatch):
    server = Server(config)
    server.engine.offload = offload = NotingOffload()
    limit = [("grpc.max_receive_message_length", -1)]
    async with server:
        address = f"127.0.0.1:{server.grpc_port}"
        async with grpc.aio.insecure_channel(address, options=limit) as channel:
            calls = Calls(server, channel)
            answers = calls.all()
            await until(lambda: len(offload.arrived) == len(answers))
            await until(lambda: offload.begun)
            assert offload.begun == [(Work.DECODE, 0)]
            # Who waits counts for the whole server, whatever the protocol.
            monkeypatch.setattr(offload_module, "MAX_WAITING", len(answers))
            assert not await calls.rest()
            assert not await calls.trtis_rest()
            monkeypatch.undo()
            offload.open.set()
            assert all(await asyncio.gather(*answers))
    decoded = [number for work, number in offload.begun if work is Work.DECODE]
    assert decoded == list(range(len(answers)))  # in the order of arrival: nobody starves
    assert offload.most[Work.DECODE] == offload.most[Work.ENCODE] == 1
    assert max(offload.most.values()) == 1
