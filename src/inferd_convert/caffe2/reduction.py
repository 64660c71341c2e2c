"""Caffe2 operators that reduce tensors."""

import numpy as np

from inferd.tensor.dtype import DataType
from inferd_convert import filled
from inferd_convert.caffe2.call import Caffe2Call
from inferd_convert.call import Converted, Converter
from inferd_convert.formulas import moments, place_of_extreme
from inferd_convert.graph import Graph, Value


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
    return place_of_extreme(graph, call.type, x, call.axis(x.rank, -1), keep=call.keeps_dims)


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
    empty = filled.full(graph, shape, np.float32(0), 2)
    # Each row is added at its segment; as a product with a mask it would take n times m.
    return graph.add("ScatterElements", empty, index, rows, axis=0, reduction="add")


def _segment_numbers(graph: Graph, lengths: Value, total: Value) -> Value:
    """Return the segment index of each of `total` [1] rows, as [total]; `lengths` is [m].

    It is the running sum of ones placed where segments begin.
    """
    starts = graph.add("CumSum", lengths, graph.whole(0), exclusive=1)
    # One more, as empty segments at the end begin behind the last row.
    zeros = filled.full(graph, total + graph.ints(1), np.int64(0))
    ones = filled.ones(graph, graph.shape(lengths))
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
    return graph.cast(filled.numbers(graph, graph.scalar(total)) - begun, DataType.INT32)


OPERATORS: dict[str, Converter] = {
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
    "Moments": lambda graph, call, x: moments(x, call.axes(x), keep=call.keeps_dims),
    "LengthsToSegmentIds": _segment_ids,
    "LengthsToRanges": _ranges,
    "LengthsRangeFill": _range_fill,
    **{
        f"{kind}Lengths{op}": _lengths
        for kind in ("", "Sparse")
        for op in ("Sum", "Mean", "WeightedSum")
    },
}
