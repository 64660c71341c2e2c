"""The register and status calls of V2's shared memory extensions over REST."""

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Annotated, TypeVar

import msgspec
import orjson

from inferd.core.metadata import CudaRegionStatus, SystemRegionStatus
from inferd.errors import InvalidRequest
from inferd.wire.json.kinds import why_unfit
from inferd.wire.shared_memory import CudaRegistration, SystemRegistration

MAX_BODY_BYTES = 64 << 10
"""The longest body that is read."""

_Int64 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _SystemDocument(msgspec.Struct, rename={"size_bytes": "byte_size"}):
    """$register_system_shared_memory_request."""

    key: str
    size_bytes: _Int64
    offset: _Int64 = 0


class _RawHandle(msgspec.Struct):
    b64: str


class _CudaDocument(msgspec.Struct, rename={"size_bytes": "byte_size"}):
    """$register_cuda_shared_memory_request."""

    raw_handle: _RawHandle
    device_id: _Int64
    size_bytes: _Int64


_Document = TypeVar("_Document")

_MISSING = re.compile(r"Object missing required field `(\w+)`")  # msgspec's text


def decode_system_registration(body: memoryview, name: str) -> SystemRegistration:
    """Return the registration of region `name` in `body`. Raises InvalidRequest."""
    document = _decoded(body, _SystemDocument)
    return SystemRegistration(name, document.key, document.offset, document.size_bytes)


def decode_cuda_registration(body: memoryview, name: str) -> CudaRegistration:
    """Return the registration of region `name` in `body`. Raises InvalidRequest."""
    document = _decoded(body, _CudaDocument)
    try:
        handle = base64.b64decode(document.raw_handle.b64, validate=True)
    except (binascii.Error, ValueError):  # ValueError: not ASCII
        raise InvalidRequest(
            "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t: it is not base64, "
            "expected the 64 bytes of a CUDA IPC handle in base64"
        ) from None
    return CudaRegistration(name, handle, document.device_id, document.size_bytes)


def _decoded(body: memoryview, kind: type[_Document]) -> _Document:
    if len(body) > MAX_BODY_BYTES:
        raise InvalidRequest(f"the body has {len(body)} bytes, expected at most {MAX_BODY_BYTES}")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        msg = f"the body is not a shared memory registration: {error}"
        if missing := _MISSING.fullmatch(str(error)):
            msg = f"Shared memory register request has no '{missing[1]}' field"
        elif not isinstance(error, msgspec.ValidationError):
            msg = f"failed to parse the request JSON buffer: {msg}"
        elif words := why_unfit(error):
            msg = f"{words}: {msg}"
        raise InvalidRequest(msg) from None


def encode_status(regions: Sequence[SystemRegionStatus | CudaRegionStatus]) -> bytes:
    """Return $system_shared_memory_status or $cuda_shared_memory_status."""
    return orjson.dumps([msgspec.to_builtins(one) for one in regions])
