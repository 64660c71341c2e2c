"""Rarely used Caffe2 operators: half floats, ranges, masks, lengths of segments."""

import numpy as np

from inferd.convert.caffe2.call import Caffe2Call
from inferd.convert.caffe2.fill import filled
from inferd.convert.caffe2.reduction import segment_numbers
from inferd.convert.call import Converted, Converter
from inferd.convert.graph import Graph, Value
from inferd.convert.image import pooled_regions
from inferd.convert.reduction import moments
from inferd.tensor.dtype import DataType


def _half_fill(graph: Graph, call: Caffe2Call) -> Converted:
    with np.errstate(over="ignore"):
        value = np.array(call.number("value", 0.0)).astype(np.float16)[()]
    return filled(call, value)


def _relu_n(graph: Graph, call: Caffe2Call) -> Converted:
    """Convert ReluN, a Relu capped at `n`."""
    most = call.number("n", 6.0)
    call.refuse_if(not most > 0, f"its argument 'n' is {most:g}, expected a number above 0")
    return graph.add("Clip", call.input(0), graph.real(0.0), graph.real(most))


def _log_of_one_more(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    """Convert Log1p; the result is corrected for the bits of `x` that adding 1 loses."""
    one = graph.real(1.0)
    more = x + one
    rest = more - one
    # log(u)·x/(u - 1) is log(1 + x) to the last bits, where u is 1 + x rounded.
    near = graph.add("Equal", rest, graph.real(0.0))
    safe = graph.add("Where", near, one, rest, rank=x.rank)
    corrected = graph.add("Log", more) * (x / safe)
    is_far = graph.add("Or", graph.add("IsInf", more), graph.add("IsInf", x))
    plain = graph.add("Where", is_far, graph.add("Log", more), corrected, rank=x.rank)
    return graph.add("Where", near, x, plain, rank=x.rank)


def _modulo(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    """Convert Mod of integers; the result has the sign of the dividend or of the divisor."""
    divisor = call.integer("divisor")
    call.refuse_if(not divisor, "its argument 'divisor' is 0, or not there")
    by = graph.add("CastLike", graph.whole(divisor), x, rank=0)
    return graph.add("Mod", x, by, fmod=0 if call.flag("sign_follow_divisor") else 1)


def _range(graph: Graph, call: Caffe2Call) -> Converted:
    """Convert Range of (stop), (start, stop) or (start, stop, step), each of one element."""
    bounds = [graph.scalar(call.input(index)) for index in range(len(call.inputs))]
    call.refuse_if(not 1 <= len(bounds) <= 3, f"it has {len(bounds)} inputs, expected 1 to 3")
    start = graph.add("CastLike", graph.whole(0), bounds[0], rank=0)
    step = graph.add("CastLike", graph.whole(1), bounds[0], rank=0)
    if len(bounds) == 1:
        bounds = [start, *bounds]
    return graph.add("Range", *bounds, *[step] * (len(bounds) == 2), rank=1)


def _prepend_dim(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    """Convert PrependDim: the first dim is split in two, the first of size `dim_size`."""
    size = call.integer("dim_size")
    call.refuse_if(size < 1, f"its argument 'dim_size' is {size}, expected at least 1")
    first = graph.length(x, 0) / graph.ints(size)
    shape = graph.join(graph.ints(size), first, graph.shape(x, 1))
    return graph.reshape(x, shape, x.rank_with(1))


def _moments(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    """Convert Moments: mean and variance over `axes`, by default all of them."""
    return moments(x, call.axes(x), keep=call.keeps_dims)


def _boolean_mask(graph: Graph, call: Caffe2Call, x: Value, mask: Value) -> Converted:
    """Convert BooleanMask: the rows for which the mask is true, and their indices."""
    numbers = graph.add("NonZero", mask, rank=2)
    return (graph.add("Compress", x, mask, axis=0), graph.reshape(numbers, graph.ints(-1)))


def _roi_pool(graph: Graph, call: Caffe2Call) -> Converted:
    """Convert RoIPool; a region is an image's index and four coordinates."""
    call.refuse_if(call.is_nhwc, "it can only have order NCHW")
    if not call.flag("is_test"):
        call.refuse("it keeps what training needs: a net to be served has is_test: 1")
    sizes = [call.integer("pooled_h", 1), call.integer("pooled_w", 1)]
    call.refuse_if(min(sizes) < 1, "pooled_h and pooled_w should be at least 1")
    return pooled_regions(call, sizes)


# --- lengths ---


def _counted(call: Caffe2Call) -> tuple[Graph, Value, Value, Value]:
    """Return the graph, the lengths as INT64, the start of each segment, and the total length."""
    graph = call.graph
    lengths = graph.cast(call.input(0), DataType.INT64)
    starts = graph.add("CumSum", lengths, graph.whole(0), exclusive=1)
    total = graph.reduce("ReduceSum", lengths, [0], keep=True)
    return graph, lengths, starts, total


def _segment_ids(graph: Graph, call: Caffe2Call) -> Converted:
    graph, lengths, _, total = _counted(call)
    return graph.cast(segment_numbers(graph, lengths, total), DataType.INT32)


def _ranges(graph: Graph, call: Caffe2Call) -> Converted:
    graph, lengths, starts, _ = _counted(call)
    pairs = [graph.unsqueeze(one, (1,)) for one in (starts, lengths)]
    return graph.cast(graph.add("Concat", *pairs, axis=1), DataType.INT32)


def _range_fill(graph: Graph, call: Caffe2Call) -> Converted:
    """Convert LengthsRangeFill: 0, 1, ... in each segment."""
    graph, lengths, starts, total = _counted(call)
    begun = graph.add("Gather", starts, segment_numbers(graph, lengths, total), axis=0)
    return graph.cast(graph.range(graph.scalar(total)) - begun, DataType.INT32)


OPERATORS: dict[str, Converter] = {
    "FloatToHalf": lambda graph, call, x: graph.cast(x, DataType.FP16),
    "HalfToFloat": lambda graph, call, x: graph.cast(x, DataType.FP32),
    "Float16ConstantFill": _half_fill,
    "ReluN": _relu_n,
    "Log1p": _log_of_one_more,
    "Mod": _modulo,
    "Range": _range,
    "PrependDim": _prepend_dim,
    "Moments": _moments,
    "BooleanMask": _boolean_mask,
    "RoIPool": _roi_pool,
    "LengthsToSegmentIds": _segment_ids,
    "LengthsToRanges": _ranges,
    "LengthsRangeFill": _range_fill,
}
