"""Sizes: operators that make as many elements as a request says, and run as long.

Sizes that are computed from dims of inputs are as bounded as these. Those that come from the values
of inputs are limited: an input is checked before the run, a computed size by nodes that divide by
zero if it is too large.
"""

from math import prod

import numpy as np

from inferd.backends.onnx.doors.check import range_check, size_check
from inferd.backends.onnx.doors.shutting import Shutter, Shutting
from inferd.formats.onnx_graph import INT32, INT64

_FLOAT, _DOUBLE = 1, 11
_NUMBERS = (_FLOAT, INT32, INT64, _DOUBLE)
"""Types of elements that can be multiplied in every opset."""


def _sized(index: int, data: int | None = None) -> Shutter:
    """Return what shuts an operator that makes as many elements as its input of that index says.

    It makes as many for each element of its input `data`.
    """

    def shut_sizes(it: Shutting) -> None:
        size = it.node.input(index)
        if not size or not it.scope.is_valued(size):
            return
        of = "" if data is None else it.node.input(data)
        dims = () if data is None else it.scope.dims(of)
        if it.is_open(index) and dims is not None:
            it.checks.append(size_check(size, it.what, it.most, each=prod(dims)))
        elif it.is_open(index) and of in it.scope.open_inputs:
            it.checks.append(size_check(size, it.what, it.most, of))
        else:
            total = _product(it, size)
            _limit(it, index, _times_size(it, total, of) if of else total)
        it.is_bounded = False

    return shut_sizes


def _resize(it: Shutting) -> None:
    # Resize-10 is (X, scales); since 11 it is (X, roi, scales, sizes). No input has index 99.
    scales, sizes = (1, 99) if it.opset < 11 else (2, 3)
    for index in (scales, sizes):
        size = it.node.input(index)
        if size and it.scope.is_valued(size):
            total = _product(it, size)
            if index == scales:
                total = _times_size(it, total, it.node.input(0))
            # Sizes of some axes only, since opset 18: their product is not that of the whole.
            elif it.node.numbers("axes"):
                return
            _limit(it, index, total)
            it.is_bounded = False
            return


def _pad(it: Shutting) -> None:
    pads, axes = it.node.input(1), it.node.input(3)
    if not pads or not it.scope.is_valued(pads):
        return
    one = it.constant(np.array(1, np.float32))
    # At least 1, since an empty dim can be padded to anything and must not cancel the rest.
    dims = it.add("Max", (_real(it, it.add("Shape", (it.node.input(0),), _WHY)), one), _WHY)
    padded = dims
    if axes:
        places = it.add("Cast", (axes,), _WHY, to=INT64)
        padded = it.add("Gather", (dims, places), _WHY)
    # All begins, then all ends (ONNX, Pad): two rows, whose sum is by how much each dim grows.
    ends = it.add("Reshape", (_real(it, pads), it.constant(np.array([2, -1]))), _WHY)
    both = it.add("MatMul", (it.constant(np.ones((1, 2), np.float32)), ends), _WHY)
    more = it.add("Reshape", (both, it.constant(np.array([-1]))), _WHY)
    growth = it.add("Div", (it.add("Add", (padded, more), _WHY), padded), _WHY)
    total = it.add("Mul", (_multiplied(it, dims), _multiplied(it, growth)), _WHY)
    _limit(it, 1, total)
    it.is_bounded = False


def _range(it: Shutting) -> None:
    names = start, limit, delta = [it.node.input(index) for index in range(3)]
    if not any(it.scope.is_valued(name) for name in names):
        return
    constants = {name: it.scope.constant(name) for name in names}
    known = {name: one for name, one in constants.items() if one is not None}
    if all(it.is_open(index) or names[index] in known for index in range(3)):
        it.checks.append(range_check((start, limit, delta), it.what, it.most, known))
    else:
        span = it.add("Sub", (_real(it, limit), _real(it, start)), _WHY)
        _limit(it, 1, it.add("Div", (span, _real(it, delta)), _WHY))
    it.is_bounded = False


def _loop(it: Shutting) -> None:
    """A loop without end cannot be told from others; it is only noted."""
    count = it.node.input(0)
    it.is_bounded = bool(count) and not it.scope.is_valued(count)


_WHY = "makes too many elements"


def _real(it: Shutting, name: str) -> str:
    # A product of INT64 could wrap around to something small; one of FLOAT becomes infinite.
    return it.add("Cast", (name,), _WHY, to=_FLOAT)


def _multiplied(it: Shutting, name: str) -> str:
    return it.add("ReduceProd", (name,), _WHY, keepdims=0)


def _product(it: Shutting, name: str) -> str:
    return _multiplied(it, _real(it, name))


def _times_size(it: Shutting, total: str, data: str) -> str:
    return it.add("Mul", (total, _real(it, it.add("Size", (data,), _WHY))), _WHY)


def _limit(it: Shutting, index: int, total: str) -> None:
    """Let that input pass only if `total`, one FLOAT, is at most `it.most`."""
    element = it.scope.element(it.node.input(index))
    if element not in _NUMBERS:
        return
    most = it.constant(np.array(it.most, np.float32))
    is_over = it.add("Greater", (total, most), _WHY)
    unit = it.unit(it.add("Not", (is_over,), _WHY), _WHY)
    one = it.add("Cast", (unit,), _WHY, to=element)
    it.replace(index, it.add("Mul", (it.name(index), one), _WHY))


SIZES: dict[str, Shutter] = {
    "AffineGrid": _sized(1),
    "BlackmanWindow": _sized(0),
    "CenterCropPad": _sized(1),
    "Col2Im": _sized(1),
    "ConstantOfShape": _sized(0),
    "Expand": _sized(1),
    "HammingWindow": _sized(0),
    "HannWindow": _sized(0),
    "Loop": _loop,
    "MaxUnpool": _sized(2),
    "OneHot": _sized(1, data=0),
    "Pad": _pad,
    "Range": _range,
    "Resize": _resize,
    "Tile": _sized(1, data=0),
    "Upsample": _resize,
}
"""ONNX's own operator -> what limits what it makes."""
