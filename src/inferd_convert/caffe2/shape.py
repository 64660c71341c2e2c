"""Caffe2 operators that split, join, rearrange, pick and reduce."""

import numpy as np

from inferd.tensor.dtype import DataType
from inferd_convert import formulas
from inferd_convert.caffe2.call import Caffe2Call
from inferd_convert.call import Converted, Converter
from inferd_convert.graph import END, Graph, Value
from inferd_convert.image import channels_first, channels_last


def _reshape(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    if len(call.inputs) > 1:
        given = call.input(1)
        y = graph.add("Reshape", x, graph.cast(given, DataType.INT64), rank=given.size)
        # The second output is the old shape, as Caffe2's gradient needs it.
        return y, graph.add("CastLike", graph.shape(x), given)
    call.refuse_if(not call.has("shape"), "it has neither the argument 'shape' nor a second input")
    shape = graph.ints(*call.integers("shape"))
    return graph.add("Reshape", x, shape, rank=shape.size), graph.shape(x)


def _dims(call: Caffe2Call) -> list[int]:
    dims = sorted(set(call.integers("dims")))
    call.refuse_if(not dims or dims[0] < 0, "its argument 'dims' should list dims, from 0 on")
    return dims


def _transpose(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    if axes := call.integers("axes"):
        if sorted(axes) != list(range(len(axes))) or x.rank not in (None, len(axes)):
            call.refuse(f"axes {axes} are not those of its input")
        return graph.transpose(x, axes)
    # Without perm, ONNX reverses the dims as Caffe2 does.
    return graph.add("Transpose", x)


def _merge_dim(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    first = graph.reduce("ReduceProd", graph.shape(x, 0, 2), keep=True)
    return graph.reshape(x, graph.join(first, graph.shape(x, 2)), x.rank_with(-1))


def _prepend_dim(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    """Convert PrependDim: the first dim is split in two, the first of size `dim_size`."""
    size = call.integer("dim_size")
    call.refuse_if(size < 1, f"its argument 'dim_size' is {size}, expected at least 1")
    first = graph.length(x, 0) / graph.ints(size)
    shape = graph.join(graph.ints(size), first, graph.shape(x, 1))
    return graph.reshape(x, shape, x.rank_with(1))


def _expand(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    """Convert Expand: a dim of 1, in the input or the requested shape, takes the other's size."""
    if len(call.inputs) > 1:
        shape = graph.cast(call.input(1), DataType.INT64)
    else:
        shape = graph.ints(*call.integers("shape"))
    return graph.add("Expand", x, shape, rank=None)


def _shape(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    shape, axes = graph.shape(x), call.integers("axes")
    return graph.add("Gather", shape, graph.ints(*axes), axis=0) if axes else shape


def _concat(graph: Graph, call: Caffe2Call) -> Converted:
    """Convert Concat; the second output is the length of each part along the axis."""
    # Caffe2 joins and splits along the channels by default, wherever `order` has them.
    axis = call.channel_axis()
    parts = [call.input(0), *call.inputs[1:]]
    if call.flag("add_axis"):
        parts = [graph.unsqueeze(part, (axis,)) for part in parts]
    axis = call.checked(axis, parts[0].rank)
    joined = graph.add("Concat", *parts, axis=axis)
    if call.output_count < 2:
        return joined
    lengths = [graph.length(part, axis) for part in parts]
    return joined, graph.cast(graph.join(*lengths), DataType.INT32)


def _split(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    axis, sizes = call.checked(call.channel_axis(), x.rank), call.integers("split")
    count = call.output_count
    lengths: Value | None = None
    if len(call.inputs) > 1:
        lengths = graph.cast(call.input(1), DataType.INT64)
    elif sizes:
        if len(sizes) != count or min(sizes) < 0:
            call.refuse(f"split is {sizes}, which is not a size for each of {count} outputs")
        lengths = graph.ints(*sizes)
    # num_outputs must be absent if lengths are given (ONNX, Split-18).
    equal = None if lengths else count
    parts = graph.add_several(count, "Split", x, lengths, axis=axis, num_outputs=equal)
    if not call.flag("add_axis"):
        return parts
    return tuple(graph.squeeze(part, axis) for part in parts)


def _slice(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    """Convert Slice; a bound of -1 is one past the last element, -2 is the last element."""
    if len(call.inputs) > 1:
        bounds = [_bound(graph, call.input(index)) for index in (1, 2)]
        return graph.add("Slice", x, *bounds)
    starts, ends = call.integers("starts"), call.integers("ends")
    if not starts or len(starts) != len(ends):
        call.refuse("its arguments 'starts' and 'ends' are not of one length")
    moved = [[_moved(bound) for bound in bounds] for bounds in (starts, ends)]
    return graph.add("Slice", x, *(graph.ints(*bounds) for bounds in moved))


def _moved(bound: int) -> int:
    return bound if bound >= 0 else END if bound == -1 else bound + 1


def _bound(graph: Graph, bounds: Value) -> Value:
    bounds = graph.cast(bounds, DataType.INT64)
    moved = bounds + graph.ints(1)
    moved = graph.add("Where", graph.add("Equal", bounds, graph.ints(-1)), graph.ints(END), moved)
    return graph.add("Where", graph.add("Less", bounds, graph.ints(0)), moved, bounds)


def _tile(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    """Convert Tile: repeat `tiles` times along `axis`; both are arguments or inputs."""
    tiles, axis = graph.ints(call.integer("tiles", 1)), graph.ints(call.integer("axis"))
    if len(call.inputs) > 1:
        tiles = _as_vector(graph, call.input(1))
    if len(call.inputs) > 2:
        axis = _as_vector(graph, call.input(2))
    # As many as x has dims, which may only be known at run time.
    ones = formulas.ones(graph, graph.shape(graph.shape(x)))
    return graph.add("Tile", x, graph.add("ScatterElements", ones, axis, tiles, axis=0))


def _as_vector(graph: Graph, value: Value) -> Value:
    return graph.add("Reshape", graph.cast(value, DataType.INT64), graph.ints(1), rank=1)


def _channel_shuffle(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    """Convert ChannelShuffle: transpose channels as [groups, channels of each]."""
    groups = call.integer("group", 1)
    call.refuse_if(groups < 1, "its argument 'group' should be at least 1")
    if call.is_nhwc:
        split = graph.join(graph.shape(x, 0, -1), graph.ints(groups, -1))
        turned = graph.swap_last(graph.reshape(x, split, (x.rank or 4) + 1))
    else:
        # The dims of the image as one: their number does not matter then.
        area = graph.reduce("ReduceProd", graph.shape(x, 2), keep=True)
        split = graph.join(graph.length(x, 0), graph.ints(groups, -1), area)
        turned = graph.transpose(graph.reshape(x, split, 4), (0, 2, 1, 3))
    return graph.reshape(turned, graph.shape(x), x.rank)


def _gated(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    """Convert Glu: the first half times the sigmoid of the second."""
    axis = call.checked(call.integer("dim", -1), x.rank)
    a, b = graph.add_several(2, "Split", x, axis=axis, num_outputs=2)
    return a * graph.add("Sigmoid", b)


def _gather(graph: Graph, call: Caffe2Call) -> Converted:
    axis = call.integer("axis")
    return _gathered_each(call, axis) if call.flag("match_outer") else _gathered(call, axis)


def _gathered_each(call: Caffe2Call, axis: int) -> Converted:
    """Convert Gather with match_outer: indices differ for each position before `axis`."""
    graph, data, indices = call.graph, call.input(0), call.input(1)
    axis = call.checked(axis, data.rank)
    if axis < 0 or indices.rank is None or indices.rank < axis:
        call.refuse("match_outer needs an axis and indices that have the dims before it")
    # GatherND with batch_dims takes one index for each position, in a last dim of its own.
    numbers = graph.unsqueeze(graph.cast(indices, DataType.INT64), (indices.rank,))
    rank = None if data.rank is None else data.rank + indices.rank - axis - 1
    return graph.add("GatherND", data, numbers, rank=rank, batch_dims=axis)


def _gathered(call: Caffe2Call, axis: int) -> Converted:
    data, indices = call.input(0), call.input(1)
    rank = None
    if data.rank is not None and indices.rank is not None:
        rank = data.rank + indices.rank - 1
    return call.graph.add("Gather", data, indices, rank=rank, axis=call.checked(axis, data.rank))


def _top_k(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    """Convert TopK; if there are fewer than k, values 0 and indices -1 follow, as in Caffe2."""
    k, axis = call.integer("k"), call.axis(x.rank, -1)
    call.refuse_if(k < 1, "its argument 'k' should be at least 1")
    length = graph.length(x, axis)
    count = graph.add("Min", graph.ints(k), length)
    values, indices = graph.add_several(2, "TopK", x, count, axis=axis)
    # As many zeros as x has dims, which may only be known at run time.
    none = formulas.full(graph, graph.shape(graph.shape(x)), np.int64(0))
    behind = graph.add("ScatterElements", none, graph.ints(axis), graph.ints(k) - count, axis=0)
    around = graph.join(none, behind)
    # Only as far as k needs it: TopK itself refuses a k beyond the length.
    values = graph.add("Pad", values, around)
    found = graph.add("Pad", indices, around, graph.whole(-1))
    if call.output_count < 3:
        return values, found
    # The third output has indices into the flattened input.
    places = graph.add("GatherElements", formulas.numbered(graph, x), indices, axis=axis)
    places = graph.add("Pad", places, around, graph.whole(-1))
    return values, found, graph.reshape(places, graph.ints(-1))


def _unique(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    """Convert Unique: the distinct values, sorted, and for each element the index of its value."""
    # Of the two types that Caffe2 supports, ONNX Runtime has INT64.
    whole = graph.cast(x, DataType.INT64)
    found, _, places, _ = graph.add_several(4, "Unique", whole, rank=1, sorted=1)
    return graph.add("CastLike", found, x), graph.cast(places, DataType.INT32)


def _boolean_mask(graph: Graph, call: Caffe2Call, x: Value, mask: Value) -> Converted:
    """Convert BooleanMask: the rows for which the mask is true, and their indices."""
    numbers = graph.add("NonZero", mask, rank=2)
    return (graph.add("Compress", x, mask, axis=0), graph.reshape(numbers, graph.ints(-1)))


def _reduce(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    """Convert ReduceMean and the like, over `axes`, by default all of them."""
    return graph.reduce(call.type, x, call.axes(x), keep=call.keeps_dims)


def _reduce_side(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    """Convert ReduceFrontMean, ReduceBackMean and the like, over the first or last few dims."""
    call.refuse_if(len(call.inputs) > 1, "its second input, lengths, cannot be converted")
    op = call.type.removeprefix("ReduceFront").removeprefix("ReduceBack")
    count = call.integer("num_reduce_dim", 1)
    if count < 0 or (x.rank is not None and count > x.rank):
        call.refuse(f"num_reduce_dim is {count}, the input has {x.rank} dims")
    if not count:
        return x
    # Negative for the last dims, as the rank may not be known.
    axes = range(count) if call.type.startswith("ReduceFront") else range(-count, 0)
    return graph.reduce(f"Reduce{op}", x, axes)


def _total(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    x = x * x if call.type == "SumSqrElements" else x
    return graph.reduce("ReduceMean" if call.flag("average") else "ReduceSum", x)


def _arg(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    axis = call.axis(x.rank, -1)
    return formulas.place_of_extreme(graph, call.type, x, axis, keep=call.keeps_dims)


def _lengths(graph: Graph, call: Caffe2Call, rows: Value) -> Converted:
    """Convert LengthsSum and the like: sums over segments of given lengths."""
    rank, others = rows.rank, list(call.inputs[1:])
    weights = others.pop(0) if "Weighted" in call.type and others else None
    if call.type.startswith("Sparse"):
        indices = others.pop(0) if others else call.input(1)
        # Half floats are accepted too, and summed as FP32.
        rows = graph.cast(graph.add("Gather", rows, indices, axis=0), DataType.FP32)
    flat = graph.flatten(rows, 1)
    if weights is not None:
        flat = flat * graph.unsqueeze(weights, (1,))
    call.refuse_if(not others, "its input of lengths is missing")
    lengths = graph.cast(others[0], DataType.INT64)
    sums = _segment_sums(graph, flat, lengths)
    if call.type.endswith("Mean"):
        # An empty segment has the mean 0 in Caffe2, not NaN.
        count = graph.cast(graph.add("Max", lengths, graph.ints(1)), DataType.FP32)
        sums = sums / graph.unsqueeze(count, (1,))
    shape = graph.join(graph.shape(lengths), graph.shape(rows, 1))
    return graph.reshape(sums, shape, rank)


def _segment_sums(graph: Graph, rows: Value, lengths: Value) -> Value:
    """Return the sums of `rows` [n, d] over segments of `lengths` [m], as [m, d]."""
    number = _segment_numbers(graph, lengths, graph.length(rows, 0))
    index = graph.add("Expand", graph.unsqueeze(number, (1,)), graph.shape(rows), rank=2)
    shape = graph.join(graph.shape(lengths), graph.shape(rows, 1))
    empty = formulas.full(graph, shape, np.float32(0), 2)
    # Each row is added at its segment; as a product with a mask it would take n times m.
    return graph.add("ScatterElements", empty, index, rows, axis=0, reduction="add")


def _segment_numbers(graph: Graph, lengths: Value, total: Value) -> Value:
    """Return the segment index of each of `total` [1] rows, as [total]; `lengths` is [m].

    It is the running sum of ones placed where segments begin.
    """
    starts = graph.add("CumSum", lengths, graph.whole(0), exclusive=1)
    # One more, as empty segments at the end begin behind the last row.
    zeros = formulas.full(graph, total + graph.ints(1), np.int64(0))
    ones = formulas.ones(graph, graph.shape(lengths))
    begun = graph.add("ScatterElements", zeros, starts, ones, axis=0, reduction="add")
    number = graph.add("CumSum", begun, graph.whole(0)) - graph.ints(1)
    return graph.add("Slice", number, graph.ints(0), total, graph.ints(0))


def _counted(call: Caffe2Call) -> tuple[Graph, Value, Value, Value]:
    """Return the graph, the lengths as INT64, the start of each segment, and the total length."""
    graph = call.graph
    lengths = graph.cast(call.input(0), DataType.INT64)
    starts = graph.add("CumSum", lengths, graph.whole(0), exclusive=1)
    total = graph.reduce("ReduceSum", lengths, [0], keep=True)
    return graph, lengths, starts, total


def _segment_ids(graph: Graph, call: Caffe2Call) -> Converted:
    graph, lengths, _, total = _counted(call)
    return graph.cast(_segment_numbers(graph, lengths, total), DataType.INT32)


def _ranges(graph: Graph, call: Caffe2Call) -> Converted:
    graph, lengths, starts, _ = _counted(call)
    pairs = [graph.unsqueeze(one, (1,)) for one in (starts, lengths)]
    return graph.cast(graph.add("Concat", *pairs, axis=1), DataType.INT32)


def _range_fill(graph: Graph, call: Caffe2Call) -> Converted:
    """Convert LengthsRangeFill: 0, 1, ... in each segment."""
    graph, lengths, starts, total = _counted(call)
    begun = graph.add("Gather", starts, _segment_numbers(graph, lengths, total), axis=0)
    return graph.cast(formulas.numbers(graph, graph.scalar(total)) - begun, DataType.INT32)


OPERATORS: dict[str, Converter] = {
    "Reshape": _reshape,
    "Flatten": lambda graph, call, x: graph.add("Flatten", x, rank=2, axis=call.integer("axis", 1)),
    "FlattenToVec": lambda graph, call, x: graph.add("Reshape", x, graph.ints(-1), rank=1),
    "Squeeze": lambda graph, call, x: graph.squeeze(x, *_dims(call)),
    "ExpandDims": lambda graph, call, x: graph.unsqueeze(x, _dims(call)),
    "Transpose": _transpose,
    "NCHW2NHWC": lambda graph, call, x: channels_last(graph, x, x.rank or 4),
    "NHWC2NCHW": lambda graph, call, x: channels_first(graph, x, x.rank or 4),
    "MergeDim": _merge_dim,
    "PrependDim": _prepend_dim,
    "Expand": _expand,
    "ResizeLike": lambda graph, call, x, y: graph.reshape(x, graph.shape(y), y.rank),
    "Shape": _shape,
    "Size": lambda graph, call, x: graph.add("Size", x, rank=0),
    **dict.fromkeys(("Concat", "DepthConcat"), _concat),
    **dict.fromkeys(("Split", "DepthSplit"), _split),
    "Slice": _slice,
    "Tile": _tile,
    "NumpyTile": lambda graph, call, x, y: graph.add("Tile", x, graph.cast(y, DataType.INT64)),
    "ChannelShuffle": _channel_shuffle,
    "Glu": _gated,
    "Gather": _gather,
    "BatchGather": lambda graph, call: _gathered(call, 1),
    "TopK": _top_k,
    "Unique": _unique,
    "BooleanMask": _boolean_mask,
    **dict.fromkeys(
        ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2"), _reduce
    ),
    **{
        f"Reduce{side}{op}": _reduce_side
        for side in ("Front", "Back")
        for op in ("Sum", "Mean", "Max")
    },
    "RowwiseMax": lambda graph, call, x: graph.reduce("ReduceMax", x, [2]),
    "ColwiseMax": lambda graph, call, x: graph.reduce("ReduceMax", x, [1]),
    **dict.fromkeys(("SumElements", "SumSqrElements"), _total),
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg),
    "Moments": lambda graph, call, x: formulas.moments(x, call.axes(x), keep=call.keeps_dims),
    "LengthsToSegmentIds": _segment_ids,
    "LengthsToRanges": _ranges,
    "LengthsRangeFill": _range_fill,
    **{
        f"{kind}Lengths{op}": _lengths
        for kind in ("", "Sparse")
        for op in ("Sum", "Mean", "WeightedSum")
    },
}
