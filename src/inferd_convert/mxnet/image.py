"""MXNet operators on feature maps: cropping, resizing, rearranging, and pooling of regions."""

from math import prod

import numpy as np

from inferd_convert import filled
from inferd_convert.call import MAX_FILLED, Converted, Converter
from inferd_convert.graph import Graph, Value
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
    places = filled.places(graph, x, axis)
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
}
