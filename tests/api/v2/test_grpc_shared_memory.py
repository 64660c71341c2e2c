"""The gRPC methods of the shared memory extensions: bytes in, buffers or an error out."""

import asyncio

import pytest
from tritonclient.grpc import service_pb2 as pb

from inferd.api.v2.grpc_shared_memory import SharedMemoryMethods
from inferd.errors import InvalidRequest, RegionFailed, RegionNotFound, Unsupported
from inferd.shm.regions import Regions


@pytest.fixture
def regions():
    made = Regions(allowed=True, find_driver=lambda: None)
    yield made
    made.close()


def called(regions, rpc, **fields):
    method = SharedMemoryMethods(regions).methods()[rpc]
    request = getattr(pb, f"{rpc}Request")(**fields).SerializeToString()
    answer = b"".join(asyncio.run(method.handler(request, None)))
    return getattr(pb, f"{rpc}Response").FromString(answer)


def test_the_life_of_a_region(regions, shared):
    given = shared()
    for name in "ab":
        called(
            regions, "SystemSharedMemoryRegister", name=name, key=given.key, offset=8, byte_size=64
        )
    told = called(regions, "SystemSharedMemoryStatus").regions
    assert sorted(told) == ["a", "b"]
    entry = pb.SystemSharedMemoryStatusResponse.RegionStatus(
        name="a", key=given.key, offset=8, byte_size=64
    )
    assert called(regions, "SystemSharedMemoryStatus", name="a").regions == {"a": entry}
    called(regions, "SystemSharedMemoryUnregister", name="a")
    called(regions, "SystemSharedMemoryUnregister", name="nope")
    assert list(called(regions, "SystemSharedMemoryStatus").regions) == ["b"]
    called(regions, "SystemSharedMemoryUnregister")
    assert not called(regions, "SystemSharedMemoryStatus").regions


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"key": "/none_of_ours", "byte_size": 1}, InvalidRequest),
        ({"name": "r", "key": "/none_of_ours", "byte_size": 1}, RegionFailed),
        ({"name": "r", "key": "", "byte_size": 1}, InvalidRequest),
        ({"name": "r", "key": "/x", "byte_size": 0}, InvalidRequest),
    ],
)
def test_what_cannot_be_registered_is_refused(regions, fields, error):
    with pytest.raises(error):
        called(regions, "SystemSharedMemoryRegister", **fields)


@pytest.mark.parametrize("kind", ["System", "Cuda"])
def test_a_region_that_is_not_there_is_not_found(regions, kind):
    with pytest.raises(RegionNotFound):
        called(regions, f"{kind}SharedMemoryStatus", name="nope")


def test_offset_and_size_cannot_wrap(regions, shared):
    key = shared().key
    with pytest.raises(RegionFailed, match="has 4096 bytes"):
        called(
            regions, "SystemSharedMemoryRegister",
            name="r", key=key, offset=2**64 - 1, byte_size=2**64 - 1,
        )  # fmt: skip


def test_cuda_calls_answer_without_a_gpu(regions):
    assert not called(regions, "CudaSharedMemoryStatus").regions
    called(regions, "CudaSharedMemoryUnregister")
    called(regions, "CudaSharedMemoryUnregister", name="g")
    with pytest.raises(InvalidRequest, match="finds no GPU"):
        called(
            regions, "CudaSharedMemoryRegister",
            name="g", raw_handle=bytes(64), device_id=0, byte_size=1,
        )  # fmt: skip


def test_without_permission_nothing_is_registered(shared):
    with pytest.raises(Unsupported, match="--allow-client-shm=true"):
        called(
            Regions(allowed=False), "SystemSharedMemoryRegister",
            name="r", key=shared().key, byte_size=1,
        )  # fmt: skip
