"""V2's shared memory extensions over gRPC: register, unregister and status, both sides."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from inferd.core.metadata import CudaRegionStatus, SystemRegionStatus
from inferd.wire.proto import encode, parse
from inferd.wire.shared_memory import CudaRegistration, SystemRegistration

Registration = SystemRegistration | CudaRegistration
Status = SystemRegionStatus | CudaRegionStatus


class _Memory(NamedTuple):
    """A kind of memory; `fields` are those of a registration, in the order of `registration`."""

    registration: type[Registration]
    status: type[Status]
    fields: tuple[str, ...]


_MEMORIES = {
    "System": _Memory(
        SystemRegistration, SystemRegionStatus, ("name", "key", "offset", "byte_size")
    ),
    "Cuda": _Memory(
        CudaRegistration, CudaRegionStatus, ("name", "raw_handle", "device_id", "byte_size")
    ),
}
"""The kinds of memory by the word in the names of their calls."""


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
    memory = _MEMORIES[kind]
    return memory.registration(*_values(message, memory.fields))


def encode_registration(kind: str, registration: Registration) -> bytes:
    """Return a System- or CudaSharedMemoryRegisterRequest."""
    fields = dict(zip(_MEMORIES[kind].fields, registration, strict=True))
    return encode(f"inference.{kind}SharedMemoryRegisterRequest", **fields)


def encode_done(call: str) -> bytes:
    """Return the answer of a register or unregister call, which has no fields."""
    return encode(f"inference.{call}Response")


def encode_status(kind: str, regions: Sequence[Status]) -> bytes:
    """Return a System- or CudaSharedMemoryStatusResponse."""
    rows = {one.name: msgspec.to_builtins(one) for one in regions}
    return encode(f"inference.{kind}SharedMemoryStatusResponse", regions=rows)


def decode_status(kind: str, data: bytes) -> list[Status]:
    """Return the regions of a status response. Raises InvalidRequest."""
    message = parse(f"inference.{kind}SharedMemoryStatusResponse", data)
    memory = _MEMORIES[kind]
    names = [name for name in memory.fields if name != "raw_handle"]
    return [memory.status(*_values(one, names)) for one in message.regions.values()]


def _values(message: Any, names: Iterable[str]) -> list[Any]:
    return [getattr(message, name) for name in names]
