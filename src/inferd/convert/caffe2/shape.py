"""Caffe2 operators that split, join and rearrange tensors, and change no element."""

from collections.abc import Callable

import numpy as np

from inferd.convert.caffe2.call import Call, Converted
from inferd.convert.graph import Graph, Value
from inferd.convert.window import channels_first, channels_last
from inferd.tensor.dtype import DataType

_END = 2**63 - 1


def _reshape(call: Call) -> Converted:
    graph, x = call.graph, call.input(0)
    if len(call.inputs) > 1:
        given = call.input(1)
        y = graph.add("Reshape", x, graph.cast(given, DataType.INT64), rank=given.size)
        return y, graph.add("CastLike", graph.shape(x), given)
    if not call.has("shape"):
        call.refuse("it has neither the argument 'shape' nor a second input")
    shape = graph.ints(*call.integers("shape"))
    return graph.add("Reshape", x, shape, rank=shape.size), graph.shape(x)


def _flatten(call: Call) -> Converted:
    x = call.input(0)
    axis = call.integer("axis", 1)
    return call.graph.add("Flatten", x, rank=2, axis=axis)


def _to_vector(call: Call) -> Converted:
    return call.graph.add("Reshape", call.input(0), call.graph.ints(-1), rank=1)


def _dims(call: Call) -> list[int]:
    dims = sorted(set(call.integers("dims")))
    if not dims or dims[0] < 0:
        call.refuse("its argument 'dims' should list dims, from 0 on")
    return dims


def _squeeze(call: Call) -> Converted:
    x, dims = call.input(0), _dims(call)
    rank = None if x.rank is None else x.rank - len(dims)
    return call.graph.add("Squeeze", x, call.graph.ints(*dims), rank=rank)


def _expand_dims(call: Call) -> Converted:
    return call.graph.unsqueeze(call.input(0), _dims(call))


def _transpose(call: Call) -> Converted:
    graph, x = call.graph, call.input(0)
    if axes := call.integers("axes"):
        if sorted(axes) != list(range(len(axes))) or x.rank not in (None, len(axes)):
            call.refuse(f"axes {axes} are not those of its input")
        return graph.transpose(x, axes)
    return graph.add("Transpose", x)


def _to_nhwc(call: Call) -> Converted:
    x = call.input(0)
    return channels_last(call.graph, x, x.rank or 4)


def _to_nchw(call: Call) -> Converted:
    x = call.input(0)
    return channels_first(call.graph, x, x.rank or 4)


def _merge_dim(call: Call) -> Converted:
    graph, x = call.graph, call.input(0)
    first = graph.add("ReduceProd", graph.shape(x, 0, 2), rank=1, keepdims=1)
    rank = None if x.rank is None else x.rank - 1
    return graph.reshape(x, graph.join(first, graph.shape(x, 2)), rank)


def _expand(call: Call) -> Converted:
    """Convert Expand: a dim of 1, in the input or the requested shape, takes the other's size."""
    graph, x = call.graph, call.input(0)
    if len(call.inputs) > 1:
        return graph.add("Expand", x, graph.cast(call.input(1), DataType.INT64), rank=None)
    return graph.add("Expand", x, graph.ints(*call.integers("shape")), rank=None)


def _resize_like(call: Call) -> Converted:
    return call.graph.reshape(call.input(0), call.graph.shape(call.input(1)), call.input(1).rank)


def _shape(call: Call) -> Converted:
    graph, x = call.graph, call.input(0)
    axes = call.integers("axes")
    if not axes:
        return graph.shape(x)
    return graph.add("Gather", graph.shape(x), graph.ints(*axes), axis=0)


def _size(call: Call) -> Converted:
    return call.graph.add("Size", call.input(0), rank=0)


# --- joined and split ---


def _concat(call: Call) -> Converted:
    """Convert Concat; the second output is the length of each part along the axis."""
    graph, axis = call.graph, call.channel_axis()
    parts = [call.input(0), *call.inputs[1:]]
    if call.flag("add_axis"):
        parts = [graph.unsqueeze(part, (axis,)) for part in parts]
    axis = call.checked(axis, parts[0].rank)
    joined = graph.add("Concat", *parts, axis=axis)
    if call.output_count < 2:
        return joined
    lengths = [_length(graph, part, axis) for part in parts]
    return joined, graph.cast(graph.join(*lengths), DataType.INT32)


def _length(graph: Graph, value: Value, axis: int) -> Value:
    return graph.shape(value, axis, axis + 1 if axis != -1 else None)


def _split(call: Call) -> Converted:
    graph, x = call.graph, call.input(0)
    axis, sizes = call.checked(call.channel_axis(), x.rank), call.integers("split")
    count = call.output_count
    lengths: Value | None = None
    if len(call.inputs) > 1:
        lengths = graph.cast(call.input(1), DataType.INT64)
    elif sizes:
        if len(sizes) != count or min(sizes) < 0:
            call.refuse(f"split is {sizes}, which is not a size for each of {count} outputs")
        lengths = graph.ints(*sizes)
    equal = None if lengths else count
    parts = graph.add_several(count, "Split", x, lengths, axis=axis, num_outputs=equal)
    if not call.flag("add_axis"):
        return parts
    rank = None if x.rank is None else x.rank - 1
    return tuple(graph.add("Squeeze", part, graph.ints(axis), rank=rank) for part in parts)


def _slice(call: Call) -> Converted:
    """Convert Slice; a bound of -1 is one past the last element, -2 is the last element."""
    graph, x = call.graph, call.input(0)
    if len(call.inputs) > 1:
        bounds = [_bound(graph, call.input(index)) for index in (1, 2)]
        return graph.add("Slice", x, *bounds)
    starts, ends = call.integers("starts"), call.integers("ends")
    if not starts or len(starts) != len(ends):
        call.refuse("its arguments 'starts' and 'ends' are not of one length")
    moved = [[_moved(bound) for bound in bounds] for bounds in (starts, ends)]
    return graph.add("Slice", x, *(graph.ints(*bounds) for bounds in moved))


def _moved(bound: int) -> int:
    return bound if bound >= 0 else _END if bound == -1 else bound + 1


def _bound(graph: Graph, bounds: Value) -> Value:
    bounds = graph.cast(bounds, DataType.INT64)
    moved = graph.add("Add", bounds, graph.ints(1))
    moved = graph.add("Where", graph.add("Equal", bounds, graph.ints(-1)), graph.ints(_END), moved)
    return graph.add("Where", graph.add("Less", bounds, graph.ints(0)), moved, bounds)


# --- repeated ---


def _tile(call: Call) -> Converted:
    """Convert Tile: repeat `tiles` times along `axis`; both are arguments or inputs."""
    graph, x = call.graph, call.input(0)
    tiles, axis = graph.ints(call.integer("tiles", 1)), graph.ints(call.integer("axis"))
    if len(call.inputs) > 1:
        tiles = _as_vector(graph, call.input(1))
    if len(call.inputs) > 2:
        axis = _as_vector(graph, call.input(2))
    ones = graph.add("ConstantOfShape", graph.shape(graph.shape(x)), rank=1, value=_ONE)
    repeats = graph.add("ScatterElements", ones, axis, tiles, axis=0)
    return graph.add("Tile", x, repeats)


_ONE = np.array([1], np.int64)


def _as_vector(graph: Graph, value: Value) -> Value:
    return graph.add("Reshape", graph.cast(value, DataType.INT64), graph.ints(1), rank=1)


def _numpy_tile(call: Call) -> Converted:
    repeats = call.graph.cast(call.input(1), DataType.INT64)
    return call.graph.add("Tile", call.input(0), repeats)


# --- channels ---


def _channel_shuffle(call: Call) -> Converted:
    """Convert ChannelShuffle: transpose channels as [groups, channels of each]."""
    graph, x, groups = call.graph, call.input(0), call.integer("group", 1)
    if groups < 1:
        call.refuse("its argument 'group' should be at least 1")
    if call.is_nhwc:
        split = graph.join(graph.shape(x, 0, -1), graph.ints(groups, -1))
        rank = x.rank or 4
        turned = graph.transpose(
            graph.reshape(x, split, rank + 1), (*range(rank - 1), rank, rank - 1)
        )
        return graph.reshape(turned, graph.shape(x), x.rank)
    split = graph.join(graph.shape(x, 0, 1), graph.ints(groups, -1), _area(graph, x))
    turned = graph.transpose(graph.reshape(x, split, 4), (0, 2, 1, 3))
    return graph.reshape(turned, graph.shape(x), x.rank)


def _area(graph: Graph, x: Value) -> Value:
    return graph.add("ReduceProd", graph.shape(x, 2), rank=1, keepdims=1)


def _gated(call: Call) -> Converted:
    """Convert Glu: the first half times the sigmoid of the second."""
    graph, x = call.graph, call.input(0)
    axis = call.checked(call.integer("dim", -1), x.rank)
    a, b = graph.add_several(2, "Split", x, axis=axis, num_outputs=2)
    return graph.add("Mul", a, graph.add("Sigmoid", b))


OPERATORS: dict[str, Callable[[Call], Converted]] = {
    "Reshape": _reshape,
    "Flatten": _flatten,
    "FlattenToVec": _to_vector,
    "Squeeze": _squeeze,
    "ExpandDims": _expand_dims,
    "Transpose": _transpose,
    "NCHW2NHWC": _to_nhwc,
    "NHWC2NCHW": _to_nchw,
    "MergeDim": _merge_dim,
    "Expand": _expand,
    "ResizeLike": _resize_like,
    "Shape": _shape,
    "Size": _size,
    "Concat": _concat,
    "DepthConcat": _concat,
    "Split": _split,
    "DepthSplit": _split,
    "Slice": _slice,
    "Tile": _tile,
    "NumpyTile": _numpy_tile,
    "ChannelShuffle": _channel_shuffle,
    "Glu": _gated,
}
