"""The calls of V2's shared memory: HTTP over a real socket, gRPC by bytes alone."""

import asyncio
import json

import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from inferd.api.call import V2_SERVICE, grpc_handlers
from inferd.api.v2.shared_memory import CALLS
from inferd.engine.engine import Engine
from inferd.errors import InvalidRequest, RegionFailed, RegionNotFound, Unsupported

VALUES = np.arange(4, dtype=np.float32)
ALL = "/v2/systemsharedmemory"
ONE = f"{ALL}/region/r"
CUDA = "/v2/cudasharedmemory"


@pytest.fixture
def register(post):
    """register(client, object) makes the object known as "r"; returns the answer."""

    async def send(site, given, path=ONE, **fields):
        body = {"key": given.key, "byte_size": 4096, **fields}
        return await site.ask(post(f"{path}/register", json.dumps(body).encode()))

    return send


def get(path):
    return f"GET {path} HTTP/1.1\r\n\r\n".encode()


def infer_body(source=0, place=None, size=16):
    def at(offset):
        values = {"region": "r", "offset": offset, "byte_size": size}
        return {f"shared_memory_{key}": value for key, value in values.items()}

    one = {"name": "T", "datatype": "FP32", "shape": [4], "parameters": at(source)}
    body = {"inputs": [one]}
    if place is not None:
        body["outputs"] = [{"name": "T", "parameters": at(place)}]
    return json.dumps(body).encode()


async def test_the_life_of_a_region(serving, post, shared, register):
    given = shared()
    given.write(VALUES)
    entry = {"name": "r", "key": given.key, "offset": 0, "byte_size": 4096}
    async with serving() as site:
        assert (await site.ask(get(f"{ALL}/status"))).json == []
        answer = await register(site, given)
        assert (answer.status, answer.body) == (200, b"")
        assert (await site.ask(get(f"{ALL}/status"))).json == [entry]
        assert (await site.ask(get(f"{ONE}/status"))).json == [entry]
        answer = await site.ask(post("/v2/models/id/infer", infer_body(0, 64)))
        [output] = answer.json["outputs"]
        assert output == {"name": "T", "datatype": "FP32", "shape": [4]}
        assert given.read(np.float32, 4, 64).tolist() == VALUES.tolist()
        answer = await site.ask(post("/v2/models/id/infer", infer_body(64)))
        assert answer.json["outputs"][0]["data"] == VALUES.tolist()
        for path in (f"{ONE}/unregister", f"{ALL}/unregister"):
            answer = await site.ask(post(path, b""))
            assert (answer.status, answer.body) == (200, b"")
        assert (await site.ask(get(f"{ALL}/status"))).json == []
        answer = await site.ask(post("/v2/models/id/infer", infer_body()))
        assert answer.status == 404
        assert "'r'" in answer.error


async def test_what_cannot_be_registered_is_told_why(serving, post, shared, register):
    given = shared()
    async with serving() as site:
        await register(site, given)
        for path, body, status, text in (
            (ONE, {"key": given.key, "byte_size": 64}, 400, "'r' already"),
            (f"{ALL}/region/s", {"byte_size": 64}, 400, "no 'key' field"),
            (f"{ALL}/region/s", {"key": given.key}, 400, "no 'byte_size' field"),
            (f"{ALL}/region/s", {"key": "/a/b", "byte_size": 64}, 400, "no key"),
            (f"{ALL}/region/s", {"key": "inferd_x", "byte_size": 64}, 400, "reserved"),
            (
                f"{ALL}/region/s",
                {"key": "/none_of_ours", "byte_size": 64},
                500,
                "Unable to open shared memory region",
            ),
            (f"{ALL}/region/s", {"key": given.key, "byte_size": 4097}, 400, "has 4096 bytes"),
            (ALL, {"key": given.key, "byte_size": 64}, 400, "'region name' is necessary"),
            (CUDA, {}, 400, "'region name' is necessary"),
        ):
            answer = await site.ask(post(f"{path}/register", json.dumps(body).encode()))
            assert answer.status == status
            assert text in answer.error
            assert "/dev/shm" not in answer.error
        assert (await site.ask(get(f"{ONE}/register"))).status == 405
        answer = await site.ask(get(f"{ALL}/region/nope/status"))
        assert (answer.status, "'nope'" in answer.error) == (404, True)


async def test_names_are_percent_decoded(serving, shared, register):
    async with serving() as site:
        await register(site, shared(), f"{ALL}/region/a%20b%2Fc")
        [entry] = (await site.ask(get(f"{ALL}/status"))).json
        assert entry["name"] == "a b/c"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (infer_body(4084), "are not inside"),
        (infer_body(2**63 - 1), "are not inside"),
        (infer_body(-1), "shared_memory_offset"),
        (infer_body(0, 4096), "are not inside"),
        (infer_body(0, 64, 12), "Expected 16, got 12 bytes"),
    ],
)
async def test_a_bad_reference_costs_its_request_alone(serving, post, shared, register, body, text):
    given = shared()
    async with serving() as site:
        await register(site, given)
        answer = await site.ask(post("/v2/models/id/infer", body))
        assert answer.status == 400
        assert text in answer.error
        assert given.memory[:] == bytes(4096)
        assert (await site.ask(post("/v2/models/id/infer", infer_body(0, 64)))).status == 200


async def test_a_place_that_is_too_small_is_left_alone(serving, post, shared, register):
    given = shared()
    async with serving() as site:
        await register(site, given)
        body = json.loads(infer_body(0, 64))
        body["outputs"][0]["parameters"]["shared_memory_byte_size"] = 15
        answer = await site.ask(post("/v2/models/id/infer", json.dumps(body).encode()))
        assert answer.status == 500
        assert "output 'T' (15 bytes) should be at least 16 bytes" in answer.error
        assert given.memory[:] == bytes(4096)


@pytest.mark.parametrize("how", ["removed", "shrunk"])
async def test_a_region_that_has_gone_costs_its_request_alone(serving, post, shared, register, how):
    given, other = shared(), shared()
    async with serving() as site:
        await register(site, given)
        await register(site, other, f"{ALL}/region/other")
        if how == "removed":
            given.remove()
        else:
            given.resize(100)
        answer = await site.ask(post("/v2/models/id/infer", infer_body()))
        assert answer.status == 400
        assert "'r' has" in answer.error
        good = infer_body().replace(b'"r"', b'"other"')
        assert (await site.ask(post("/v2/models/id/infer", good))).status == 200


@pytest.mark.parametrize("place", [None, 64])
async def test_a_region_that_shrinks_while_the_model_runs_costs_its_request_alone(
    serving, post, shared, register, place
):
    given, other = shared(), shared()
    async with serving() as site:
        await register(site, given)
        await register(site, other, f"{ALL}/region/other")
        client = await site.connect()
        await client.send(post("/v2/models/held/infer", infer_body(0, place)))
        await site.held.started.acquire()
        given.resize(0)
        site.held.release.set()
        answer = await client.answer()
        assert answer.status == 400
        assert "'r' shrank while the region was in use" in answer.error
        good = infer_body(0, place).replace(b'"r"', b'"other"')
        assert (await site.ask(post("/v2/models/held/infer", good))).status == 200


async def test_a_region_may_be_unregistered_while_a_request_uses_it(
    serving, post, shared, register
):
    given = shared()
    given.write(VALUES)
    async with serving() as site:
        await register(site, given)
        client = await site.connect()
        await client.send(post("/v2/models/held/infer", infer_body(0, 64)))
        await site.held.started.acquire()
        assert (await site.ask(post(f"{ONE}/unregister", b""))).status == 200
        assert (await register(site, shared())).status == 200  # the name is free at once
        site.held.release.set()
        assert (await client.answer()).status == 200
        assert given.read(np.float32, 4, 64).tolist() == VALUES.tolist()


async def test_an_answer_keeps_its_values_while_a_slow_client_reads(
    serving, post, shared, register
):
    size = 8 << 20
    given = shared(size)
    given.memory[:] = b"\1" * size
    shape = {"shape": [size // 4]}
    body = json.loads(infer_body(0, None, size))
    body["inputs"][0] |= shape
    body["parameters"] = {"binary_data_output": True}
    async with serving() as site:
        await register(site, given, byte_size=size)
        client = await site.connect(SO_RCVBUF=262144)
        await client.send(post("/v2/models/id/infer", json.dumps(body).encode()))
        await client.begun()  # most of the answer is still to be sent
        given.memory[:] = b"\2" * size
        answer = await client.answer()
        assert answer.status == 200
        assert answer.body[-size:] == b"\1" * size


async def test_cuda_calls_answer_without_a_gpu(serving, post):
    async with serving() as site:
        assert (await site.ask(get(f"{CUDA}/status"))).json == []
        assert (await site.ask(get(f"{CUDA}/region/g/status"))).status == 404
        assert (await site.ask(post(f"{CUDA}/unregister", b""))).status == 200
        assert (await site.ask(post(f"{CUDA}/region/g/unregister", b""))).status == 200
        body = {"raw_handle": {"b64": "AAAA"}, "device_id": 0, "byte_size": 64}
        answer = await site.ask(post(f"{CUDA}/region/g/register", json.dumps(body).encode()))
        assert answer.status == 400
        assert "a CUDA IPC handle has 64" in answer.error


async def test_without_permission_nothing_is_registered(serving, shared, register, post):
    async with serving(engine=Engine()) as site:
        answers = [await register(site, shared()), await site.ask(post(f"{ALL}/unregister", b""))]
        for answer in answers:
            assert answer.status == 501
            assert "--allow-client-shm=true" in answer.error
        assert (await site.ask(get(f"{ALL}/status"))).json == []


@pytest.mark.parametrize("path", [ONE, ALL, f"{CUDA}/region/r", CUDA])
async def test_without_permission_it_does_not_matter_what_the_body_says(serving, post, path):
    async with serving(engine=Engine()) as site:
        answer = await site.ask(post(f"{path}/register", b'{"raw_handle":{"b64":"?"}}'))
        assert answer.status == 501
        assert "--allow-client-shm=true" in answer.error


# --- over gRPC ---


@pytest.fixture
def engine(monkeypatch):
    engine = Engine(allow_client_shm=True)
    monkeypatch.setattr(engine.regions, "_find_driver", lambda: None)
    yield engine
    engine.regions.close()


def called(engine, rpc, **fields):
    method = grpc_handlers(CALLS, engine, {})[f"/{V2_SERVICE}/{rpc}"]
    request = getattr(pb, f"{rpc}Request")(**fields).SerializeToString()
    answer = b"".join(asyncio.run(method.handler(request, None)))
    return getattr(pb, f"{rpc}Response").FromString(answer)


def test_the_life_of_a_region_over_grpc(engine, shared):
    given = shared()
    for name in "ab":
        called(
            engine, "SystemSharedMemoryRegister", name=name, key=given.key, offset=8, byte_size=64
        )
    told = called(engine, "SystemSharedMemoryStatus").regions
    assert sorted(told) == ["a", "b"]
    entry = pb.SystemSharedMemoryStatusResponse.RegionStatus(
        name="a", key=given.key, offset=8, byte_size=64
    )
    assert called(engine, "SystemSharedMemoryStatus", name="a").regions == {"a": entry}
    called(engine, "SystemSharedMemoryUnregister", name="a")
    called(engine, "SystemSharedMemoryUnregister", name="nope")
    assert list(called(engine, "SystemSharedMemoryStatus").regions) == ["b"]
    called(engine, "SystemSharedMemoryUnregister")
    assert not called(engine, "SystemSharedMemoryStatus").regions


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"key": "/none_of_ours", "byte_size": 1}, RegionFailed),
        ({"name": "r", "key": "/none_of_ours", "byte_size": 1}, RegionFailed),
        ({"name": "r", "key": "", "byte_size": 1}, InvalidRequest),
        ({"name": "r", "key": "/x", "byte_size": 0}, InvalidRequest),
    ],
)
def test_what_cannot_be_registered_is_refused(engine, fields, error):
    with pytest.raises(error):
        called(engine, "SystemSharedMemoryRegister", **fields)


@pytest.mark.parametrize("kind", ["System", "Cuda"])
def test_a_region_that_is_not_there_is_not_found(engine, kind):
    with pytest.raises(RegionNotFound):
        called(engine, f"{kind}SharedMemoryStatus", name="nope")


def test_offset_and_size_cannot_wrap(engine, shared):
    key = shared().key
    with pytest.raises(InvalidRequest, match="has 4096 bytes"):
        called(
            engine, "SystemSharedMemoryRegister",
            name="r", key=key, offset=2**64 - 1, byte_size=2**64 - 1,
        )  # fmt: skip


def test_cuda_calls_answer_without_a_gpu_over_grpc(engine):
    assert not called(engine, "CudaSharedMemoryStatus").regions
    called(engine, "CudaSharedMemoryUnregister")
    called(engine, "CudaSharedMemoryUnregister", name="g")
    with pytest.raises(InvalidRequest, match="GPUs not supported"):
        called(
            engine, "CudaSharedMemoryRegister",
            name="g", raw_handle=bytes(64), device_id=0, byte_size=1,
        )  # fmt: skip


def test_without_permission_nothing_is_registered_over_grpc(shared):
    with pytest.raises(Unsupported, match="--allow-client-shm=true"):
        called(
            Engine(), "SystemSharedMemoryRegister",
            name="r", key=shared().key, byte_size=1,
        )  # fmt: skip
