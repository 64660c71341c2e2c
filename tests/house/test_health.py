"""Health answers at once, whatever the models do."""

import asyncio
import statistics
import time

import grpc
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferd.config.server import ServerConfig
from inferd.core.request import InferRequest
from inferd.server.server import Server
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

WIDTH = 1024
LAYERS = 50  # of 4 MiB each
# Processor time of the whole process from question to answer: other programs may have the machine
# meanwhile, and models compute meanwhile, too.
USUAL_S = 0.1
WORST_S = 1.0
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
TINY = 'backend: "identity"\n' + "".join(
    f'{kind} {{ name: "{kind.upper()}0" data_type: TYPE_FP32 dims: -1 }}\n'
    for kind in ("input", "output")
)
HANG = 'backend: "faulty"\nparameters { key: "fault" value: { string_value: "hang" } }'


@pytest.fixture
def repository(tmp_path):
    """A model of 200 MiB, one that hangs, and one that answers at once."""
    generator = np.random.default_rng(7)
    weights = [
        numpy_helper.from_array(generator.random((WIDTH, WIDTH), np.float32), f"W{layer}")
        for layer in range(LAYERS)
    ]
    names = ["X", *(f"X{layer}" for layer in range(1, LAYERS)), "Y"]
    nodes = [
        helper.make_node("MatMul", [names[layer], f"W{layer}"], [names[layer + 1]])
        for layer in range(LAYERS)
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", WIDTH]) for name in ("X", "Y")
    ]
    graph = helper.make_graph(nodes, "graph", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid("", 21)]
    content = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    for name, text in {"big": "max_batch_size: 256", "hang": HANG, "tiny": TINY}.items():
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(text)
    (tmp_path / "big" / "1" / "model.onnx").write_bytes(content)
    return tmp_path


async def http_live(port):
    """Yield what passed until each answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while True:
            started = time.process_time()
            writer.write(LIVE)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split()[0]))
            yield time.process_time() - started
    finally:
        writer.close()


async def grpc_live(port):
    """Yield what passed until each answer."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        while True:
            started = time.process_time()
            assert await call(b"") == b"\x08\x01"
            yield time.process_time() - started


async def times(server, while_):
    """Return what passed until health had answered, again and again until `while_` had ended."""
    found = []
    for answers in (http_live(server.http_port), grpc_live(server.grpc_port)):
        await anext(answers)  # connects
        found.append((answers, []))
    while not while_.done():
        for answers, took in found:
            took.append(await anext(answers))
    for answers, _ in found:
        await answers.aclose()
    return [took for _, took in found]


def check(all_times):
    for took in all_times:
        assert len(took) >= 5
        assert statistics.median(took) < USUAL_S
        assert max(took) < WORST_S


def request_of(model, name, shape):
    array = np.full(shape, 1 / WIDTH, np.float32)
    return InferRequest(model, inputs=[Tensor.from_numpy(name, array, DataType.FP32)])


async def infer(engine, request, count):
    for _ in range(count):
        await engine.infer(request)
        await asyncio.sleep(0)  # other connections get their turn between two requests


@pytest.mark.slow
def test_health_answers_at_once_while_models_load_run_and_hang(repository):
    config = ServerConfig(http_port=0, grpc_port=0, model_repository=(str(repository),))

    async def serve():
        server = Server(config)
        await server.open()
        loading = asyncio.create_task(server.load())
        while_loading = await times(server, loading)
        engine = server.engine
        assert engine.catalog.names() == ["big", "hang", "tiny"]
        hanging = asyncio.create_task(engine.infer(request_of("hang", "INPUT0", (1,))))
        running = asyncio.gather(
            *(infer(engine, request_of("big", "X", (256, WIDTH)), 3) for _ in range(2)),
            infer(engine, request_of("tiny", "INPUT0", (16,)), 1000),
        )
        while_running = await times(server, running)
        await running
        assert not hanging.done()
        await server.stop()
        await hanging
        return while_loading, while_running

    for found in asyncio.run(serve()):
        check(found)
