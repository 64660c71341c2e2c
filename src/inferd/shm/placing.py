"""Placing: outputs go where in shared memory the client wants them, and nowhere else."""

import asyncio
from typing import Any

import numpy as np

from inferd.core.request import InferRequest, InferResponse, Span, wanted_of
from inferd.errors import InvalidRequest, RegionFailed, Unavailable
from inferd.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]

INLINE_BYTES = 4 << 20
"""So much is copied on the event loop at once: about a millisecond."""

MAX_COPIED_BYTES = (1 << 31) - 1
"""The largest output that is copied out of shared memory to be sent: the largest gRPC message."""


async def place_outputs(request: InferRequest, response: InferResponse) -> None:
    """Do what `place_now` does, what takes long in a thread. Raises as that."""
    if not is_large(response):
        place_now(request, response)
        return
    places, views = _fitting(request, response)
    spans = request.spans or []
    placed = await asyncio.to_thread(_placed, places, response.outputs, views, spans)
    _check(spans)
    response.outputs = placed


def is_large(response: InferResponse) -> bool:
    """Tell whether the outputs of `response` are too much to be copied on the event loop."""
    size_bytes = 0
    for tensor in response.outputs:
        size_bytes += tensor.size_bytes
    return size_bytes > INLINE_BYTES


def place_now(request: InferRequest, response: InferResponse) -> None:
    """Put the outputs of `response`, which are in the order `request` wants, in their places.

    What is placed has no data in the response any more. Outputs that are to be sent, but are
    views of shared memory, are copied: a client may write there again while it still reads.

    Raises RegionFailed when an output does not fit in its place, before anything is copied, and
    InvalidRequest when memory the request uses went away, or more is to be sent than
    MAX_COPIED_BYTES; Unavailable when there is no memory for that.
    """
    places, views = _fitting(request, response)
    spans = request.spans or []
    placed = _placed(places, response.outputs, views, spans)
    _check(spans)
    response.outputs = placed


def _fitting(
    request: InferRequest, response: InferResponse
) -> tuple[list[Span | None], list[memoryview]]:
    """Return the place of each output, and its bytes. Raises RegionFailed without room."""
    outputs = response.outputs
    places: list[Span | None]
    if request.outputs:
        places = [one.place for one in wanted_of(request, response)]
    else:
        places = [None] * len(outputs)
    views = []
    for index, tensor in enumerate(outputs):
        view = tensor.view()
        place = places[index]
        if place is not None and len(view) > len(place.view):
            raise _no_room(tensor.name, len(view), len(place.view))
        views.append(view)
    return places, views


def _check(spans: list[Span]) -> None:
    """Raise InvalidRequest when memory went away meanwhile."""
    checked: object = None
    for span in spans:
        if span.region is not checked:
            span.check()
            checked = span.region


def _placed(
    places: list[Span | None], outputs: list[Tensor], views: list[memoryview], spans: list[Span]
) -> list[Tensor]:
    placed = []
    for index, tensor in enumerate(outputs):
        data: Any = tensor.data
        place, view = places[index], views[index]
        if place is not None:
            _fill(place, view, is_there=_is_there(data, place))
            data = b""
        elif _is_shared(view, spans):
            data = _copied(tensor.name, view)
        placed.append(Tensor(tensor.name, tensor.datatype, tensor.shape, data, tensor.parameters))
    return placed


def _copied(name: str, data: memoryview) -> memoryview:
    """Return a copy of output `name`, made by numpy: it lets other threads run meanwhile."""
    if len(data) > MAX_COPIED_BYTES:
        msg = (
            f"output '{name}' lies in shared memory and has {len(data)} bytes; more than "
            f"{MAX_COPIED_BYTES} are not copied to be sent, give it a place in shared memory"
        )
        raise InvalidRequest(msg)
    try:
        copy = np.empty(len(data), np.uint8)
    except MemoryError:
        msg = f"the server has no memory for the {len(data)} bytes of output '{name}'"
        raise Unavailable(msg) from None
    np.copyto(copy, _bytes_of(data))
    return copy.data


def _fill(place: Span, data: memoryview, *, is_there: bool) -> None:
    """Copy `data` to its place, unless the backend has put it there itself."""
    size_bytes = len(data)
    if not is_there and size_bytes > INLINE_BYTES:  # here numpy lets other threads run
        np.copyto(_bytes_of(place.view)[:size_bytes], _bytes_of(data))
    elif not is_there:
        place.view[:size_bytes] = data
    if place.is_copy:
        place.flush(size_bytes)


def _is_there(data: Any, place: Span) -> bool:
    """Tell whether a backend has written its array straight into the place."""
    return isinstance(data, np.ndarray) and _address(data) == _address(_bytes_of(place.view))


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _is_shared(data: memoryview, spans: list[Span]) -> bool:
    array = _bytes_of(data)
    return any(np.may_share_memory(array, _bytes_of(span.view)) for span in spans)


def _bytes_of(view: memoryview) -> Array:
    return np.frombuffer(view, np.uint8)


def _no_room(name: str, size_bytes: int, room_bytes: int) -> RegionFailed:
    return RegionFailed(
        f"output '{name}' has {size_bytes} bytes, the shared memory it was given has {room_bytes}"
    )
