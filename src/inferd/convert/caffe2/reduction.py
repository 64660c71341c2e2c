"""Caffe2 operators that reduce tensors."""

import numpy as np

from inferd.convert.caffe2.call import Caffe2Call
from inferd.convert.call import Converted, Converter
from inferd.convert.graph import Graph, Value
from inferd.tensor.dtype import DataType


def _reduce(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    """Convert ReduceMean and the like, over `axes`, by default all of them."""
    axes = sorted({call.checked(axis, x.rank) for axis in call.integers("axes")})
    keep = call.integer("keepdims", 1)
    rank = x.rank
    if not keep and rank is not None:
        rank = rank - len(axes) if axes else 0
    chosen = graph.ints(*axes) if axes else None
    return graph.add(call.type, x, chosen, rank=rank, keepdims=int(keep != 0))


def _reduce_side(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    """Convert ReduceFrontMean, ReduceBackMean and the like, over the first or last few dims."""
    call.refuse_if(len(call.inputs) > 1, "its second input, lengths, cannot be converted")
    op = call.type.removeprefix("ReduceFront").removeprefix("ReduceBack")
    count = call.integer("num_reduce_dim", 1)
    if count < 0 or (x.rank is not None and count > x.rank):
        call.refuse(f"num_reduce_dim is {count}, the input has {x.rank} dims")
    if not count:
        return x
    axes = range(count) if call.type.startswith("ReduceFront") else range(-count, 0)
    rank = None if x.rank is None else x.rank - count
    return graph.add(f"Reduce{op}", x, graph.ints(*axes), rank=rank, keepdims=0)


def _side_max(graph: Graph, call: Caffe2Call) -> Converted:
    """Convert RowwiseMax and ColwiseMax of a batch of matrices."""
    axis = 2 if call.type == "RowwiseMax" else 1
    return graph.add("ReduceMax", call.input(0), graph.ints(axis), rank=2, keepdims=0)


def _total(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    x = x * x if call.type == "SumSqrElements" else x
    return graph.add("ReduceMean" if call.flag("average") else "ReduceSum", x, rank=0, keepdims=0)


def _arg(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    axis, keep = call.axis(x.rank, -1), int(call.integer("keepdims", 1) != 0)
    rank = x.rank if keep or x.rank is None else x.rank - 1
    return graph.add(call.type, x, rank=rank, axis=axis, keepdims=keep)


def _lengths(*, sparse: bool, mean: bool = False, weighted: bool = False) -> Converter:
    """Return the converter of LengthsSum and the like: sums over segments of given lengths."""

    def convert(graph: Graph, call: Caffe2Call, rows: Value) -> Converted:
        rank = rows.rank
        others = list(call.inputs[1:])
        weights = others.pop(0) if weighted and others else None
        if sparse:
            indices = others.pop(0) if others else call.input(1)
            # Half floats are accepted too, and summed as FP32.
            rows = graph.cast(graph.add("Gather", rows, indices, axis=0), DataType.FP32)
        flat = graph.flatten(rows, 1)
        if weights is not None:
            flat = flat * graph.unsqueeze(weights, (1,))
        call.refuse_if(not others, "its input of lengths is missing")
        lengths = graph.cast(others[0], DataType.INT64)
        sums = _segment_sums(graph, flat, lengths)
        if mean:
            count = graph.cast(graph.add("Max", lengths, graph.ints(1)), DataType.FP32)
            sums = sums / graph.unsqueeze(count, (1,))
        shape = graph.join(graph.shape(lengths), graph.shape(rows, 1))
        return graph.reshape(sums, shape, rank)

    return convert


_ONE, _ZERO = np.array([1], np.int64), np.array([0], np.int64)
_NOTHING = np.array([0], np.float32)


def _segment_sums(graph: Graph, rows: Value, lengths: Value) -> Value:
    """Return the sums of `rows` [n, d] over segments of `lengths` [m], as [m, d]."""
    number = segment_numbers(graph, lengths, graph.length(rows, 0))
    index = graph.add("Expand", graph.unsqueeze(number, (1,)), graph.shape(rows), rank=2)
    empty = graph.add(
        "ConstantOfShape",
        graph.join(graph.shape(lengths), graph.shape(rows, 1)),
        rank=2,
        value=_NOTHING,
    )
    return graph.add("ScatterElements", empty, index, rows, axis=0, reduction="add")


def segment_numbers(graph: Graph, lengths: Value, total: Value) -> Value:
    """Return the segment index of each of `total` [1] rows, as [total]; `lengths` is [m].

    It is the running sum of ones placed where segments begin.
    """
    starts = graph.add("CumSum", lengths, graph.whole(0), exclusive=1)
    zeros = graph.add("ConstantOfShape", total + graph.ints(1), rank=1, value=_ZERO)
    ones = graph.add("ConstantOfShape", graph.shape(lengths), rank=1, value=_ONE)
    begun = graph.add("ScatterElements", zeros, starts, ones, axis=0, reduction="add")
    number = graph.add("CumSum", begun, graph.whole(0)) - graph.ints(1)
    return graph.add("Slice", number, graph.ints(0), total, graph.ints(0))


OPERATORS: dict[str, Converter] = {
    **dict.fromkeys(
        ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2"), _reduce
    ),
    **{
        f"Reduce{side}{op}": _reduce_side
        for side in ("Front", "Back")
        for op in ("Sum", "Mean", "Max")
    },
    **dict.fromkeys(("RowwiseMax", "ColwiseMax"), _side_max),
    **dict.fromkeys(("SumElements", "SumSqrElements"), _total),
    "ArgMax": _arg,
    "ArgMin": _arg,
    "LengthsSum": _lengths(sparse=False),
    "LengthsMean": _lengths(sparse=False, mean=True),
    "LengthsWeightedSum": _lengths(sparse=False, weighted=True),
    "SparseLengthsSum": _lengths(sparse=True),
    "SparseLengthsMean": _lengths(sparse=True, mean=True),
    "SparseLengthsWeightedSum": _lengths(sparse=True, weighted=True),
}
