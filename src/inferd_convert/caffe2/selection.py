"""Caffe2 operators that select elements: Gather, TopK, and resizing or padding of images."""

import numpy as np

from inferd.tensor.dtype import DataType
from inferd_convert import filled
from inferd_convert.caffe2.call import Caffe2Call
from inferd_convert.caffe2.window import pads_of
from inferd_convert.call import Converted, Converter
from inferd_convert.graph import Graph, Value
from inferd_convert.image import aligned_regions, pooled_regions, resized, scaled_nearest, upsampled
from inferd_convert.window import channels_first, channels_last


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
    none = filled.full(graph, graph.shape(graph.shape(x)), np.int64(0))
    behind = graph.add("ScatterElements", none, graph.ints(axis), graph.ints(k) - count, axis=0)
    around = graph.join(none, behind)
    # Only as far as k needs it: TopK itself refuses a k beyond the length.
    values = graph.add("Pad", values, around)
    found = graph.add("Pad", indices, around, graph.whole(-1))
    if call.output_count < 3:
        return values, found
    # The third output has indices into the flattened input.
    places = graph.add("GatherElements", filled.numbered(graph, x), indices, axis=axis)
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


def _upsample_nearest(graph: Graph, call: Caffe2Call) -> Converted:
    scale = call.integer("scale", 2)
    # An upper bound, too: the file alone would decide how much memory a request takes.
    call.refuse_if(not 1 <= scale <= 1024, "its argument 'scale' should be at least 1")
    return upsampled(graph, call.input(0), scale)


def _resize_nearest(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    scales = _scales(call)
    if scales.array is None or (scales.array % 1).any():
        return _picked(call, x, scales)
    x = channels_first(graph, x, 4) if call.is_nhwc else x
    y = scaled_nearest(graph, x, _of_images(graph, scales))
    return channels_last(graph, y, 4) if call.is_nhwc else y


def _picked(call: Caffe2Call, x: Value, scales: Value) -> Value:
    """Return `x` resized by taking row and column i from i divided by the scale.

    ONNX Runtime's Resize would do nothing if the size stays the same, as with 5 scaled by 1.1.
    """
    graph, first = call.graph, 1 if call.is_nhwc else 2
    for place in (0, 1):
        axis = first + place
        length = graph.length(x, axis)
        scale = graph.add("Slice", scales, graph.ints(place), graph.ints(place + 1), rank=1)
        size = graph.cast(length, DataType.FP32) * scale
        numbers = filled.numbers(graph, graph.scalar(graph.cast(size, DataType.INT64)))
        sources = graph.cast(graph.cast(numbers, DataType.FP32) / scale, DataType.INT64)
        # Rounded floats may point one past the end.
        sources = graph.add("Min", sources, length - graph.ints(1))
        x = graph.add("Gather", x, sources, rank=4, axis=axis)
    return x


def _upsample_bilinear(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    """Convert UpsampleBilinear, always with channels first: Caffe2 ignores its `order`."""
    return resized(graph, x, _of_images(graph, _scales(call)), "align_corners")


def _scales(call: Caffe2Call) -> Value:
    """Return the scales of height and width, from an input or from arguments."""
    if len(call.inputs) > 1:
        return call.input(1)
    pair = [call.number(f"{side}_scale", 1.0) for side in ("height", "width")]
    call.refuse_if(not all(0 < scale < 1e6 for scale in pair), "its scales should be above 0")
    return call.graph.constant(np.array(pair, np.float32))


def _of_images(graph: Graph, scales: Value) -> Value:
    return graph.join(graph.constant(np.ones(2, np.float32)), scales)


def _pad_image(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    mode = call.word("mode", "constant").lower()
    if mode not in ("constant", "reflect", "edge"):
        call.refuse(f"its argument 'mode' is '{mode}', not constant, reflect or edge")
    pads = pads_of(call) or [0] * 4
    call.refuse_if(len(pads) != 4, f"its argument 'pads' is {pads}, expected four numbers")
    top, left, bottom, right = pads
    edges = [(0, top, left), (0, bottom, right)]
    around = [(batch, *sides, 0) if call.is_nhwc else (batch, 0, *sides) for batch, *sides in edges]
    value = graph.real(call.number("value", 0.0)) if mode == "constant" else None
    return graph.add("Pad", x, graph.ints(*around[0], *around[1]), value, mode=mode)


def _roi_align(graph: Graph, call: Caffe2Call, x: Value, regions: Value) -> Converted:
    """Convert RoIAlign; regions have four numbers, optionally after the image's index."""
    x = channels_first(graph, x, 4) if call.is_nhwc else x
    operands = x, graph.slice(regions, 1, -4), image_numbers(graph, regions)
    sizes = [call.integer(side, 1) for side in ("pooled_h", "pooled_w")]
    y = aligned_regions(call, operands, sizes, call.integer("sampling_ratio", -1))
    return channels_last(graph, y, 4) if call.is_nhwc else y


def _roi_pool(graph: Graph, call: Caffe2Call) -> Converted:
    """Convert RoIPool; a region is an image's index and four coordinates."""
    call.refuse_if(call.is_nhwc, "it can only have order NCHW")
    if not call.flag("is_test"):
        call.refuse("it keeps what training needs: a net to be served has is_test: 1")
    sizes = [call.integer("pooled_h", 1), call.integer("pooled_w", 1)]
    call.refuse_if(min(sizes) < 1, "pooled_h and pooled_w should be at least 1")
    return pooled_regions(call, sizes)


def image_numbers(graph: Graph, regions: Value) -> Value:
    """Return the image index of each region: the first of its five numbers, or 0 if it has four."""
    first = graph.slice(regions, 1, 0, -4)
    column = graph.join(graph.length(regions, 0), graph.ints(1))
    padded = graph.add("Concat", first, graph.add("ConstantOfShape", column, rank=2), axis=1)
    return graph.cast(graph.add("Gather", padded, graph.whole(0), rank=1, axis=1), DataType.INT64)


OPERATORS: dict[str, Converter] = {
    "Gather": _gather,
    "BatchGather": lambda graph, call: _gathered(call, 1),
    "TopK": _top_k,
    "Unique": _unique,
    "BooleanMask": _boolean_mask,
    "UpsampleNearest": _upsample_nearest,
    "ResizeNearest": _resize_nearest,
    "UpsampleBilinear": _upsample_bilinear,
    "PadImage": _pad_image,
    "RoIAlign": _roi_align,
    "RoIPool": _roi_pool,
}
