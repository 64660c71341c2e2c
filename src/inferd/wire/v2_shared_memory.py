"""V2's shared memory extensions: how a tensor refers to a region, and the small calls over REST.

A tensor's parameters name a region, and an offset and a size in it; REST and gRPC write the same
three, so both codecs read them here.
"""

import base64
import binascii
from bisect import bisect_left
from math import prod
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import orjson

from inferd.core.metadata import CudaRegionStatus, SystemRegionStatus
from inferd.core.request import InferRequest, Resolve, Span, WantedOutput
from inferd.errors import InvalidRequest, Unsupported
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import check_strings
from inferd.tensor.tensor import Tensor
from inferd.wire.inline import INLINE_STRING_BYTES, NotFast
from inferd.wire.json_document import Output

REGION = "shared_memory_region"
OFFSET = "shared_memory_offset"
SIZE = "shared_memory_byte_size"
PARAMETERS = frozenset((REGION, OFFSET, SIZE))
"""The parameters of a tensor that is in shared memory."""

MAX_COPY_BYTES = 2**31
"""The largest input that is copied out of shared memory: as large as a request may be."""

MAX_BODY_BYTES = 64 << 10
"""The longest body of the small calls that is read."""


Reference = tuple[str, int, int]
"""What a tensor's parameters say: the region, and offset and size in it in bytes."""


def no_regions(_region: str, _offset: int, _size_bytes: int) -> Span:
    """Refuse every reference: the Resolve of a codec that was given none."""
    msg = "there is no shared memory here"
    raise Unsupported(msg)


def decode_reference(what: str, region: Any, offset: Any, size_bytes: Any) -> Reference:
    """Return the reference of `what`, such as "input 'x'"; an `offset` of None is 0.

    Raises InvalidRequest naming `what` and the parameter.
    """
    if offset is None:
        offset = 0
    is_right = type(region) is str and type(offset) is int and type(size_bytes) is int
    if is_right and offset >= 0 and size_bytes >= 0:
        return region, offset, size_bytes
    if type(region) is not str:
        msg = f"{what}: {REGION} must be a region's name"
        raise InvalidRequest(msg)
    if size_bytes is None:
        msg = f"{what} names shared memory region '{region}' without {SIZE}"
        raise InvalidRequest(msg)
    wrong = SIZE if type(offset) is int and offset >= 0 else OFFSET
    msg = f"{what}: {wrong} must be a number of bytes, 0 or more"
    raise InvalidRequest(msg)


def output_reference(output: Output) -> Reference | None:
    """Return where `output` is to be put, None if nowhere. Raises as `decode_reference`."""
    asked = output.parameters
    if asked is None or asked.shared_memory_region is None:
        return None
    return decode_reference(
        f"output '{output.name}'",
        asked.shared_memory_region,
        asked.shared_memory_offset,
        asked.shared_memory_byte_size,
    )


def read_input(tensor: Tensor, span: Span, *, on_loop: bool) -> None:
    """Give `tensor` the bytes of `span`: a view, except that BYTES are copied.

    What has been checked of BYTES must not change while the model reads them.

    Raises InvalidRequest when the span has another size than datatype and shape take, or what was
    to be copied is no longer there, and NotFast, if `on_loop`, for what takes long to copy.
    """
    size_bytes = len(span.view)
    is_text = tensor.datatype is DataType.BYTES
    if is_text or span.is_copy:
        if size_bytes > MAX_COPY_BYTES:
            msg = (
                f"input '{tensor.name}' has {size_bytes} bytes of shared memory; of BYTES and of "
                f"GPU memory at most {MAX_COPY_BYTES} are taken, because they are copied"
            )
            raise InvalidRequest(msg)
        if on_loop and size_bytes > INLINE_STRING_BYTES:
            raise NotFast
    if tensor.shape and min(tensor.shape) < 0:
        msg = f"input '{tensor.name}' has shape {list(tensor.shape)}: -1 belongs to metadata"
        raise InvalidRequest(msg)
    count = prod(tensor.shape)
    if not is_text and size_bytes != (expected := count * tensor.datatype.size_bytes):
        msg = (
            f"input '{tensor.name}' has {size_bytes} bytes of shared memory, "
            f"{tensor.datatype.value} {list(tensor.shape)} takes {expected}"
        )
        raise InvalidRequest(msg)
    if span.is_copy:
        span.fetch()
    tensor.data = span.view
    if is_text:
        span.look()
        tensor.data = bytes(span.view)
        check_strings(tensor.data, count, tensor.name)


def place_output(wanted: WantedOutput, reference: Reference, resolve: Resolve) -> Span:
    """Have `wanted` put where `reference` says; return the span.

    Raises InvalidRequest when it asks for something else as well, and as `resolve` does.
    """
    if wanted.binary or wanted.top_k:
        what = "binary_data" if wanted.binary else "classification"
        msg = f"output '{wanted.name}' asks for {what} and {REGION}, expected one of them"
        raise InvalidRequest(msg)
    wanted.place = span = resolve(*reference)
    return span


def take_spans(request: InferRequest, spans: list[Span], *, on_loop: bool) -> None:
    """Note in `request` the memory it refers to, which is checked: it is there, outputs lie apart.

    `spans` are those of its inputs, then those of its outputs. An input that an output is to be
    written over is copied: a model may write while it still reads.

    Raises InvalidRequest naming the region, or the output that is to be written over another, or
    too much to be copied; NotFast, if `on_loop`, for what takes long to copy.
    """
    looked_at: object = None
    ends: dict[tuple[int, ...], int] = {}
    is_ascending = True  # as it usually is, and then nothing overlaps
    for span in spans:
        if span.region is not looked_at:
            span.look()
            looked_at = span.region
        where, start, end = span.extent
        is_ascending = is_ascending and start >= ends.get(where, 0)
        ends[where] = end
    if not is_ascending:
        _copy_inputs(request.inputs, _inputs_below(spans, request.outputs), on_loop=on_loop)
    request.spans = spans


def _inputs_below(spans: list[Span], outputs: list[WantedOutput]) -> list[Span]:
    """Return the spans of inputs over which outputs are to be written. Raises InvalidRequest."""
    placed = [one for one in outputs if one.place is not None]
    input_count = len(spans) - len(placed)
    places: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    extents = sorted((*span.extent, index) for index, span in enumerate(spans[input_count:]))
    for where, start, end, index in extents:
        if start == end:
            continue
        taken = places.setdefault(where, [])
        if taken and start < taken[-1][1]:
            msg = (
                f"output '{placed[index].name}' is to be written to shared memory "
                f"that another output of the same request uses"
            )
            raise InvalidRequest(msg)
        taken.append((start, end))
    below = []
    for span in spans[:input_count]:
        where, start, end = span.extent
        taken = places.get(where, [])
        before = bisect_left(taken, (end,))  # those that begin before it ends; they lie apart
        if before and start < min(end, taken[before - 1][1]):
            below.append(span)
    return below


def _copy_inputs(inputs: list[Tensor], spans: list[Span], *, on_loop: bool) -> None:
    """Give the inputs that are views of `spans` copies in their place. See take_spans."""
    views = {id(span.view) for span in spans if not span.is_copy}
    found = [tensor for tensor in inputs if id(tensor.data) in views]
    size_bytes = sum(len(tensor.data) for tensor in found)
    if size_bytes > MAX_COPY_BYTES:
        msg = (
            f"inputs that outputs are to be written over have {size_bytes} bytes of shared memory; "
            f"at most {MAX_COPY_BYTES} are taken, because they are copied"
        )
        raise InvalidRequest(msg)
    if on_loop and size_bytes > INLINE_STRING_BYTES:
        raise NotFast
    for tensor in found:
        tensor.data = bytes(tensor.data)


# --- the small calls over REST ---

_Int64 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class SystemRegistration(msgspec.Struct, rename={"size_bytes": "byte_size"}):
    """$register_system_shared_memory_request."""

    key: str
    size_bytes: _Int64
    offset: _Int64 = 0


class _RawHandle(msgspec.Struct):
    b64: str


class _CudaRegistration(msgspec.Struct, rename={"size_bytes": "byte_size"}):
    raw_handle: _RawHandle
    device_id: _Int64
    size_bytes: _Int64


class CudaRegistration(NamedTuple):
    """$register_cuda_shared_memory_request; `handle` are the bytes of the IPC handle."""

    handle: bytes
    device_id: int
    size_bytes: int


_Document = TypeVar("_Document")


def decode_system_registration(body: memoryview) -> SystemRegistration:
    """Return what a client wants registered. Raises InvalidRequest."""
    return _decoded(body, SystemRegistration)


def decode_cuda_registration(body: memoryview) -> CudaRegistration:
    """Return what a client wants registered. Raises InvalidRequest."""
    document = _decoded(body, _CudaRegistration)
    try:
        handle = base64.b64decode(document.raw_handle.b64, validate=True)
    except (binascii.Error, ValueError):  # ValueError: not ASCII
        msg = "raw_handle is not base64, expected the 64 bytes of a CUDA IPC handle in base64"
        raise InvalidRequest(msg) from None
    return CudaRegistration(handle, document.device_id, document.size_bytes)


def _decoded(body: memoryview, kind: type[_Document]) -> _Document:
    if len(body) > MAX_BODY_BYTES:
        msg = f"the body has {len(body)} bytes, expected at most {MAX_BODY_BYTES}"
        raise InvalidRequest(msg)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        msg = f"the body is not a shared memory registration: {error}"
        raise InvalidRequest(msg) from None


def encode_system_status(regions: list[SystemRegionStatus]) -> bytes:
    """Return $system_shared_memory_status."""
    return orjson.dumps(
        [
            {"name": one.name, "key": one.key, "offset": one.offset, "byte_size": one.size_bytes}
            for one in regions
        ]
    )


def encode_cuda_status(regions: list[CudaRegionStatus]) -> bytes:
    """Return $cuda_shared_memory_status."""
    return orjson.dumps(
        [
            {"name": one.name, "device_id": one.device_id, "byte_size": one.size_bytes}
            for one in regions
        ]
    )
