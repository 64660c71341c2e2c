"""V2's shared memory extensions over gRPC: register, unregister and status, both sides."""

from collections.abc import Callable, Sequence

import msgspec

from inferd.core.metadata import CudaRegionStatus, SystemRegionStatus
from inferd.wire.proto import encode, parse
from inferd.wire.shared_memory import CudaRegistration, SystemRegistration

Registration = SystemRegistration | CudaRegistration


_KINDS: dict[str, tuple[Callable[..., Registration], tuple[str, ...]]] = {
    "System": (SystemRegistration, ("name", "key", "offset", "byte_size")),
    "Cuda": (CudaRegistration, ("name", "raw_handle", "device_id", "byte_size")),
}
"""By the word in the names of their calls: what registers memory, and its fields in a message."""


def decode_region_name(call: str, data: bytes) -> str:
    """Return the name in a status or unregister request, "" for all. Raises InvalidRequest."""
    name: str = parse(f"inference.{call}Request", data).name
    return name


def encode_region_name(call: str, name: str = "") -> bytes:
    """Return a status or unregister request."""
    return encode(f"inference.{call}Request", name=name)


def decode_registration(kind: str, data: bytes) -> Registration:
    """Decode a System- or CudaSharedMemoryRegisterRequest. Raises InvalidRequest."""
    message = parse(f"inference.{kind}SharedMemoryRegisterRequest", data)
    registration, fields = _KINDS[kind]
    return registration(*[getattr(message, name) for name in fields])


def encode_registration(kind: str, registration: Registration) -> bytes:
    """Return a System- or CudaSharedMemoryRegisterRequest."""
    fields = dict(zip(_KINDS[kind][1], registration, strict=True))
    return encode(f"inference.{kind}SharedMemoryRegisterRequest", **fields)


def encode_done(call: str) -> bytes:
    """Return the answer of a register or unregister call, which has no fields."""
    return encode(f"inference.{call}Response")


def encode_status(kind: str, regions: Sequence[SystemRegionStatus | CudaRegionStatus]) -> bytes:
    """Return a System- or CudaSharedMemoryStatusResponse."""
    rows = {one.name: msgspec.to_builtins(one) for one in regions}
    return encode(f"inference.{kind}SharedMemoryStatusResponse", regions=rows)
