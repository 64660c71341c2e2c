"""Caffe2 operators on boxes in images."""

import math
from collections.abc import Callable

import numpy as np

from inferd.convert.caffe2.call import Call, Converted
from inferd.convert.caffe2.selection import image_numbers
from inferd.convert.graph import Graph, Value
from inferd.tensor.dtype import DataType

_MOST_GROWTH = math.log(1000 / 16)
_ENDLESS = 2**63 - 1


def _transform(call: Call) -> Converted:
    """Convert BBoxTransform: boxes moved, stretched and cut, for each class by its own deltas.

    Boxes have four numbers, or the image's number before them; `im_info` has the height, width and
    scale of each image.
    """
    graph, regions, deltas, info = call.graph, call.input(0), call.input(1), call.input(2)
    if call.flag("rotated"):
        call.refuse("rotated boxes cannot be converted")
    numbers, one = image_numbers(graph, regions), graph.real(_plus_one(call))
    weights = call.argument("weights").floats
    weights = np.array(weights if len(weights) else [1] * 4, np.float32)
    if weights.shape != (4,) or not weights.all():
        call.refuse("its argument 'weights' should be four numbers, none of them 0")
    told = graph.add("Gather", info, numbers, axis=0)
    scale = _columns(graph, told, 2, 3)
    limits = _limits(graph, _columns(graph, told, 0, 2), scale, one)

    boxes = graph.add("Div", _columns(graph, regions, -4, _ENDLESS), scale, rank=2)
    low, high = _columns(graph, boxes, 0, 2), _columns(graph, boxes, 2, 4)
    size = graph.add("Add", graph.add("Sub", high, low), one)
    center = graph.add("Add", low, graph.add("Mul", size, graph.real(0.5)))
    size, center = graph.unsqueeze(size, (1,)), graph.unsqueeze(center, (1,))

    classes = graph.add("Div", graph.shape(deltas, 1, 2), graph.ints(4))
    shape = graph.join(graph.shape(deltas, 0, 1), classes, graph.ints(4))
    changes = graph.add("Div", graph.reshape(deltas, shape, 3), graph.constant(weights))
    moved = graph.add("Mul", _columns(graph, changes, 0, 2), size)
    center = graph.add("Add", moved, center)
    growth = graph.add("Min", _columns(graph, changes, 2, 4), graph.real(_MOST_GROWTH))
    half = graph.add("Mul", graph.add("Mul", graph.add("Exp", growth), size), graph.real(0.5))
    ends = graph.add("Sub", graph.add("Add", center, half), one)
    made = graph.add("Concat", graph.add("Sub", center, half), ends, axis=2)
    made = graph.add("Max", graph.add("Min", made, limits), graph.real(0.0))
    if call.integer("apply_scale", 1):
        made = graph.add("Mul", made, graph.unsqueeze(scale, (1,)))
    return graph.reshape(made, graph.shape(deltas), 2), _counts(graph, numbers, info)


def _plus_one(call: Call) -> float:
    """Return 1 where boxes end with their last pixel, and 0 where they end behind it."""
    if call.has("legacy_plus_one"):
        return float(call.flag("legacy_plus_one"))
    if not call.flag("correct_transform_coords"):
        call.refuse(
            "it has neither legacy_plus_one nor correct_transform_coords: 1, and without them "
            "releases of Caffe2 differ by a pixel"
        )
    return 1.0


def _limits(graph: Graph, sizes: Value, scale: Value, one: Value) -> Value:
    """Return the largest left, top, right and bottom, [n, 1, 4], in images that were scaled."""
    rounded = graph.add("Add", graph.add("Div", sizes, scale, rank=2), graph.real(0.5))
    whole = graph.cast(graph.cast(rounded, DataType.INT64), DataType.FP32)
    order = graph.constant(np.array([1, 0, 1, 0], np.int64))
    corners = graph.add("Gather", graph.add("Sub", whole, one), order, rank=2, axis=1)
    return graph.unsqueeze(corners, (1,))


def _counts(graph: Graph, numbers: Value, info: Value) -> Value:
    """Return how many boxes each image has."""
    count = graph.reshape(graph.shape(info, 0, 1), graph.ints())
    images = graph.add("Range", graph.whole(0), count, graph.whole(1), rank=1)
    rows, columns = graph.unsqueeze(images, (1,)), graph.unsqueeze(numbers, (0,))
    is_there = graph.cast(graph.add("Equal", rows, columns, rank=2), DataType.FP32)
    return graph.add("ReduceSum", is_there, graph.ints(1), rank=1, keepdims=0)


def _columns(graph: Graph, value: Value, start: int, end: int) -> Value:
    return graph.add("Slice", value, graph.ints(start), graph.ints(end), graph.ints(-1))


OPERATORS: dict[str, Callable[[Call], Converted]] = {"BBoxTransform": _transform}
