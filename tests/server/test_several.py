"""Servers that are processes of one: whichever is asked tells what all have done, over sockets."""

import asyncio
import urllib.error
import urllib.request
from contextlib import asynccontextmanager

import numpy as np
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http
from prometheus_client.parser import text_string_to_metric_families
from several import Several

from inferd.config.server import ServerConfig
from inferd.server.server import Server
from inferd.wire.proto import message_class

PATIENCE_S = 30
CACHED = """
backend: "identity"
max_batch_size: 8
response_cache { enable: true }
input { name: "X" data_type: TYPE_FP32 dims: 1 }
output { name: "Y" data_type: TYPE_FP32 dims: 1 }
"""


@pytest.fixture
def config(repository):
    return ServerConfig(
        model_repository=(str(repository(m=CACHED)),),
        http_port=0,
        grpc_port=0,
        metrics_port=0,
        cache_config=("local,size=1000000",),
        metrics_config=("summary_latencies=true",),
    )


@asynccontextmanager
async def running(config, several, number):
    async with Server(config) as server:
        several.start(number, server.engine)
        yield server


def infer(server, value):
    """Ask a server, once over each protocol."""
    for client, port in ((http, server.http_port), (grpc, server.grpc_port)):
        tensor = client.InferInput("X", [1, 1], "FP32")
        tensor.set_data_from_numpy(np.array([[value]], np.float32))
        with client.InferenceServerClient(f"127.0.0.1:{port}") as connection:
            connection.infer("m", [tensor])


def read(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as answer:
        return answer.read()


def told(server):
    """Return (requests answered, cache hits), as each way of asking tells them."""
    found = set()
    with http.InferenceServerClient(f"127.0.0.1:{server.http_port}") as client:
        for stats in (client.get_inference_statistics(), client.get_inference_statistics("m")):
            [row] = stats["model_stats"]
            counts = row["inference_stats"]
            found.add((counts["success"]["count"], counts["cache_hit"]["count"]))
    with grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        [row] = client.get_inference_statistics("m").model_stats
        found.add((row.inference_stats.success.count, row.inference_stats.cache_hit.count))
    metrics = metrics_of(server)
    hits = metrics["nv_cache_num_hits"]
    assert hits == metrics["nv_cache_num_hits_per_model_total"]
    found.add((metrics["nv_inference_request_success_total"], hits))
    [one] = found
    return one


def metrics_of(server):
    text = read(server.metrics_port, "/metrics").decode()
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "quantile" not in sample.labels
    }


def status_of(server):
    status = message_class("nvidia.inferenceserver.ServerStatus")()
    status.ParseFromString(read(server.http_port, "/api/status?format=binary"))
    return status


def test_each_process_tells_what_all_have_done(config):
    several = Several()

    async def go():
        async with running(config, several, 0) as first:
            async with running(config, several, 1) as second:
                await asyncio.to_thread(infer, first, 1.0)
                await asyncio.to_thread(infer, second, 2.0)
                for server in (first, second):
                    assert await asyncio.to_thread(told, server) == (4, 2)
                await asyncio.to_thread(infer, second, 3.0)
            before = await asyncio.to_thread(metrics_of, first)
            assert before["nv_inference_request_success_total"] == 6
            several.keep(1)
            several.end(1)
            assert await asyncio.to_thread(told, first) == (6, 3)
            async with running(config, several, 1) as third:
                await asyncio.to_thread(infer, third, 4.0)
                assert await asyncio.to_thread(told, third) == (8, 4)
                after = await asyncio.to_thread(metrics_of, third)
                counters = [name for name in before if name.endswith(("_total", "_count"))]
                assert len(counters) > 20
                assert all(after[name] >= before[name] for name in counters)

    asyncio.run(go())


def test_the_status_of_the_old_api_is_that_of_all(config):
    several = Several()

    async def go():
        async with running(config, several, 0) as first, running(config, several, 1) as second:
            await asyncio.to_thread(infer, first, 1.0)
            await asyncio.to_thread(infer, second, 2.0)
            for count, server in enumerate((first, second, first)):
                status = await asyncio.to_thread(status_of, server)
                assert status.status_stats.success.count == count
                row = status.model_status["m"].version_status[1]
                assert row.model_execution_count == 2
                assert row.infer_stats[1].success.count == 4

    asyncio.run(go())


def test_numbers_of_another_process_that_cannot_be_read_are_an_error_of_the_server(config):
    several = Several()
    several.ended = [b"\x80"]

    async def go():
        async with running(config, several, 0) as server:
            for port, path, code in (
                (server.http_port, "/v2/models/stats", 500),
                (server.metrics_port, "/metrics", 500),
                (server.http_port, "/api/status", 400),  # as the old API answers any error
            ):
                with pytest.raises(urllib.error.HTTPError) as caught:
                    await asyncio.to_thread(read, port, path)
                assert caught.value.code == code
                caught.value.close()

    asyncio.run(go())
