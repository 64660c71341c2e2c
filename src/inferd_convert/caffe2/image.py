"""Caffe2 operators on images, and on bounding boxes in them."""

import math

import numpy as np

from inferd.tensor.dtype import DataType
from inferd_convert import formulas
from inferd_convert.caffe2.call import Caffe2Call
from inferd_convert.caffe2.layer import pads_of
from inferd_convert.call import Converted, Converter
from inferd_convert.graph import END, Graph, Value
from inferd_convert.image import (
    aligned_regions,
    channels_first,
    channels_last,
    pooled_regions,
    resized,
    scaled_nearest,
    upsampled,
)


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
        numbers = formulas.numbers(graph, graph.scalar(graph.cast(size, DataType.INT64)))
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
    operands = x, graph.slice(regions, 1, -4), _image_numbers(graph, regions)
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


def _image_numbers(graph: Graph, regions: Value) -> Value:
    """Return the image index of each region: the first of its five numbers, or 0 if it has four."""
    first = graph.slice(regions, 1, 0, -4)
    column = graph.join(graph.length(regions, 0), graph.ints(1))
    padded = graph.add("Concat", first, graph.add("ConstantOfShape", column, rank=2), axis=1)
    return graph.cast(graph.add("Gather", padded, graph.whole(0), rank=1, axis=1), DataType.INT64)


# Caffe2's bound on how much a box may grow, so that exp() does not overflow.
_MOST_GROWTH = math.log(1000 / 16)


def _transform(
    graph: Graph, call: Caffe2Call, regions: Value, deltas: Value, info: Value
) -> Converted:
    """Convert BBoxTransform: boxes are moved, resized and clipped, by deltas for each class.

    Boxes have four numbers, optionally after the image's index; `im_info` has the height, width
    and scale of each image.
    """
    call.refuse_if(call.flag("rotated"), "rotated boxes cannot be converted")
    numbers, one = _image_numbers(graph, regions), graph.real(_plus_one(call))
    weights = call.argument("weights").floats
    weights = np.array(weights if len(weights) else [1] * 4, np.float32)
    if weights.shape != (4,) or not weights.all():
        call.refuse("its argument 'weights' should be four numbers, none of them 0")
    rows = graph.add("Gather", info, numbers, axis=0)
    scale = graph.slice(rows, -1, 2, 3)
    limits = _limits(graph, graph.slice(rows, -1, 0, 2), scale, one)

    # -4: the last four numbers are the box, with or without an index before them.
    boxes = graph.add("Div", graph.slice(regions, -1, -4), scale, rank=2)
    low, high = graph.slice(boxes, -1, 0, 2), graph.slice(boxes, -1, 2, 4)
    size = high - low + one
    center = low + size * 0.5
    size, center = graph.unsqueeze(size, (1,)), graph.unsqueeze(center, (1,))

    classes = graph.length(deltas, 1) / graph.ints(4)
    shape = graph.join(graph.length(deltas, 0), classes, graph.ints(4))
    changes = graph.reshape(deltas, shape, 3) / graph.constant(weights)
    moved = graph.slice(changes, -1, 0, 2) * size
    center = moved + center
    growth = graph.add("Min", graph.slice(changes, -1, 2, 4), graph.real(_MOST_GROWTH))
    half = graph.add("Exp", growth) * size * 0.5
    ends = center + half - one
    made = graph.add("Concat", center - half, ends, axis=2)
    # Clipped to the image before scaling: the limits are in its pixels.
    made = graph.add("Max", graph.add("Min", made, limits), graph.real(0.0))
    if call.integer("apply_scale", 1):
        made = made * graph.unsqueeze(scale, (1,))
    counts = _occurrences(graph, formulas.places(graph, info, 0), numbers)
    return graph.reshape(made, graph.shape(deltas), 2), counts


def _plus_one(call: Caffe2Call) -> float:
    """Return 1 if a box ends at its last pixel, 0 if it ends one past it."""
    if call.has("legacy_plus_one"):
        return float(call.flag("legacy_plus_one"))
    if not call.flag("correct_transform_coords"):
        call.refuse(
            "it has neither legacy_plus_one nor correct_transform_coords: 1, and without them "
            "releases of Caffe2 differ by a pixel"
        )
    return 1.0


def _limits(graph: Graph, sizes: Value, scale: Value, one: Value) -> Value:
    """Return the largest left, top, right and bottom, [n, 1, 4], in the images before scaling."""
    # Half is added and the cast cuts off: C's way to round, where ONNX rounds halves to even.
    rounded = graph.add("Div", sizes, scale, rank=2) + 0.5
    whole = graph.cast(graph.cast(rounded, DataType.INT64), DataType.FP32)
    # im_info has the height first, boxes have x first.
    order = graph.constant(np.array([1, 0, 1, 0], np.int64))
    corners = graph.add("Gather", whole - one, order, rank=2, axis=1)
    return graph.unsqueeze(corners, (1,))


def _with_limit(graph: Graph, call: Caffe2Call, scores: Value, boxes: Value) -> Converted:
    """Convert BoxWithNMSLimit for one image: the best boxes of each class but the first."""
    for name, usual in _ONLY.items():
        if call.integer(name, usual) != usual:
            call.refuse(f"{name}: {1 - usual} cannot be converted")
    overlap, most = call.number("nms", 0.3), call.integer("detections_per_im", 100)
    call.refuse_if(not 0 <= overlap <= 1, f"its argument 'nms' is {overlap:g}, expected 0 to 1")
    scores, boxes = graph.flatten(scores, 1), graph.flatten(boxes, 1)
    count = graph.length(scores, 0)
    if len(call.inputs) > 2:  # a run fails if there are boxes of several images
        count = graph.reshape(graph.cast(call.input(2), DataType.INT64), graph.ints(1))
    classes = graph.length(scores, 1)
    by_row = graph.reshape(boxes, graph.join(count, classes, graph.ints(4)), 3)
    # Class 0 is the background. ONNX wants scores as [batch, class, box]: each class is a batch
    # here, since its boxes are its own.
    scores = graph.transpose(graph.slice(scores, 1, 1), (1, 0))
    boxes = graph.transpose(graph.slice(by_row, 1, 1), (1, 0, 2))

    wider = boxes
    if call.integer("legacy_plus_one", 1):
        wider = boxes + graph.constant(np.array([0, 0, 1, 1], np.float32))
    # NonMaxSuppression gives [batch, class, box] of each that stays
    # (ONNX); the batch is Caffe2's class here.
    found = graph.add(
        "NonMaxSuppression",
        *(wider, graph.unsqueeze(scores, (1,)), graph.ints(most if most > 0 else END)),
        graph.constant(np.array([overlap], np.float32)),
        graph.constant(np.array([call.number("score_thresh", 0.05)], np.float32)),
        rank=2,
    )
    places = graph.add("Gather", found, graph.ints(0, 2), rank=2, axis=1)  # class, row
    # Caffe2 keeps the best of all classes together, then restores the order of classes.
    if most > 0:
        values = graph.add("GatherND", scores, places, rank=1)
        count = graph.add("Min", graph.shape(values), graph.ints(most))
        _, best = graph.add_several(2, "TopK", values, count, rank=1)
        # The smallest indices first: TopK as a sort.
        in_order, _ = graph.add_several(2, "TopK", best, count, rank=1, largest=0)
        places = graph.add("Gather", places, in_order, rank=2, axis=0)

    kinds, rows = (graph.add("Gather", places, graph.whole(n), rank=1, axis=1) for n in (0, 1))
    shown = graph.cast(kinds, DataType.FP32)
    if call.integer("output_classes_include_bg_cls", 1):
        shown = shown + 1.0
    numbers = graph.add(
        "Range", *(graph.whole(-1), graph.scalar(classes - graph.ints(1))), graph.whole(1), rank=1
    )
    return (
        graph.add("GatherND", scores, places, rank=1),
        graph.add("GatherND", boxes, places, rank=2),
        shown,
        graph.cast(graph.shape(kinds), DataType.FP32),
        graph.cast(rows, DataType.INT32),
        graph.cast(graph.unsqueeze(_occurrences(graph, numbers, kinds), (0,)), DataType.INT32),
    )


_ONLY = {
    "rotated": 0,
    "soft_nms_enabled": 0,
    "cls_agnostic_bbox_reg": 0,
    "input_boxes_include_bg_cls": 1,
}
"""Arguments of BoxWithNMSLimit of which only one value is supported."""


def _occurrences(graph: Graph, numbers: Value, among: Value) -> Value:
    """Return how often each of `numbers` occurs in the vector `among`, as FP32."""
    rows, columns = graph.unsqueeze(numbers, (1,)), graph.unsqueeze(among, (0,))
    is_there = graph.cast(graph.add("Equal", rows, columns, rank=2), DataType.FP32)
    return graph.reduce("ReduceSum", is_there, [1])


OPERATORS: dict[str, Converter] = {
    "UpsampleNearest": _upsample_nearest,
    "ResizeNearest": _resize_nearest,
    "UpsampleBilinear": _upsample_bilinear,
    "PadImage": _pad_image,
    "RoIAlign": _roi_align,
    "RoIPool": _roi_pool,
    "BBoxTransform": _transform,
    "BoxWithNMSLimit": _with_limit,
}
