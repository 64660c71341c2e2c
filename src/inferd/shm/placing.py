"""Placing: puts outputs where in shared memory the client wants them, and nowhere else."""

import asyncio

import numpy as np

from inferd.core.request import InferRequest, InferResponse, Span
from inferd.errors import InvalidRequest, RegionFailed, Unavailable
from inferd.tensor.array import Array
from inferd.tensor.tensor import Tensor

INLINE_BYTES = 4 << 20
"""How much is copied on the event loop at once: about a millisecond's worth."""

MAX_COPIED_BYTES = (1 << 31) - 1
"""The largest output that is copied from shared memory to be sent: the largest gRPC message."""


async def place_outputs(request: InferRequest, response: InferResponse) -> None:
    """Do what `place_now` does, but long copies in a thread. Raises as `place_now` does."""
    if not is_large(response):
        place_now(request, response)
        return
    places, views = _fitting(request, response)
    spans = request.spans or []
    placed = await asyncio.to_thread(_placed, places, response.outputs, views, spans)
    _check(spans)
    response.outputs = placed


def is_large(response: InferResponse) -> bool:
    """Return whether the outputs of `response` are too large to be copied on the event loop."""
    size_bytes = 0
    for tensor in response.outputs:
        size_bytes += tensor.size_bytes
    return size_bytes > INLINE_BYTES


def place_now(request: InferRequest, response: InferResponse) -> None:
    """Put the outputs of `response`, which are in the order `request` wants, in their places.

    Placed outputs have no data left in the response. Outputs to be sent that are views of shared
    memory are copied: the client may write there again while it is still receiving them.

    Raises RegionFailed if an output does not fit in its place, before anything is copied;
    InvalidRequest if memory that the request uses went away, or an output to be copied exceeds
    MAX_COPIED_BYTES; Unavailable if there is no memory for the copy.
    """
    places, views = _fitting(request, response)
    spans = request.spans or []
    outputs = _placed(places, response.outputs, views, spans)
    # After the copies: memory may vanish at any time, and only now is it known that it was there.
    _check(spans)
    response.outputs = outputs


def _fitting(
    request: InferRequest, response: InferResponse
) -> tuple[dict[str, Span | None], list[memoryview]]:
    """Return the places of outputs by name, and the bytes of each output.

    Raises RegionFailed if one does not fit.
    """
    places = {output.name: output.place for output in request.outputs}
    views = []
    for tensor in response.outputs:
        view = tensor.view()
        place = places.get(tensor.name)
        if place is not None and len(view) > len(place.view):
            raise RegionFailed(
                f"shared memory size specified with the request for output '{tensor.name}' "
                f"({len(place.view)} bytes) should be at least {len(view)} bytes to hold the "
                f"results"
            )
        views.append(view)
    return places, views


def _check(spans: list[Span]) -> None:
    """Raise InvalidRequest if memory went away meanwhile."""
    for index, span in enumerate(spans):
        # A request's spans are mostly of one region, which is checked once.
        if not index or span.region is not spans[index - 1].region:
            span.check()


def _placed(
    places: dict[str, Span | None],
    outputs: list[Tensor],
    views: list[memoryview],
    spans: list[Span],
) -> list[Tensor]:
    placed = []
    for tensor, view in zip(outputs, views, strict=True):
        data: object = tensor.data
        place = places.get(tensor.name)
        if place is not None:
            _fill(place, data, view)
            data = b""
        elif _is_shared(view, spans):
            data = _copied(tensor.name, view)
        placed.append(Tensor(tensor.name, tensor.datatype, tensor.shape, data, tensor.parameters))
    return placed


def _copied(name: str, data: memoryview) -> memoryview:
    """Return a copy of output `name`, made by numpy: it releases the interpreter lock."""
    if len(data) > MAX_COPIED_BYTES:
        raise InvalidRequest(
            f"output '{name}' lies in shared memory and has {len(data)} bytes; more than "
            f"{MAX_COPIED_BYTES} are not copied to be sent, give it a place in shared memory"
        )
    try:
        copy = np.empty(len(data), np.uint8)
    except MemoryError:
        msg = f"the server has no memory for the {len(data)} bytes of output '{name}'"
        raise Unavailable(msg) from None
    np.copyto(copy, _bytes_of(data))
    return copy.data


def _fill(place: Span, data: object, view: memoryview) -> None:
    """Copy `data`, bytes of which are `view`, to its place, unless it is there already."""
    size_bytes = len(view)
    is_there = isinstance(data, np.ndarray) and _address(data) == _address(_bytes_of(place.view))
    if not is_there and size_bytes > INLINE_BYTES:  # numpy releases the interpreter lock
        np.copyto(_bytes_of(place.view)[:size_bytes], _bytes_of(view))
    elif not is_there:
        place.view[:size_bytes] = view
    # Memory of a GPU: what was written is a copy on the CPU.
    if place.is_copy:
        place.flush(size_bytes)


def _address(data: Array) -> int:
    return int(data.__array_interface__["data"][0])


def _is_shared(data: memoryview, spans: list[Span]) -> bool:
    array = _bytes_of(data)
    # may_share_memory compares bounds only, which is exact for contiguous bytes.
    return any(np.may_share_memory(array, _bytes_of(span.view)) for span in spans)


def _bytes_of(view: memoryview) -> Array:
    return np.frombuffer(view, np.uint8)
