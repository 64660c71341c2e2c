"""Caffe2 operators that normalise, including Softmax."""

from collections.abc import Callable

import numpy as np

from inferd_convert import filled
from inferd_convert.caffe2.call import Caffe2Call
from inferd_convert.call import Converted, Converter
from inferd_convert.graph import Graph, Value
from inferd_convert.reduction import deviation, moments
from inferd_convert.window import Window, channels_first, channels_last


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
    x = filled.with_places(graph, x)
    y = graph.add("InstanceNormalization", x, call.input(1), call.input(2), epsilon=epsilon)
    each = graph.reshape(x, graph.join(graph.shape(x, 0, 2), graph.ints(-1)), 3)
    mean, variance = moments(each, [2], keep=False)
    return y, mean, graph.add("Reciprocal", deviation(variance, epsilon))


def _group_norm(call: Caffe2Call, x: Value) -> tuple[Value, ...]:
    graph, epsilon = call.graph, call.number("epsilon", 1e-5)
    count = call.integer("group", 32)
    call.refuse_if(count < 1, "its argument 'group' should be at least 1")
    shape = graph.join(graph.length(x, 0), graph.ints(count, -1))
    groups = filled.with_places(graph, graph.reshape(x, shape, 3))
    ones, zeros = (graph.constant(np.full(count, one, np.float32)) for one in (1, 0))
    # Each group as a channel of InstanceNormalization: one kernel instead of several nodes.
    normal = graph.add("InstanceNormalization", groups, ones, zeros, epsilon=epsilon)
    normal = graph.reshape(normal, graph.shape(x), x.rank)
    scale, bias = (filled.along(graph, call.input(index), x, 1) for index in (1, 2))
    y = normal * scale + bias
    mean, variance = moments(groups, [2], keep=False)
    return y, mean, graph.add("Reciprocal", deviation(variance, epsilon))


def _layer_norm(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    axis, epsilon = call.axis(x.rank, 1), call.number("epsilon", 1e-5)
    rows = graph.flatten(x, axis)
    mean, variance = moments(rows, [1], keep=True)
    spread = deviation(variance, epsilon)
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
    "Softmax": _softmax,
    "SpatialBN": _in_order(_spatial_bn),
    "InstanceNorm": _in_order(_instance_norm),
    "GroupNorm": _in_order(_group_norm),
    "LayerNorm": _layer_norm,
    "LRN": _in_order(_lrn),
    "Normalize": _normalize,
}
