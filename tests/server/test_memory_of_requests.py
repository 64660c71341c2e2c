"""What ended requests held is given back at once, not when garbage is collected, long after."""

import asyncio
import gc
import json
import weakref
from collections.abc import AsyncIterator
from contextlib import suppress

import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from numpy.typing import NDArray
from patience import until
from tritonclient.utils import InferenceServerException

import inferd
from inferd.aio.event_loop import new_event_loop
from inferd.config.server import ServerConfig
from inferd.engine.loading.lookup import given_model
from inferd.http.grpc.unary_call import UnaryCall
from inferd.http.h1.connection import HttpConnection
from inferd.server.server import Server

WAITING = """
backend: "identity"
max_batch_size: 2
input { name: "x" data_type: TYPE_FP32 dims: 1 }
output { name: "x" data_type: TYPE_FP32 dims: 1 }
dynamic_batching {
  preferred_batch_size: 2
  max_queue_delay_microseconds: 60000000
  default_queue_policy { default_timeout_microseconds: TIMEOUT }
}
"""


@pytest.fixture(autouse=True)
def no_collection():
    gc.collect()  # what earlier tests have left is not counted
    gc.disable()
    yield
    gc.enable()


def waiting(timeout_us=0):
    """A model whose lone request waits for another."""
    return WAITING.replace("TIMEOUT", str(timeout_us))


def serving(serve, repository=None, *models):
    """Run serve(server) beside a server."""
    config = ServerConfig(
        http_port=0, grpc_port=0, model_repository=(str(repository),) if repository else ()
    )

    async def whole():
        async with Server(config, models=[given_model(model) for model in models]) as server:
            await serve(server)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(asyncio.wait_for(whole(), 30))


def count(kind):
    return sum(isinstance(one, kind) for one in gc.get_objects())


def has_waiting(server, model):
    [served] = server.engine.catalog.served(model)
    return served.scheduler.pending_count == 1


async def leave(writer):
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


async def sent(server, path, shape):
    """Send the request for zeros of `shape`, and return the stream to close it with."""
    _, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
    given = {"name": "x", "datatype": "FP32", "shape": shape, "data": [0.0] * shape[-1]}
    body = json.dumps({"inputs": [given]}).encode()
    head = f"POST /v2/models/{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    return writer


def zero():
    given = triton.InferInput("x", [1, 1], "FP32")
    given.set_data_from_numpy(np.zeros((1, 1), np.float32))
    return given


def test_what_waits_goes_with_its_client(repository):
    async def serve(server):
        writer = await sent(server, "waiting/infer", [1, 1])
        await until(lambda: has_waiting(server, "waiting"))
        assert count(HttpConnection) == 1
        await leave(writer)
        await until(lambda: count(HttpConnection) == 0)

    serving(serve, repository(waiting=waiting()))


def test_what_waits_goes_with_its_call(repository):
    async def serve(server):
        async with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
            call = asyncio.create_task(client.infer("waiting", [zero()]))
            await until(lambda: has_waiting(server, "waiting"))
            assert count(UnaryCall) == 1
            call.cancel()
            await until(lambda: count(UnaryCall) == 0)

    serving(serve, repository(waiting=waiting()))


def test_what_waited_too_long_goes_when_it_is_refused(repository):
    async def serve(server):
        async with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
            with pytest.raises(InferenceServerException, match="timeout expired"):
                await client.infer("impatient", [zero()])
            await until(lambda: count(UnaryCall) == 0)

    serving(serve, repository(impatient=waiting(timeout_us=20_000)))


def test_what_an_async_function_was_given_goes_with_its_client():
    seen = []

    @inferd.model
    async def idle(x: NDArray[np.float32]) -> NDArray[np.float32]:
        seen.append(weakref.ref(x))
        await asyncio.Event().wait()
        return x

    async def serve(server):
        writer = await sent(server, "idle/infer", [1000])
        await until(lambda: seen)
        assert seen[0]() is not None
        await leave(writer)
        await until(lambda: seen[0]() is None)

    serving(serve, None, idle)


def test_what_an_async_generator_has_made_goes_with_its_client():
    seen = []

    @inferd.model
    async def busy(x: NDArray[np.float32]) -> AsyncIterator[NDArray[np.float32]]:
        while True:
            answer = x + 1
            seen.append(weakref.ref(answer))
            yield answer

    async def serve(server):
        writer = await sent(server, "busy/infer_stream", [1000])
        await until(lambda: len(seen) > 2)
        await leave(writer)
        await until(lambda: not any(one() is not None for one in seen))

    serving(serve, None, busy)
