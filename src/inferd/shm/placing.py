"""Placing: outputs go where in shared memory the client wants them, and nowhere else."""

import asyncio
from typing import Any

import numpy as np

from inferd.core.request import InferRequest, InferResponse, Span, WantedOutput
from inferd.errors import RegionFailed
from inferd.tensor.tensor import Tensor

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

INLINE_BYTES = 4 << 20
"""So much is copied on the event loop at once: about a millisecond."""


async def place_outputs(request: InferRequest, response: InferResponse) -> None:
    """Put the outputs of `response`, which are in the order `request` wants, in their places.

    What is placed has no data in the response any more. Outputs that are to be sent, but are
    views of shared memory, are copied: a client may write there again while it still reads.

    Raises RegionFailed when an output does not fit in its place, before anything is copied, and
    InvalidRequest when memory the request uses went away.
    """
    assert request.spans is not None
    wanted = request.outputs or [WantedOutput(tensor.name) for tensor in response.outputs]
    pairs = list(zip(wanted, response.outputs, strict=True))
    for one, tensor in pairs:
        if one.place is not None:
            check_room(one.name, one.place, tensor.size_bytes)
    if sum(tensor.size_bytes for tensor in response.outputs) > INLINE_BYTES:
        outputs = await asyncio.to_thread(_placed, pairs, request.spans)
    else:
        outputs = _placed(pairs, request.spans)
    for span in request.spans:
        span.check()
    response.outputs = outputs


def check_room(name: str, place: Span, size_bytes: int) -> None:
    """Check that an output of `size_bytes` fits in its place. Raises RegionFailed."""
    if size_bytes > len(place.view):
        msg = (
            f"output '{name}' has {size_bytes} bytes, "
            f"the shared memory it was given has {len(place.view)}"
        )
        raise RegionFailed(msg)


def _placed(pairs: list[tuple[WantedOutput, Tensor]], spans: list[Span]) -> list[Tensor]:
    outputs = []
    for wanted, tensor in pairs:
        place = wanted.place
        if place is not None:
            _fill(place, tensor)
            tensor = _with_data(tensor, b"")
        elif _is_shared(tensor, spans):
            tensor = _with_data(tensor, bytes(tensor.view()))
        outputs.append(tensor)
    return outputs


def _fill(place: Span, tensor: Tensor) -> None:
    data = _bytes_of(tensor.view())
    room = _bytes_of(place.view)[: len(data)]
    if _address(room) != _address(data):  # a backend may have written there itself
        np.copyto(room, data)
    place.flush(len(data))


def _is_shared(tensor: Tensor, spans: list[Span]) -> bool:
    data = _bytes_of(tensor.view())
    return any(np.may_share_memory(data, _bytes_of(span.view)) for span in spans)


def _bytes_of(view: memoryview) -> Bytes:
    return np.frombuffer(view, np.uint8)


def _address(array: Bytes) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _with_data(tensor: Tensor, data: bytes) -> Tensor:
    return Tensor(tensor.name, tensor.datatype, tensor.shape, data, tensor.parameters)
