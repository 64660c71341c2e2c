"""MXNet operators on feature maps and boxes: cropping, resizing, regions, anchors, suppression."""

import math
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np

from inferd.tensor.dtype import DataType
from inferd_convert import formulas
from inferd_convert.call import MAX_FILLED, Converted, Converter
from inferd_convert.graph import END, Graph, Value
from inferd_convert.image import aligned_regions, pooled_regions, resized
from inferd_convert.mxnet.call import MxnetCall
from inferd_convert.mxnet.shape import places_along


def _crop(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    """Convert Crop: height and width are those of a second input, or attributes."""
    if len(call.inputs) > 1:
        wanted = graph.shape(call.inputs[1], 2, 4)
    else:
        sizes = call.integers("h_w")
        call.refuse_if(len(sizes) != 2 or min(sizes) < 1, f"h_w is {sizes}, expected two numbers")
        wanted = graph.ints(*sizes)
    start = graph.ints(*(call.integers("offset") or [0, 0]))
    if call.flag("center_crop"):
        spare = graph.shape(x, 2, 4) - wanted
        start = spare / graph.ints(2)
    end = start + wanted
    return graph.add("Slice", x, start, end, graph.ints(2, 3))


def _bilinear_resize(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    mode = call.word("mode", "size")
    if len(call.inputs) > 1 or mode != "size":
        call.cannot(f"mode '{mode[:100]}' of {len(call.inputs)} inputs cannot be converted")
    aligned = call.flag("align_corners", default=True)
    how = "align_corners" if aligned else "pytorch_half_pixel"  # gives 0 for a size of 1
    if call.has("scale_height") or call.has("scale_width"):
        scales = [call.number(f"scale_{side}", 1.0) for side in ("height", "width")]
        call.refuse_if(not all(0 < scale < 1e4 for scale in scales), f"its scales are {scales}")
        given = graph.constant(np.array(scales, np.float32))
        old = graph.add("CastLike", graph.shape(x, 2, 4), given, rank=1)
        new = graph.add("Floor", old * given)
        sizes = graph.add("CastLike", new, graph.whole(0))
    else:
        sizes = graph.ints(call.integer("height", 1), call.integer("width", 1))
    shape = graph.join(graph.shape(x, 0, 2), sizes)
    return resized(graph, x, None, how, shape)


def _adaptive_average(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    sizes = call.integers("output_size") or [1]
    if len(sizes) > 2 or min(sizes) < 1:
        call.refuse(f"its output_size is {sizes}, expected one or two numbers")
    # The usual case, for which ONNX has an operator.
    if set(sizes) == {1}:
        return graph.add("GlobalAveragePool", x, rank=4)
    # Windows of differing sizes are no pool of ONNX; as weights they are two products.
    rows = graph.add("MatMul", _shares(call, x, 2, sizes[0]), x, rank=4)
    columns = graph.transpose(_shares(call, x, 3, sizes[-1]), (1, 0))
    return graph.add("MatMul", rows, columns, rank=4)


def _shares(call: MxnetCall, x: Value, axis: int, count: int) -> Value:
    """Return the weight of each place of `axis` in each of `count` windows of differing sizes."""
    graph, length = call.graph, call.graph.length(x, axis)
    ends = []
    # Window i goes from floor(i n / count) to ceil((i + 1) n / count).
    for first, up in ((0, 0), (1, count - 1)):
        numbers = graph.constant(np.arange(first, count + first)[:, None])
        # Rounding up in whole numbers: n / d rounded up is (n + d - 1) / d rounded down.
        scaled = graph.add("Mul", numbers, length, rank=2) + graph.whole(up)
        ends.append(scaled / graph.whole(count))
    places = formulas.places(graph, x, axis)
    starts, stops = ends
    begun = graph.add("GreaterOrEqual", places, starts, rank=2)
    is_in = graph.add("And", begun, graph.add("Less", places, stops, rank=2))
    size = graph.add("CastLike", stops - starts, x, rank=2)
    return graph.add("CastLike", is_in, x, rank=2) / size


def _depth_to_space(graph: Graph, call: MxnetCall) -> Converted:
    """Convert depth_to_space and space_to_depth."""
    op = "DepthToSpace" if call.op == "depth_to_space" else "SpaceToDepth"
    block = call.integer("block_size")
    call.refuse_if(block < 1, f"its block_size is {block}")
    return graph.add(op, call.input(0), rank=4, blocksize=block)


def _grid_generator(graph: Graph, call: MxnetCall) -> Converted:
    """Convert GridGenerator: the source of each pixel, from an affine matrix or from a flow."""
    kind = call.word("transform_type", "")
    if kind == "affine":
        return _affine_grid(call, call.input(0))
    call.refuse_if(kind != "warp", f"there is no transform_type '{kind[:100]}'")
    flow = call.input(0)
    sides = []
    for channel, axis in ((0, 3), (1, 2)):
        moved = graph.slice(flow, 1, channel, channel + 1)
        places = graph.add("CastLike", places_along(graph, flow, axis), flow)
        last = graph.length(flow, axis) - graph.ints(1)
        half = graph.add("CastLike", last, flow) * 0.5
        scaled = graph.add("Add", moved, places, rank=4) / half
        sides.append(scaled - 1.0)
    return graph.add("Concat", *sides, axis=1)


def _affine_grid(call: MxnetCall, matrix: Value) -> Value:
    """Return coordinates [batch, 2, height, width] from -1 to 1, x before y."""
    graph, sizes = call.graph, call.integers("target_shape")
    # From -1 to 1 there are two ends: with one pixel a step would be a division by 0. The grid is a
    # constant that the file does not contain, so its size is limited.
    if len(sizes) != 2 or min(sizes) < 2 or prod(sizes) > MAX_FILLED:
        call.cannot(f"its target_shape is {sizes}, expected two sizes of at least 2")
    rows, columns = (np.linspace(-1, 1, size, dtype=np.float32) for size in sizes)
    y, x = np.meshgrid(rows, columns, indexing="ij")
    pixels = graph.constant(np.stack([x.ravel(), y.ravel(), np.ones(x.size, np.float32)]))
    matrices = graph.reshape(matrix, graph.ints(-1, 2, 3), 3)
    return graph.reshape(graph.add("MatMul", matrices, pixels), graph.ints(-1, 2, *sizes), 4)


def _sampled(call: MxnetCall, grid: Value) -> Value:
    # GridSample has the coordinates last, MXNet has them as channels.
    places = call.graph.transpose(grid, (0, 2, 3, 1))
    return call.graph.add(
        *("GridSample", call.input(0), places), rank=4, mode="linear", align_corners=1
    )


def _pooled_size(call: MxnetCall) -> list[int]:
    sizes = call.integers("pooled_size")
    if len(sizes) != 2 or min(sizes) < 1:
        call.refuse(f"its pooled_size is {sizes}, expected two numbers")
    return sizes


def _roi_align(graph: Graph, call: MxnetCall, x: Value, regions: Value) -> Converted:
    sizes = _pooled_size(call)
    call.cannot_if(call.flag("position_sensitive"), "position_sensitive cannot be converted")
    first = graph.add("Gather", regions, graph.whole(0), rank=1, axis=1)
    numbers = graph.add("CastLike", first, graph.whole(0))
    operands = x, graph.slice(regions, 1, 1, 5), numbers
    return aligned_regions(call, operands, sizes, call.integer("sample_ratio", -1))


@dataclass(slots=True)
class _Boxes:
    """Boxes [batch, n, 4], their scores and classes [batch, n].

    A place without a box has the score -inf. Without classes all boxes are of one class.
    """

    corners: Value
    scores: Value
    classes: Value | None = None


def _box_nms(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    """Convert box_nms: the remaining boxes, best first, then rows of -1."""
    call.cannot_if(call.known_rank(x) < 2, "the number of dims of its input is not known")
    formats = [call.word(f"{side}_format", "corner") for side in ("in", "out")]
    if not set(formats) <= {"corner", "center"}:
        call.refuse("in_format and out_format should be corner or center")
    count = graph.add("ReduceProd", graph.shape(x, 0, -2), rank=1, keepdims=1)
    # Any dims in front are batches, of which ONNX's operator takes one.
    rows = graph.reshape(x, graph.join(count, graph.shape(x, -2)), 3)
    start, identity = call.integer("coord_start", 2), call.integer("id_index", -1)
    scores = _column(graph, rows, call.integer("score_index", 1))
    valid = graph.add("Greater", scores, graph.like(x, call.number("valid_thresh")))
    classes = None
    if identity >= 0:
        classes = _column(graph, rows, identity)
        other = graph.add("Equal", classes, graph.like(x, call.number("background_id", -1)))
        valid = graph.add("And", valid, graph.add("Not", other))
    # Not removed: all images of a batch keep the same number of places.
    scores = graph.add("Where", valid, scores, graph.like(x, -math.inf), rank=2)
    if (most := call.integer("topk", -1)) > 0:
        scores = _best(call, scores, most)
    boxes = _Boxes(
        graph.slice(rows, 2, start, start + 4),
        scores,
        None if call.flag("force_suppress") else classes,
    )
    chosen = _chosen(
        call, boxes, call.number("overlap_thresh", 0.5), is_center=formats[0] == "center"
    )
    scores = graph.add("Where", chosen, scores, graph.like(x, -math.inf), rank=2)
    scores, rows = _sorted(graph, scores, rows)
    if formats[0] != formats[1]:
        rows = _reformed(call, rows, start, to_corner=formats[1] == "corner")
    rows = graph.add("Where", _are_there(call, scores), rows, graph.like(x, -1), rank=3)
    return graph.reshape(rows, graph.shape(x), x.rank)


def _column(graph: Graph, rows: Value, number: int) -> Value:
    return graph.add("Gather", rows, graph.whole(number), rank=2, axis=2)


def _best(call: MxnetCall, scores: Value, most: int) -> Value:
    """Return `scores` with all but the `most` best set to -inf."""
    graph = call.graph
    count = graph.add("Min", graph.ints(most), graph.length(scores, 1), rank=1)
    values, places = graph.add_several(2, "TopK", scores, count, axis=1)
    nothing = formulas.full_like(graph, scores, -math.inf)
    return graph.add("ScatterElements", nothing, places, values, axis=1)


def _chosen(call: MxnetCall, boxes: _Boxes, threshold: float, *, is_center: bool = False) -> Value:
    """Return for each box whether no better box of its class overlaps it above `threshold`."""
    graph, scores = call.graph, call.graph.cast(boxes.scores, DataType.FP32)
    groups = graph.unsqueeze(scores, (1,))
    if boxes.classes is not None:
        # One row of scores per class, -inf for boxes of other classes.
        flat = graph.reshape(graph.cast(boxes.classes, DataType.FP32), graph.ints(-1))
        found, _, numbers, _ = graph.add_several(4, "Unique", flat, rank=1, sorted=1)
        numbers = graph.unsqueeze(graph.reshape(numbers, graph.shape(scores), 2), (1,))
        each = graph.unsqueeze(formulas.places(graph, found, 0), (0, 2))
        own = graph.add("Equal", numbers, each, rank=3)
        groups = graph.add("Where", own, groups, graph.real(-math.inf), rank=3)
    chosen = graph.add(
        "NonMaxSuppression",
        *(graph.cast(boxes.corners, DataType.FP32), groups, graph.length(scores, 1)),
        # The least score is the lowest number: a score of -inf stays out, any other is in.
        *(graph.constant(np.array([one], np.float32)) for one in (threshold, _LOWEST)),
        rank=2,
        center_point_box=int(is_center),
    )
    places = graph.add("Gather", chosen, graph.ints(0, 2), rank=2, axis=1)
    # Back from a list of indices to a mask, as the boxes keep their places.
    none = formulas.full(graph, graph.shape(scores), np.int64(0), 2)
    ones = formulas.ones(graph, graph.length(chosen, 0))
    return graph.cast(graph.add("ScatterND", none, places, ones), DataType.BOOL)


_LOWEST = float(np.finfo(np.float32).min)


def _sorted(graph: Graph, scores: Value, rows: Value) -> tuple[Value, Value]:
    """Return scores [batch, n] and rows [batch, n, k], sorted best first."""
    values, order = graph.add_several(2, "TopK", scores, graph.length(scores, 1), axis=1)
    return values, graph.add("GatherND", rows, graph.unsqueeze(order, (2,)), rank=3, batch_dims=1)


def _are_there(call: MxnetCall, scores: Value) -> Value:
    """Return whether there is a box at each place, as [batch, n, 1]."""
    there = call.graph.add("Greater", scores, call.graph.like(scores, -math.inf), rank=2)
    return call.graph.unsqueeze(there, (2,))


def _reformed(call: MxnetCall, rows: Value, start: int, *, to_corner: bool) -> Value:
    """Return `rows` with their boxes converted to corners, or to centers and sizes."""
    graph, half = call.graph, call.graph.like(rows, 0.5)
    bounds = pairwise([0, start, start + 2, start + 4, END])
    before, first, second, behind = (graph.slice(rows, 2, low, high) for low, high in bounds)
    if to_corner:
        size = second * half
        pair = first - size, first + size
    else:
        center = (first + second) * half
        pair = center, second - first
    return graph.add("Concat", before, *pair, behind, axis=2)


def _multi_box_detection(graph: Graph, call: MxnetCall, probabilities: Value) -> Converted:
    """Convert MultiBoxDetection: [class, score, box] of each anchor that is not background.

    The best come first, then rows of -1; a box suppressed by a better one only loses its class.
    """
    threshold, most = call.number("nms_threshold", 0.5), call.integer("nms_topk", -1)
    front = graph.slice(probabilities, 1, 1)
    scores = graph.add("ReduceMax", front, graph.ints(1), rank=2, keepdims=0)
    found = graph.add("ArgMax", front, rank=2, axis=1, keepdims=0)
    classes = graph.add("CastLike", found, scores)
    valid = graph.add(
        "GreaterOrEqual", scores, graph.like(scores, call.number("threshold", 0.01)), rank=2
    )
    boxes = _located(call)
    columns = (graph.unsqueeze(one, (2,)) for one in (classes, scores))
    rows = graph.add("Concat", *columns, boxes, rank=3, axis=2)
    # Valid ones first, in the order of anchors: TopK keeps equal elements in order (ONNX, TopK).
    _, plain = _sorted(graph, graph.cast(valid, DataType.FP32), rows)
    scores = graph.add("Where", valid, scores, graph.like(scores, -math.inf), rank=2)
    values, rows = _sorted(graph, scores, rows)
    there = _are_there(call, values)
    chosen = there
    if not 0 < threshold <= 1:
        rows = plain
    else:
        limit = float(np.nextafter(np.float32(threshold), np.float32(-1)))  # MXNet suppresses >=
        corners = graph.slice(rows, 2, 2, 6)
        sets = _column(graph, rows, 0)
        if most > 0:
            is_first = graph.add("Less", places_along(graph, values, 1), graph.whole(most))
            values = graph.add("Where", is_first, values, graph.like(values, -math.inf), rank=2)
            rows = graph.add("Where", graph.unsqueeze(is_first, (2,)), rows, plain, rank=3)
        left = _Boxes(corners, values, None if call.flag("force_suppress") else sets)
        chosen = graph.unsqueeze(_chosen(call, left, limit), (2,))
    minus = graph.like(scores, -1)
    own = graph.slice(rows, 2, 0, 1)
    rest = graph.slice(rows, 2, 1, 6)
    return graph.add(
        "Concat",
        graph.add("Where", chosen, own, minus, rank=3),
        graph.add("Where", there, rest, minus, rank=3),
        axis=2,
    )


def _located(call: MxnetCall) -> Value:
    """Return boxes [batch, n, 4]: the anchors, moved and resized as predicted."""
    graph, moves, anchors = call.graph, call.input(1), call.input(2)
    variances = _numbers_of(call, "variances", (0.1, 0.1, 0.2, 0.2))
    call.refuse_if(len(variances) != 4, "its variances should be four numbers")
    moves = graph.reshape(moves, graph.join(graph.length(moves, 0), graph.ints(-1, 4)), 3)
    scaled = moves * graph.constant(np.array(variances, np.float32))
    half = graph.real(0.5)
    low, high = (graph.slice(anchors, 2, place, place + 2) for place in (0, 2))
    size = high - low
    center = (low + high) * half
    shift, growth = (graph.slice(scaled, 2, place, place + 2) for place in (0, 2))
    center = shift * size + center
    reach = graph.add("Exp", growth) * size * half
    corners = center - reach, center + reach
    boxes = graph.add("Concat", *corners, axis=2)
    if call.flag("clip", default=True):
        boxes = graph.add("Clip", boxes, graph.real(0.0), graph.real(1.0))
    return boxes


def _numbers_of(call: MxnetCall, name: str, default: tuple[float, ...]) -> list[float]:
    """Return the attribute `name`, a tuple of numbers, as a list."""
    text = call.word(name, "").strip("()[] ")
    try:
        found = [float(word) for word in text.split(",") if word.strip()]
    except ValueError:
        call.refuse(f"its attribute '{name}' is '{text[:100]}', expected a tuple of numbers")
    return found or list(default)


def _multi_box_prior(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    """Convert MultiBoxPrior: boxes of given sizes and ratios at each place of a feature map."""
    sizes, ratios = _numbers_of(call, "sizes", (1.0,)), _numbers_of(call, "ratios", (1.0,))
    steps, offsets = _numbers_of(call, "steps", (-1, -1)), _numbers_of(call, "offsets", (0.5, 0.5))
    if min(ratios) <= 0 or len(steps) != 2 or len(offsets) != 2:
        call.refuse("its ratios should be above 0, its steps and offsets two numbers each")
    height, width = (graph.cast(graph.length(x, axis), DataType.FP32) for axis in (2, 3))
    centers = []
    for axis, size, step, offset in zip((2, 3), (height, width), steps, offsets, strict=True):
        places = graph.cast(formulas.places(graph, x, axis), DataType.FP32) + offset
        centers.append(places * step if step > 0 else places * graph.add("Reciprocal", size))
    # All sizes with the first ratio, then the first size with the
    # other ratios, as MXNet orders them.
    shapes = [(size, math.sqrt(ratios[0])) for size in sizes]
    shapes += [(sizes[0], math.sqrt(ratio)) for ratio in ratios[1:]]
    halves = [graph.constant(np.array([s * r / 2 for s, r in shapes], np.float32))]
    halves.append(graph.constant(np.array([s / r / 2 for s, r in shapes], np.float32)))
    # Sizes are shares of the height; x is a share of the width.
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
    "Crop": _crop,
    "_contrib_BilinearResize2D": _bilinear_resize,
    "_contrib_AdaptiveAvgPooling2D": _adaptive_average,
    **dict.fromkeys(("depth_to_space", "space_to_depth"), _depth_to_space),
    "GridGenerator": _grid_generator,
    "BilinearSampler": lambda graph, call: _sampled(call, call.input(1)),
    "SpatialTransformer": lambda graph, call: _sampled(call, _affine_grid(call, call.input(1))),
    "ROIPooling": lambda graph, call: pooled_regions(call, _pooled_size(call)),
    "_contrib_ROIAlign": _roi_align,
    **dict.fromkeys(("_contrib_box_nms", "_contrib_box_non_maximum_suppression"), _box_nms),
    "_contrib_MultiBoxDetection": _multi_box_detection,
    "_contrib_MultiBoxPrior": _multi_box_prior,
}
