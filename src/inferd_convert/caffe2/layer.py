"""Caffe2 operators that are network layers: with weights or windows, or normalising."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from inferd_convert import formulas
from inferd_convert.caffe2.call import Caffe2Call
from inferd_convert.call import Converted, Converter
from inferd_convert.graph import Graph, Value
from inferd_convert.image import Window, channels_first, channels_last, mean_inside


def _fully_connected(
    graph: Graph, call: Caffe2Call, x: Value, weight: Value, bias: Value
) -> Converted:
    """Convert FC, whose weight is [out, in], and FCTransposed, whose weight is [in, out]."""
    axis = call.axis(x.rank, 1)
    y = graph.add(
        "Gemm",
        graph.flatten(x, axis),
        # Caffe2's axis_w: weights may have more dims than two.
        graph.flatten(weight, call.integer("axis_w", 1)),
        bias,
        rank=2,
        transB=int(call.type == "FC"),
    )
    if axis == 1:
        return y
    shape = graph.join(graph.shape(x, 0, axis), graph.shape(y, 1))
    return graph.reshape(y, shape, axis + 1 if axis >= 0 else None)


def _mat_mul(graph: Graph, call: Caffe2Call) -> Converted:
    sides = []
    for index, side in enumerate("ab"):
        matrix = graph.flatten(call.input(index), call.integer(f"axis_{side}", 1))
        sides.append(_turned(graph, matrix) if call.flag(f"trans_{side}") else matrix)
    return graph.add("MatMul", *sides, rank=2)


def _batch_mat_mul(graph: Graph, call: Caffe2Call) -> Converted:
    sides = [
        _turned(graph, call.input(index)) if call.flag(f"trans_{side}") else call.input(index)
        for index, side in enumerate("ab")
    ]
    ranks = [side.rank for side in sides if side.rank is not None]
    if ranks == [1, 1]:  # in Caffe2 the product of two vectors has one dim
        sides[0] = graph.unsqueeze(sides[0], (0,))
        return graph.add("MatMul", *sides, rank=1)
    # With a vector, MatMul takes a dim away.
    rank = max(ranks) if len(ranks) == 2 and min(ranks) > 1 else None
    return graph.add("MatMul", *sides, rank=rank)


def _turned(graph: Graph, matrix: Value) -> Value:
    return matrix if matrix.rank in (0, 1) else graph.swap_last(matrix)


def _dot_product(graph: Graph, call: Caffe2Call) -> Converted:
    products = graph.flatten(call.input(0) * call.input(1), 1)
    return graph.reduce("ReduceSum", products, [1])


def _distance(graph: Graph, call: Caffe2Call) -> Converted:
    """Convert L1Distance, and SquaredL2Distance, which is half the sum of squares."""
    off = graph.flatten(call.input(0) - call.input(1), 1)
    op = "ReduceL1" if call.type == "L1Distance" else "ReduceSumSquare"
    total = graph.reduce(op, off, [1])
    return total if op == "ReduceL1" else total * 0.5


def _cosine(graph: Graph, call: Caffe2Call) -> Converted:
    sides = [graph.flatten(call.input(index), 1) for index in (0, 1)]
    squares = [graph.reduce("ReduceSumSquare", side, [1]) for side in sides]
    # Caffe2's own epsilon, which it applies to the squares.
    lengths = [graph.add("Max", square, graph.real(1e-12)) for square in squares]
    product = graph.reduce("ReduceSum", graph.add("Mul", *sides), [1])
    return product / graph.add("Sqrt", graph.add("Mul", *lengths))


_IMAGES = 4  # the dims of a batch of images

_VALID, _SAME, _CAFFE_POOLING = 1, 2, 3  # caffe2::LegacyPadding


@dataclass(slots=True)
class Caffe2Window(Window):
    """A window whose padding may depend on the size of the input."""

    legacy_pad: int

    @property
    def padding(self) -> dict[str, Any]:
        """ONNX's attributes: the pads, or the name of a kind that depends on the input's size."""
        kind = {_VALID: "VALID", _SAME: "SAME_UPPER"}.get(self.legacy_pad)
        return {"auto_pad": kind, "pads": None} if kind else {"pads": self.pads}


def _window(call: Caffe2Call) -> Caffe2Window:
    kernel = _sizes(call, "kernel")
    dims = len(kernel)
    window = Caffe2Window(
        kernel,
        _sizes(call, "stride") or [1] * dims,
        _sizes(call, "dilation") or [1] * dims,
        pads_of(call) or [0] * (2 * dims),
        call.integer("legacy_pad"),
    )
    if not len(window.strides) == len(window.dilations) == dims or len(window.pads) != 2 * dims:
        call.refuse("kernel, stride, dilation and pad are of different numbers of dims")
    if dims and min(*kernel, *window.strides, *window.dilations) < 1:
        call.refuse("kernel, stride and dilation should be at least 1")
    if min(window.pads, default=0) < 0 or not 0 <= window.legacy_pad <= _CAFFE_POOLING:
        call.refuse("its padding is negative, or of an unknown kind")
    # ONNX's auto_pad counts the dilation, Caffe2's rule does not.
    if window.legacy_pad in (_SAME, _CAFFE_POOLING) and set(window.dilations) != {1}:
        call.refuse("this legacy_pad does not go with dilation")
    return window


def _sizes(call: Caffe2Call, name: str) -> list[int]:
    """Return kernel, stride, dilation or adj, in whichever form it is given."""
    if call.has(name):
        # One number is for images, whose windows have two dims.
        return [call.integer(name)] * 2
    if call.has(f"{name}_h", f"{name}_w"):
        return [call.integer(f"{name}_h"), call.integer(f"{name}_w")]
    return call.integers(f"{name}s")


def pads_of(call: Caffe2Call) -> list[int]:
    """Return the pads before each dim, then those after; empty if none are given."""
    if call.has("pad"):
        return [call.integer("pad")] * 4
    sides = ("pad_t", "pad_l", "pad_b", "pad_r")
    if call.has(*sides):
        return [call.integer(side) for side in sides]
    return call.integers("pads")


def _conv(graph: Graph, call: Caffe2Call, x: Value, weight: Value) -> Converted:
    window = _window(call)
    rank = window.rank
    if call.is_nhwc:
        x, weight = channels_first(graph, x, rank), channels_first(graph, weight, rank)
    x = _cropped(graph, x, window)
    if window.legacy_pad == _CAFFE_POOLING:
        x = _padded_for_caffe(graph, x, window)
        window.pads = [0] * len(window.pads)
    operands, group = (x, weight, _bias(call)), call.integer("group", 1)
    y = window.convolve(graph, "Conv", operands, **window.padding, group=group)
    return channels_last(graph, y, rank) if call.is_nhwc else y


def _conv_transpose(graph: Graph, call: Caffe2Call, x: Value, weight: Value) -> Converted:
    window = _window(call)
    if window.legacy_pad not in (0, _VALID):
        call.refuse("legacy_pad of a ConvTranspose can only be NOTSET or VALID")
    window.dilations = [1] * len(window.kernel)  # ConvTranspose has no such argument
    adj = _sizes(call, "adj")
    if any(not 0 <= more < step for more, step in zip(adj, window.strides, strict=False)):
        call.refuse(f"adj is {adj}, which is not less than its stride {window.strides}")
    return window.convolve(
        graph,
        "ConvTranspose",
        (x, weight, _bias(call)),
        is_last=call.is_nhwc,
        pads=[0] * len(window.pads) if window.legacy_pad == _VALID else window.pads,
        output_padding=adj or None,
        group=call.integer("group", 1),
    )


def _bias(call: Caffe2Call) -> Value | None:
    return call.inputs[2] if len(call.inputs) > 2 else None


def _pool(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    op = "Max" if call.type.startswith("Max") else "Average"
    window = None if call.flag("global_pooling") else _window(call)
    rank = window.rank if window else x.rank or _IMAGES
    x = channels_first(graph, x, rank) if call.is_nhwc else x
    if window is None:
        y = graph.add(f"Global{op}Pool", x, rank=rank)
    else:
        counts_pads = op == "Average" and call.flag("count_include_pad")
        y = _pool_window(call, op, x, window, counts_pads=counts_pads)
    return channels_last(graph, y, rank) if call.is_nhwc else y


def _lp_pool(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    """Convert LpPool, (sum |x|^p)^(1/p): the sum is a mean including pads, times the size."""
    p = call.number("p", 2.0)
    call.refuse_if(not p > 0, "its argument 'p' should be above 0")
    power = graph.real(p)
    window = None if call.flag("global_pooling") else _window(call)
    if (x.rank or _IMAGES) != _IMAGES or (window and window.rank != _IMAGES):
        call.refuse("it pools images of two dims alone")
    x = channels_first(graph, x, _IMAGES) if call.is_nhwc else x
    powers = graph.add("Pow", graph.add("Abs", x), power)
    if window is None:
        total = graph.add("ReduceSum", powers, graph.ints(2, 3), rank=_IMAGES)
    else:
        mean = _pool_window(call, "Average", powers, window, counts_pads=True)
        # ONNX's LpPool takes whole numbers for p only.
        total = mean * float(prod(window.kernel))
    y = graph.add("Pow", total, graph.real(1 / p))
    return channels_last(graph, y, _IMAGES) if call.is_nhwc else y


def _pool_window(
    call: Caffe2Call, op: str, x: Value, window: Caffe2Window, *, counts_pads: bool
) -> Value:
    call.refuse_if(set(window.dilations) != {1}, "there are no pools with dilation")
    graph = call.graph
    x = _cropped(graph, x, window)
    ceil_mode = None
    if window.legacy_pad == _CAFFE_POOLING:
        # Otherwise ONNX's ceil_mode gives the same windows, and is one node in place of several.
        if counts_pads or window.leaves_gaps():
            return _caffe_pool(graph, op, x, window, counts_pads=counts_pads)
        ceil_mode = 1
        window.pads = window.head * 2
    return window.slide(
        graph,
        f"{op}Pool",
        x,
        **window.padding,
        ceil_mode=ceil_mode,
        count_include_pad=1 if counts_pads else None,
    )


def _caffe_pool(
    graph: Graph, op: str, x: Value, window: Caffe2Window, *, counts_pads: bool
) -> Value:
    """Return a pool with Caffe's own padding, all of which is added to `x` beforehand."""

    def pool(value: Value, fill: Value | None = None) -> Value:
        padded = _padded_for_caffe(graph, value, window, fill)
        # The Max does nothing but keep ONNX Runtime from fusing the Pad into the pool, which does
        # not accept padding as wide as its window.
        padded = padded if fill else graph.add("Max", padded, lowest)
        return window.slide(graph, f"{op}Pool", padded)

    lowest = graph.real(float(np.finfo(np.float32).min))
    if op == "Max":
        return pool(x, lowest)
    mean = pool(x)
    if counts_pads:
        return mean
    ones = formulas.full(graph, graph.shape(x), np.float32(1), x.rank)
    return mean_inside(graph, mean, pool(ones))


def _cropped(graph: Graph, x: Value, window: Caffe2Window) -> Value:
    """Return `x` without the parts that SAME skips before the first window and after the last.

    If strides are longer than the window, the padding may be negative: Caffe2 then crops both
    ends, which ONNX does not.
    """
    if window.legacy_pad != _SAME or not window.leaves_gaps():
        return x
    sizes, strides = graph.shape(x, 2), graph.ints(*window.strides)
    reach = (sizes - graph.ints(1)) / strides * strides + graph.ints(*window.kernel)
    spare = graph.add("Max", sizes - reach, graph.ints(0))
    head = spare / graph.ints(2)
    axes = graph.ints(*range(2, 2 + len(window.kernel)))
    return graph.add("Slice", x, head, sizes - (spare - head), axes)


def _padded_for_caffe(
    graph: Graph, x: Value, window: Caffe2Window, fill: Value | None = None
) -> Value:
    """Return `x` padded by Caffe's own rule, so that its windows fit exactly.

    Caffe rounds the number of windows up, then drops a last one that would start in the padding;
    only the padding before the image is given. The rule ignores dilation.
    """
    reach = [(k - 1) * d + 1 for k, d in zip(window.kernel, window.dilations, strict=True)]
    sizes, strides, heads = graph.shape(x, 2), graph.ints(*window.strides), graph.ints(*window.head)
    last = window.last_start(graph, sizes)
    outside = graph.add("GreaterOrEqual", last, sizes + heads)
    padded = graph.constant(np.array([pad > 0 for pad in window.head]))
    left_out = graph.add("Where", graph.add("And", outside, padded), strides, graph.ints(0))
    end = last - left_out + graph.ints(*reach)
    tail = end - (sizes + heads)
    # All dims, although Pad could take axes: ONNX Runtime makes an error when it moves a Pad with
    # axes past a Transpose.
    around = graph.join(graph.ints(0, 0), heads, graph.ints(0, 0), tail)
    return graph.add("Pad", x, around, fill)


def _softmax(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    """Convert Softmax over all dims from `axis` on together, as ONNX had it before opset 13."""
    axis = call.axis(x.rank, 1)
    if axis == -1 or (x.rank is not None and axis == x.rank - 1):
        return graph.add("Softmax", x, axis=-1)
    y = graph.add("Softmax", graph.flatten(x, axis), axis=1)
    return graph.reshape(y, graph.shape(x), x.rank)


def _in_order(convert: Callable[[Caffe2Call, Value], tuple[Value, ...]]) -> Converter:
    """Extend the NCHW converter `convert` to NHWC, by transposing the input and first output."""

    def converted(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
        if not call.is_nhwc:
            return convert(call, x)
        # Images, if nothing tells the rank.
        rank = x.rank or 4
        y, *others = convert(call, channels_first(graph, x, rank))
        return (channels_last(graph, y, rank), *others)

    return converted


def _spatial_bn(call: Caffe2Call, x: Value) -> tuple[Value, ...]:
    if not call.flag("is_test"):
        call.refuse("it normalises by the batch: a net to be served has is_test: 1")
    parameters = [call.input(index) for index in range(1, 5)]
    epsilon = call.number("epsilon", 1e-5)
    return (call.graph.add("BatchNormalization", x, *parameters, epsilon=epsilon),)


def _instance_norm(call: Caffe2Call, x: Value) -> tuple[Value, ...]:
    graph, epsilon = call.graph, call.number("epsilon", 1e-5)
    x = formulas.with_places(graph, x)
    y = graph.add("InstanceNormalization", x, call.input(1), call.input(2), epsilon=epsilon)
    each = graph.reshape(x, graph.join(graph.shape(x, 0, 2), graph.ints(-1)), 3)
    mean, variance = formulas.moments(each, [2], keep=False)
    return y, mean, graph.add("Reciprocal", formulas.deviation(variance, epsilon))


def _group_norm(call: Caffe2Call, x: Value) -> tuple[Value, ...]:
    graph, epsilon = call.graph, call.number("epsilon", 1e-5)
    count = call.integer("group", 32)
    call.refuse_if(count < 1, "its argument 'group' should be at least 1")
    shape = graph.join(graph.length(x, 0), graph.ints(count, -1))
    groups = formulas.with_places(graph, graph.reshape(x, shape, 3))
    ones, zeros = (graph.constant(np.full(count, one, np.float32)) for one in (1, 0))
    # Each group as a channel of InstanceNormalization: one kernel instead of several nodes.
    normal = graph.add("InstanceNormalization", groups, ones, zeros, epsilon=epsilon)
    normal = graph.reshape(normal, graph.shape(x), x.rank)
    scale, bias = (formulas.along(graph, call.input(index), x, 1) for index in (1, 2))
    y = normal * scale + bias
    mean, variance = formulas.moments(groups, [2], keep=False)
    return y, mean, graph.add("Reciprocal", formulas.deviation(variance, epsilon))


def _layer_norm(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    axis, epsilon = call.axis(x.rank, 1), call.number("epsilon", 1e-5)
    rows = graph.flatten(x, axis)
    mean, variance = formulas.moments(rows, [1], keep=True)
    spread = formulas.deviation(variance, epsilon)
    normal = (rows - mean) / spread
    y = graph.reshape(normal, graph.shape(x), x.rank)
    if call.flag("elementwise_affine"):
        y = y * call.input(1) + call.input(2)
    shape = graph.join(graph.shape(x, 0, axis), graph.ints(1))
    rank = axis + 1 if axis >= 0 else None
    # Here it is the deviation itself, unlike in GroupNorm.
    return y, graph.reshape(mean, shape, rank), graph.reshape(spread, shape, rank)


def _lrn(call: Caffe2Call, x: Value) -> tuple[Value, ...]:
    size = call.integer("size")
    call.refuse_if(size < 1, "its argument 'size' should be at least 1")
    alpha, beta = call.number("alpha", 0.0), call.number("beta", 0.0)
    graph, bias = call.graph, call.number("bias", 1.0)
    y = graph.add("LRN", x, size=size, alpha=alpha, beta=beta, bias=bias)
    if call.output_count < 2:
        return (y,)
    # The second output is the term that is raised to the power of beta.
    area = graph.reduce("ReduceProd", graph.shape(x, 2), keep=True)
    rows = graph.join(graph.length(x, 0), graph.ints(1), graph.length(x, 1), area)
    squares = graph.reshape(x * x, rows, 4)
    # LRN gives only its result, so the sum over neighbouring channels is computed again, as a pool
    # whose window moves along the channels alone.
    window = Window([size, 1], [1, 1], [1, 1], [(size - 1) // 2, 0, size // 2, 0])
    mean = window.slide(graph, "AveragePool", squares, pads=window.pads, count_include_pad=1)
    scale = mean * alpha + bias
    scale = graph.reshape(scale, graph.shape(x), x.rank)
    return y, channels_last(graph, scale, x.rank or 4) if call.is_nhwc else scale


def _normalize(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    """Convert Normalize: each vector along `axis` divided by its length."""
    length = graph.reduce("ReduceL2", x, [call.axis(x.rank, -1)], keep=True)
    # Caffe2's own epsilon.
    return x / graph.add("Max", length, graph.real(1e-12))


OPERATORS: dict[str, Converter] = {
    **dict.fromkeys(("FC", "FCTransposed"), _fully_connected),
    "MatMul": _mat_mul,
    "BatchMatMul": _batch_mat_mul,
    "DotProduct": _dot_product,
    **dict.fromkeys(("L1Distance", "SquaredL2Distance"), _distance),
    "CosineSimilarity": _cosine,
    **dict.fromkeys(("Conv", "Conv1D", "Conv2D", "Conv3D"), _conv),
    **dict.fromkeys(
        ("ConvTranspose", "ConvTranspose1D", "ConvTranspose2D", "ConvTranspose3D"), _conv_transpose
    ),
    **dict.fromkeys(("MaxPool", "MaxPool1D", "MaxPool2D", "MaxPool3D"), _pool),
    **dict.fromkeys(("AveragePool", "AveragePool1D", "AveragePool2D", "AveragePool3D"), _pool),
    "LpPool": _lp_pool,
    "Softmax": _softmax,
    "SpatialBN": _in_order(_spatial_bn),
    "InstanceNorm": _in_order(_instance_norm),
    "GroupNorm": _in_order(_group_norm),
    "LayerNorm": _layer_norm,
    "LRN": _in_order(_lrn),
    "Normalize": _normalize,
}
