"""The response cache as clients see it: tritonclient over both protocols, and the metrics."""

import asyncio
import time
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http

from inferd.config.server import ServerConfig
from inferd.server.server import Server

CACHED = """
backend: "identity"
max_batch_size: 8
response_cache { enable: true }
input { name: "X" data_type: TYPE_FP32 dims: 3 }
output { name: "Y" data_type: TYPE_FP32 dims: 3 label_filename: "labels.txt" }
"""
PATIENCE_S = 30
VALUES = np.array([[0.5, 2.5, 1.5]], np.float32)


@pytest.fixture
def served(repository):
    """served(ask, **options) runs `ask(server)` in a thread; the server has the model `cached`."""
    root = repository(cached=CACHED)
    (root / "cached" / "labels.txt").write_text("a\nb\nc\n")

    def serve(ask, **options):
        config = ServerConfig(
            model_repository=(str(root),),
            http_port=0,
            grpc_port=0,
            **{"cache_config": ("local,size=1000000",), **options},
        )

        async def go():
            async with Server(config) as server:
                return await asyncio.to_thread(ask, server)

        return asyncio.run(go())

    return serve


def given(client, values=VALUES):
    tensor = client.InferInput("X", list(values.shape), "FP32")
    tensor.set_data_from_numpy(values)
    return [tensor]


def hits(client):
    [row] = client.get_inference_statistics("cached")["model_stats"]
    return row["inference_stats"]["cache_hit"]["count"], row["execution_count"]


def test_all_ways_of_asking_share_the_answers(served):
    def ask(server):
        with http.InferenceServerClient(f"127.0.0.1:{server.http_port}") as rest:
            tensors = given(http)
            binary = rest.infer("cached", tensors)
            as_json = http.InferInput("X", [1, 3], "FP32")
            as_json.set_data_from_numpy(VALUES, binary_data=False)
            plain = rest.infer("cached", [as_json], request_id="7")
            assert plain.get_response()["id"] == "7"
            with grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as rpc:
                found = rpc.infer("cached", given(grpc))
            for answer in (binary, plain, found):
                assert answer.as_numpy("Y").tolist() == VALUES.tolist()
            assert hits(rest) == (2, 1)

    served(ask)


def test_classes_are_made_of_cached_answers(served):
    def ask(server):
        with http.InferenceServerClient(f"127.0.0.1:{server.http_port}") as rest:
            rest.infer("cached", given(http), outputs=[http.InferRequestedOutput("Y")])
            for count, classes in ((1, [b"2.500000:1:b"]), (2, [b"2.500000:1:b", b"1.500000:2:c"])):
                wanted = http.InferRequestedOutput("Y", class_count=count)
                answer = rest.infer("cached", given(http), outputs=[wanted])
                assert answer.as_numpy("Y").tolist() == [classes]
            assert hits(rest) == (2, 1)

    served(ask)


def test_shared_memory_goes_in_and_out_of_the_cache(served, shared):
    memory = shared(4096)
    memory.write(VALUES)

    def ask(server):
        with http.InferenceServerClient(f"127.0.0.1:{server.http_port}") as rest:
            rest.register_system_shared_memory("region", memory.key, 4096)
            tensor = http.InferInput("X", [1, 3], "FP32")
            tensor.set_shared_memory("region", VALUES.nbytes)
            for offset in (64, 128):
                wanted = http.InferRequestedOutput("Y")
                wanted.set_shared_memory("region", VALUES.nbytes, offset)
                rest.infer("cached", [tensor], outputs=[wanted])
                assert memory.read(np.float32, 3, offset).tolist() == VALUES[0].tolist()
            memory.write(np.zeros(3, np.float32), 64)  # nothing cached lies there
            memory.write(np.zeros(3, np.float32), 128)
            wanted = [http.InferRequestedOutput("Y")]
            answer = rest.infer("cached", given(http), outputs=wanted)
            assert answer.as_numpy("Y").tolist() == VALUES.tolist()
            assert hits(rest) == (2, 1)
            memory.write(2 * VALUES)
            answer = rest.infer("cached", [tensor], outputs=wanted)
            assert answer.as_numpy("Y").tolist() == (2 * VALUES).tolist()

    served(ask, allow_client_shm=True)


def test_the_metrics_tell_of_the_cache(served):
    def ask(server):
        with http.InferenceServerClient(f"127.0.0.1:{server.http_port}") as rest:
            for _ in range(3):
                rest.infer("cached", given(http))
        with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics") as answer:
            return answer.read().decode().splitlines()

    lines = served(ask)
    assert "nv_cache_num_entries 1" in lines
    assert "nv_cache_num_lookups 3" in lines
    assert 'nv_cache_num_hits_per_model{model="cached",version="1"} 2' in lines
    assert 'nv_inference_request_success{model="cached",version="1"} 3' in lines
    assert 'nv_inference_exec_count{model="cached",version="1"} 1' in lines


def test_without_a_cache_there_are_no_metrics_of_it(served):
    def ask(server):
        with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics") as answer:
            return answer.read().decode()

    assert "nv_cache" not in served(ask, cache_config=())


def test_a_server_answers_with_its_redis_and_without_it(served, redis_server):
    redis = redis_server()

    def ask(server):
        with (
            http.InferenceServerClient(f"127.0.0.1:{server.http_port}") as rest,
            grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as rpc,
        ):
            deadline = time.monotonic() + PATIENCE_S
            while hits(rest)[0] == 0:  # what is cached is stored behind the answer
                rest.infer("cached", given(http))
                assert time.monotonic() < deadline
            before = hits(rest)
            assert rpc.infer("cached", given(grpc)).as_numpy("Y").tolist() == VALUES.tolist()
            assert hits(rest) == (before[0] + 1, before[1])
            redis.stop()
            for client, kind in ((rest, http), (rpc, grpc)):
                for _ in range(3):
                    answer = client.infer("cached", given(kind))
                    assert answer.as_numpy("Y").tolist() == VALUES.tolist()
            assert hits(rest) == (before[0] + 1, before[1] + 6)

    place = ("redis,host=127.0.0.1", f"redis,port={redis.port}", "redis,socket_timeout=9000")
    served(ask, cache_config=place)
