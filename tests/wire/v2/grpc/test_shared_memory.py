"""The small calls of shared memory as messages: what we write others read, and the other way."""

import pytest
from tritonclient.grpc import service_pb2 as pb

from inferd.core.metadata import CudaRegionStatus, SystemRegionStatus
from inferd.errors import InvalidRequest
from inferd.wire.shared_memory import CudaRegistration, SystemRegistration
from inferd.wire.v2.grpc import shared_memory as wire

SYSTEM = SystemRegistration("r", "/k", 2**63, 2**64 - 1)
CUDA = CudaRegistration("g", bytes(range(64)), -1, 2**64 - 1)


def test_registrations_are_read_and_written():
    message = pb.SystemSharedMemoryRegisterRequest(
        name="r", key="/k", offset=2**63, byte_size=2**64 - 1
    )
    assert wire.decode_registration("System", message.SerializeToString()) == SYSTEM
    assert wire.decode_registration("System", wire.encode_registration("System", SYSTEM)) == SYSTEM
    message = pb.CudaSharedMemoryRegisterRequest(
        name="g", raw_handle=bytes(range(64)), device_id=-1, byte_size=2**64 - 1
    )
    assert wire.decode_registration("Cuda", message.SerializeToString()) == CUDA
    assert wire.decode_registration("Cuda", wire.encode_registration("Cuda", CUDA)) == CUDA


@pytest.mark.parametrize("kind", ["System", "Cuda"])
@pytest.mark.parametrize("call", ["Status", "Unregister"])
def test_names_are_read_and_written(kind, call):
    name = f"{kind}SharedMemory{call}"
    assert wire.decode_region_name(name, wire.encode_region_name(name, "r")) == "r"
    assert wire.decode_region_name(name, b"") == ""
    with pytest.raises(InvalidRequest):
        wire.decode_region_name(name, b"\xff")


def test_an_answer_that_says_nothing_is_empty():
    assert wire.encode_done("SystemSharedMemoryRegister") == b""


def test_statuses_are_written():
    system = [SystemRegionStatus("r", "/k", 1, 2), SystemRegionStatus("s", "/k", 3, 4)]
    encoded = wire.encode_status("System", system)
    regions = pb.SystemSharedMemoryStatusResponse.FromString(encoded).regions
    found = regions["s"]
    assert (found.name, found.key, found.offset, found.byte_size) == ("s", "/k", 3, 4)
    cuda = [CudaRegionStatus("g", 1, 2)]
    encoded = wire.encode_status("Cuda", cuda)
    assert pb.CudaSharedMemoryStatusResponse.FromString(encoded).regions["g"].device_id == 1
