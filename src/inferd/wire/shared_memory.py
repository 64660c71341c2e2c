"""Regions of shared memory: what registers one, and how a tensor refers to it (V2 and others).

A tensor's parameters name a region, an offset and a size in it; they are the same over REST and
gRPC, so both codecs use this module.
"""

from bisect import bisect_left
from math import prod
from typing import Any, NamedTuple

from inferd.aio.inline import INLINE_STRING_BYTES, NotFast
from inferd.core.request import InferRequest, Resolve, Span, WantedOutput
from inferd.errors import InvalidRequest, Unsupported
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import check_strings
from inferd.tensor.tensor import Parameters, Tensor
from inferd.wire.json.document import Output

REGION = "shared_memory_region"
OFFSET = "shared_memory_offset"
SIZE = "shared_memory_byte_size"
PARAMETERS = frozenset((REGION, OFFSET, SIZE))
"""The parameters of a tensor that is in shared memory."""

MAX_COPY_BYTES = 2**31
"""The largest input that is copied out of shared memory: as large as a request may be."""

Reference = tuple[str, int, int]
"""What a tensor's parameters say: the region, and an offset and a size in it, in bytes."""


class SystemRegistration(NamedTuple):
    """A region of system shared memory to be known as `name`."""

    name: str
    key: str
    offset: int
    size_bytes: int


class CudaRegistration(NamedTuple):
    """A region of GPU memory to be known as `name`; `handle` are the bytes of its IPC handle."""

    name: str
    handle: bytes
    device_id: int
    size_bytes: int


def no_regions(_region: str, _offset: int, _size_bytes: int) -> Span:
    """Refuse every reference: the Resolve of a codec that was given none."""
    raise Unsupported("there is no shared memory here")


def decode_reference(what: str, region: Any, offset: Any, size_bytes: Any) -> Reference:
    """Return the reference of `what`, such as "input 'x'"; an `offset` of None is 0.

    Raises InvalidRequest, naming `what` and the parameter.
    """
    if offset is None:
        offset = 0
    # Exactly these types: bool is an int in Python.
    is_right = type(region) is str and type(offset) is int and type(size_bytes) is int
    if is_right and offset >= 0 and size_bytes >= 0:
        return region, offset, size_bytes
    if type(region) is not str:
        raise InvalidRequest(f"{what}: {REGION} must be a region's name")
    if size_bytes is None:
        raise InvalidRequest(f"{what} names shared memory region '{region}' without {SIZE}")
    wrong = SIZE if type(offset) is int and offset >= 0 else OFFSET
    raise InvalidRequest(f"{what}: {wrong} must be a number of bytes, 0 or more")


def span_parameters(span: Span) -> Parameters:
    """Return the parameters of a tensor that a client has in `span`, whose region is a name."""
    _, start, end = span.extent
    return {REGION: str(span.region), OFFSET: start, SIZE: end - start}


def places_of(request: InferRequest) -> dict[str, memoryview]:
    """Return the shared memory that a client has for the outputs of `request`, by name."""
    return {one.name: one.place.view for one in request.outputs if one.place is not None}


def placed_bytes(datatype: DataType, shape: tuple[int, ...], place: memoryview) -> int:
    """Return how many bytes of `place` an output takes; more than there are, if it is malformed."""
    count = prod(shape)
    if datatype is not DataType.BYTES:
        return count * datatype.size_bytes
    size = 0
    # BYTES have no other way to tell their end than to walk along the lengths.
    for _ in range(count):
        size += 4 + int.from_bytes(place[size : size + 4], "little")
        # Lengths come from memory that another process writes, so each is checked before the next
        # is read.
        if size > len(place):
            break
    return size


def placed_output(
    name: str, datatype: DataType, shape: tuple[int, ...], place: memoryview
) -> Tensor:
    """Return the output that a server has written to `place`. Raises InvalidRequest."""
    size = placed_bytes(datatype, shape, place)
    if not 0 <= size <= len(place) or min(shape, default=0) < 0:
        raise InvalidRequest(
            f"output '{name}' is {datatype.value} {list(shape)}, which is more than the "
            f"{len(place)} bytes of shared memory for it"
        )
    return Tensor(name, datatype, shape, place[:size])


def output_reference(output: Output) -> Reference | None:
    """Return where to put `output`, None if not in shared memory. Raises as `decode_reference`."""
    parameters = output.parameters
    if parameters is None or parameters.shared_memory_region is None:
        return None
    return decode_reference(
        f"output '{output.name}'",
        parameters.shared_memory_region,
        parameters.shared_memory_offset,
        parameters.shared_memory_byte_size,
    )


def read_input(tensor: Tensor, span: Span, model: str, *, on_loop: bool) -> None:
    """Give `tensor`, an input of `model`, the bytes of `span`: a view, but BYTES are copied.

    BYTES have been checked, so they must not change while the model reads them.

    Raises InvalidRequest when the size of the span is not that of datatype and shape, or the memory
    to be copied is no longer there; with `on_loop` also NotFast for what takes long to copy.
    """
    size_bytes = len(span.view)
    is_text = tensor.datatype is DataType.BYTES
    if is_text or span.is_copy:
        if size_bytes > MAX_COPY_BYTES:
            raise InvalidRequest(
                f"input '{tensor.name}' has {size_bytes} bytes of shared memory; of BYTES and of "
                f"GPU memory at most {MAX_COPY_BYTES} are taken, because they are copied"
            )
        if on_loop and size_bytes > INLINE_STRING_BYTES:
            raise NotFast
    count = 1
    for dim in tensor.shape:  # saves the calls of prod() and min()
        if dim < 0:
            msg = f"input '{tensor.name}' has shape {list(tensor.shape)}: -1 belongs to metadata"
            raise InvalidRequest(msg)
        count *= dim
    if not is_text and size_bytes != (expected := count * tensor.datatype.size_bytes):
        raise InvalidRequest(
            f"input byte size mismatch for input '{tensor.name}' for model '{model}'. Expected "
            f"{expected}, got {size_bytes} bytes of shared memory for {tensor.datatype.value} "
            f"{list(tensor.shape)}"
        )
    if span.is_copy:
        # GPU memory is fetched only after its size was found right.
        span.fetch()
    tensor.data = span.view
    if is_text:
        span.look()
        # Copied before it is checked, or the client could change it in between.
        tensor.data = bytes(span.view)
        check_strings(tensor.data, count, tensor.name, model)


def place_output(wanted: WantedOutput, reference: Reference, resolve: Resolve) -> Span:
    """Set the place of `wanted` to where `reference` says, and return the span.

    Raises InvalidRequest when it also asks for binary data or classification, and the errors of
    `resolve`.
    """
    if wanted.binary or wanted.top_k:
        what = "binary_data" if wanted.binary else "classification"
        raise InvalidRequest(f"Output can't set both '{REGION}' and '{what}': '{wanted.name}' does")
    span = resolve(reference[0], reference[1], reference[2])
    wanted.place = span
    return span


def take_spans(request: InferRequest, spans: list[Span], *, on_loop: bool) -> None:
    """Check the spans of `request` (memory is there, outputs are disjoint) and note them in it.

    `spans` are those of its inputs, then those of its outputs. An input that an output will
    overwrite is copied: a model may write while it still reads.

    Raises InvalidRequest for a region whose memory is gone, overlapping outputs, or too much to
    copy; with `on_loop` also NotFast for what takes long to copy.
    """
    # Spans of one region mostly follow each other: its memory is looked at once.
    looked_at: object = None
    ends: dict[tuple[int, ...], int] = {}
    is_ascending = True  # the usual case, in which nothing overlaps
    for span in spans:
        if span.region is not looked_at:
            span.look()
            looked_at = span.region
        where, start, end = span.extent
        # One pass over the spans, since sorting them is needed only if they are out of order.
        is_ascending = is_ascending and start >= ends.get(where, 0)
        ends[where] = end
    if not is_ascending:
        _copy_inputs(request.inputs, _inputs_below(spans, request.outputs), on_loop=on_loop)
    request.spans = spans


def _inputs_below(spans: list[Span], outputs: list[WantedOutput]) -> list[Span]:
    """Return the spans of inputs that outputs will overwrite. Raises InvalidRequest."""
    placed = [one for one in outputs if one.place is not None]
    input_count = len(spans) - len(placed)
    places: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    extents = sorted((*span.extent, index) for index, span in enumerate(spans[input_count:]))
    for where, start, end, index in extents:
        if start == end:
            continue
        taken = places.setdefault(where, [])
        if taken and start < taken[-1][1]:
            raise InvalidRequest(
                f"output '{placed[index].name}' is to be written to shared memory "
                f"that another output of the same request uses"
            )
        taken.append((start, end))
    below = []
    for span in spans[:input_count]:
        where, start, end = span.extent
        taken = places.get(where, [])
        before = bisect_left(taken, (end,))  # outputs that begin before it ends; all are disjoint
        if before and start < min(end, taken[before - 1][1]):
            below.append(span)
    return below


def _copy_inputs(inputs: list[Tensor], spans: list[Span], *, on_loop: bool) -> None:
    """Replace the data of inputs that are views of `spans` by copies. See take_spans."""
    views = {id(span.view) for span in spans if not span.is_copy}
    # By identity: an input may have been copied already.
    found = [tensor for tensor in inputs if id(tensor.data) in views]
    size_bytes = sum(len(tensor.data) for tensor in found)
    if size_bytes > MAX_COPY_BYTES:
        raise InvalidRequest(
            f"inputs that outputs are to be written over have {size_bytes} bytes of shared memory; "
            f"at most {MAX_COPY_BYTES} are taken, because they are copied"
        )
    if on_loop and size_bytes > INLINE_STRING_BYTES:
        raise NotFast
    for tensor in found:
        tensor.data = bytes(tensor.data)
