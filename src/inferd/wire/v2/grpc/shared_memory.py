"""V2's shared memory extensions over gRPC: register, unregister and status, both sides."""

from typing import Any, NamedTuple

from inferd.core.metadata import CudaRegionStatus, SystemRegionStatus
from inferd.wire.proto import message_class, parse


class SystemRegistration(NamedTuple):
    """SystemSharedMemoryRegisterRequest."""

    name: str
    key: str
    offset: int
    size_bytes: int


class CudaRegistration(NamedTuple):
    """CudaSharedMemoryRegisterRequest; `handle` are the bytes of the IPC handle."""

    name: str
    handle: bytes
    device_id: int
    size_bytes: int


def decode_region_name(call: str, data: bytes) -> str:
    """Return the name in a status or unregister request, "" for all. Raises InvalidRequest."""
    name: str = parse(f"inference.{call}Request", data).name
    return name


def encode_region_name(call: str, name: str = "") -> bytes:
    """Return a status or unregister request."""
    return _bytes(f"{call}Request", name=name)


def decode_system_registration(data: bytes) -> SystemRegistration:
    """Decode a SystemSharedMemoryRegisterRequest. Raises InvalidRequest."""
    message = parse("inference.SystemSharedMemoryRegisterRequest", data)
    return SystemRegistration(message.name, message.key, message.offset, message.byte_size)


def encode_system_registration(registration: SystemRegistration) -> bytes:
    """Return a SystemSharedMemoryRegisterRequest."""
    name, key, offset, size_bytes = registration
    return _bytes(
        "SystemSharedMemoryRegisterRequest",
        name=name,
        key=key,
        offset=offset,
        byte_size=size_bytes,
    )


def decode_cuda_registration(data: bytes) -> CudaRegistration:
    """Decode a CudaSharedMemoryRegisterRequest. Raises InvalidRequest."""
    message = parse("inference.CudaSharedMemoryRegisterRequest", data)
    return CudaRegistration(message.name, message.raw_handle, message.device_id, message.byte_size)


def encode_cuda_registration(registration: CudaRegistration) -> bytes:
    """Return a CudaSharedMemoryRegisterRequest."""
    name, handle, device_id, size_bytes = registration
    return _bytes(
        "CudaSharedMemoryRegisterRequest",
        name=name,
        raw_handle=handle,
        device_id=device_id,
        byte_size=size_bytes,
    )


def encode_done(call: str) -> bytes:
    """Return the answer of a register or unregister call, which has no fields."""
    return _bytes(f"{call}Response")


def encode_system_status(regions: list[SystemRegionStatus]) -> bytes:
    """Return a SystemSharedMemoryStatusResponse."""
    message = message_class("inference.SystemSharedMemoryStatusResponse")()
    for one in regions:
        entry = message.regions[one.name]
        entry.name, entry.key = one.name, one.key
        entry.offset, entry.byte_size = one.offset, one.size_bytes
    encoded: bytes = message.SerializeToString()
    return encoded


def decode_system_status(data: bytes) -> list[SystemRegionStatus]:
    """Return the regions of a SystemSharedMemoryStatusResponse. Raises InvalidRequest."""
    message = parse("inference.SystemSharedMemoryStatusResponse", data)
    return [
        SystemRegionStatus(one.name, one.key, one.offset, one.byte_size)
        for one in message.regions.values()
    ]


def encode_cuda_status(regions: list[CudaRegionStatus]) -> bytes:
    """Return a CudaSharedMemoryStatusResponse."""
    message = message_class("inference.CudaSharedMemoryStatusResponse")()
    for one in regions:
        entry = message.regions[one.name]
        entry.name, entry.device_id, entry.byte_size = one.name, one.device_id, one.size_bytes
    encoded: bytes = message.SerializeToString()
    return encoded


def decode_cuda_status(data: bytes) -> list[CudaRegionStatus]:
    """Return the regions of a CudaSharedMemoryStatusResponse. Raises InvalidRequest."""
    message = parse("inference.CudaSharedMemoryStatusResponse", data)
    return [
        CudaRegionStatus(one.name, one.device_id, one.byte_size) for one in message.regions.values()
    ]


def _bytes(message_name: str, **fields: Any) -> bytes:
    encoded: bytes = message_class(f"inference.{message_name}")(**fields).SerializeToString()
    return encoded
