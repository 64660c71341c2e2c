"""V2's shared memory extensions over gRPC: register, unregister and status, both sides."""

from collections.abc import Sequence
from typing import Any

import msgspec

from inferd.core.metadata import CudaRegionStatus, SystemRegionStatus
from inferd.wire.proto import encode, parse
from inferd.wire.shared_memory import CudaRegistration, SystemRegistration

_SYSTEM = ("name", "key", "offset", "byte_size")
_CUDA = ("name", "raw_handle", "device_id", "byte_size")
"""The fields of a registration, in the order of SystemRegistration and of CudaRegistration."""


def decode_region_name(call: str, data: bytes) -> str:
    """Return the name in a status or unregister request, "" for all. Raises InvalidRequest."""
    name: str = parse(f"inference.{call}Request", data).name
    return name


def encode_region_name(call: str, name: str = "") -> bytes:
    """Return a status or unregister request."""
    return encode(f"inference.{call}Request", name=name)


def decode_system_registration(data: bytes) -> SystemRegistration:
    """Decode a SystemSharedMemoryRegisterRequest. Raises InvalidRequest."""
    message = parse("inference.SystemSharedMemoryRegisterRequest", data)
    return SystemRegistration(*_values(message, _SYSTEM))


def encode_system_registration(registration: SystemRegistration) -> bytes:
    """Return a SystemSharedMemoryRegisterRequest."""
    fields = dict(zip(_SYSTEM, registration, strict=True))
    return encode("inference.SystemSharedMemoryRegisterRequest", **fields)


def decode_cuda_registration(data: bytes) -> CudaRegistration:
    """Decode a CudaSharedMemoryRegisterRequest. Raises InvalidRequest."""
    message = parse("inference.CudaSharedMemoryRegisterRequest", data)
    return CudaRegistration(*_values(message, _CUDA))


def encode_cuda_registration(registration: CudaRegistration) -> bytes:
    """Return a CudaSharedMemoryRegisterRequest."""
    fields = dict(zip(_CUDA, registration, strict=True))
    return encode("inference.CudaSharedMemoryRegisterRequest", **fields)


def encode_done(call: str) -> bytes:
    """Return the answer of a register or unregister call, which has no fields."""
    return encode(f"inference.{call}Response")


def encode_system_status(regions: list[SystemRegionStatus]) -> bytes:
    """Return a SystemSharedMemoryStatusResponse."""
    return _encode_status("SystemSharedMemoryStatusResponse", regions)


def decode_system_status(data: bytes) -> list[SystemRegionStatus]:
    """Return the regions of a SystemSharedMemoryStatusResponse. Raises InvalidRequest."""
    message = parse("inference.SystemSharedMemoryStatusResponse", data)
    return [SystemRegionStatus(*_values(one, _SYSTEM)) for one in message.regions.values()]


def encode_cuda_status(regions: list[CudaRegionStatus]) -> bytes:
    """Return a CudaSharedMemoryStatusResponse."""
    return _encode_status("CudaSharedMemoryStatusResponse", regions)


def decode_cuda_status(data: bytes) -> list[CudaRegionStatus]:
    """Return the regions of a CudaSharedMemoryStatusResponse. Raises InvalidRequest."""
    message = parse("inference.CudaSharedMemoryStatusResponse", data)
    return [
        CudaRegionStatus(one.name, one.device_id, one.byte_size) for one in message.regions.values()
    ]


def _encode_status(name: str, regions: Sequence[SystemRegionStatus | CudaRegionStatus]) -> bytes:
    rows = {one.name: msgspec.to_builtins(one) for one in regions}
    return encode(f"inference.{name}", regions=rows)


def _values(message: Any, names: tuple[str, ...]) -> list[Any]:
    return [getattr(message, name) for name in names]
