"""MXNet operators that create arrays: initial states, ranges, anchor boxes."""

from math import sqrt
from typing import Any

import numpy as np

from inferd.convert.call import MAX_FILLED, Converted, Converter
from inferd.convert.graph import Graph, Value
from inferd.convert.mxnet.call import MxnetCall
from inferd.tensor.dtype import DataType


def _filled(number: float | None) -> Converter:
    """Return the converter of an array filled with one number.

    A dim of 0 is one that MXNet infers; it becomes 1, which broadcasts to any size.
    """

    def convert(graph: Graph, call: MxnetCall) -> Converted:
        dims = [dim or 1 for dim in call.integers("shape")]
        value = call.number("value") if number is None else number
        call.count_filled(dims)
        return graph.constant(np.full(dims or [1], value).astype(_dtype(call)))

    return convert


def _dtype(call: MxnetCall) -> "np.dtype[Any]":
    return call.element_type().numpy if call.has("dtype") else DataType.FP32.numpy


def _arange(graph: Graph, call: MxnetCall) -> Converted:
    start, step, repeat = call.number("start"), call.number("step", 1.0), call.integer("repeat", 1)
    call.cannot_if(call.flag("infer_range"), "infer_range cannot be converted")
    begin, end = (start, call.number("stop")) if call.has("stop") else (0.0, start)
    if step == 0 or repeat < 1 or not abs((end - begin) / step) * repeat < MAX_FILLED:
        call.refuse(f"it counts from {begin} to {end} in steps of {step}, each {repeat} times")
    count = max(0, int(np.ceil((end - begin) / step)))
    call.count_filled([count * repeat])
    dtype = _dtype(call)  # MXNet counts in this type too
    numbers = np.array(begin).astype(dtype) + np.array(step).astype(dtype) * np.arange(count)
    return graph.constant(np.repeat(numbers, repeat).astype(dtype))


def _arange_like(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    """Convert arange_like: a range over an axis, or over all elements."""
    repeat = call.integer("repeat", 1)
    call.cannot_if(repeat != 1, "repeat cannot be converted")
    is_along = call.has("axis")
    numbers = graph.places(x, call.axis(x.rank, 0)) if is_along else graph.numbered(x)
    return graph.cast(numbers, DataType.FP32) * call.number("step", 1.0) + call.number("start")


# --- anchors ---


def numbers_of(call: MxnetCall, name: str, default: tuple[float, ...]) -> list[float]:
    """Return the attribute `name`, a tuple of numbers, as a list."""
    text = call.word(name, "").strip("()[] ")
    try:
        found = [float(word) for word in text.split(",") if word.strip()]
    except ValueError:
        call.refuse(f"its attribute '{name}' is '{text[:100]}', expected a tuple of numbers")
    return found or list(default)


def _multi_box_prior(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    """Convert MultiBoxPrior: boxes of given sizes and ratios at each place of a feature map."""
    sizes, ratios = numbers_of(call, "sizes", (1.0,)), numbers_of(call, "ratios", (1.0,))
    steps, offsets = numbers_of(call, "steps", (-1, -1)), numbers_of(call, "offsets", (0.5, 0.5))
    if min(ratios) <= 0 or len(steps) != 2 or len(offsets) != 2:
        call.refuse("its ratios should be above 0, its steps and offsets two numbers each")
    height, width = (graph.cast(graph.length(x, axis), DataType.FP32) for axis in (2, 3))
    centers = []
    for axis, size, step, offset in zip((2, 3), (height, width), steps, offsets, strict=True):
        places = graph.cast(graph.places(x, axis), DataType.FP32) + offset
        centers.append(places * step if step > 0 else places * graph.add("Reciprocal", size))
    shapes = [(size, sqrt(ratios[0])) for size in sizes]
    shapes += [(sizes[0], sqrt(ratio)) for ratio in ratios[1:]]
    halves = [graph.constant(np.array([s * r / 2 for s, r in shapes], np.float32))]
    halves.append(graph.constant(np.array([s / r / 2 for s, r in shapes], np.float32)))
    halves[0] = halves[0] * (height / width)
    shape = graph.join(graph.shape(x, 2, 4), graph.ints(len(shapes)))
    columns = graph.unsqueeze(centers[1], (0, 2)), graph.unsqueeze(centers[0], (1, 2))
    corners = []
    for op in ("Sub", "Add"):
        for center, half in zip(columns, halves, strict=True):
            side = graph.add("Expand", graph.add(op, center, half, rank=3), shape, rank=3)
            corners.append(graph.unsqueeze(side, (3,)))
    boxes = graph.add("Concat", *corners, axis=3)
    if call.flag("clip"):
        boxes = graph.add("Clip", boxes, graph.real(0.0), graph.real(1.0))
    return graph.reshape(boxes, graph.ints(1, -1, 4))


OPERATORS: dict[str, Converter] = {
    **dict.fromkeys(("_zeros", "_zeros_without_dtype"), _filled(0.0)),
    "_ones": _filled(1.0),
    "_full": _filled(None),
    "_arange": _arange,
    "_contrib_arange_like": _arange_like,
    "_contrib_MultiBoxPrior": _multi_box_prior,
}
