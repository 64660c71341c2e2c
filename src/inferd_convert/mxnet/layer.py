"""MXNet operators that are network layers: with weights or windows, or normalising."""

import math
from dataclasses import dataclass

import numpy as np

from inferd.tensor.dtype import DataType
from inferd_convert import formulas
from inferd_convert.call import Converted, Converter
from inferd_convert.graph import Graph, Value
from inferd_convert.image import Window, channels_first, channels_last, mean_inside, upsampled
from inferd_convert.mxnet.call import MxnetCall
from inferd_convert.mxnet.shape import bounded, places_along


def _fully_connected(graph: Graph, call: MxnetCall, x: Value, weight: Value) -> Converted:
    bias = None if call.flag("no_bias") else call.input(2)
    if call.flag("flatten", default=True):
        return graph.add("Gemm", graph.flatten(x, 1), weight, bias, rank=2, transB=1)
    # MatMul and not Gemm, which takes matrices alone.
    y = graph.add("MatMul", x, graph.transpose(weight, (1, 0)), rank=x.rank)
    return y + bias if bias else y


def _embedding(graph: Graph, call: MxnetCall, x: Value, weight: Value) -> Converted:
    """Convert Embedding: rows of the weight, whose indices are often floats."""
    index = bounded(x, graph.length(weight, 0))
    return graph.add("Gather", weight, index, rank=x.rank_with(1), axis=0)


_ACTIVATIONS = {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "softrelu": "Softplus",
    "softsign": "Softsign",
}  # fmt: skip
_SLOPED = {"leaky": "LeakyRelu", "rrelu": "LeakyRelu", "elu": "Elu"}


def _activation(graph: Graph, call: MxnetCall) -> Converted:
    kind = call.word("act_type", "")
    call.refuse_if(kind not in _ACTIVATIONS, f"there is no act_type '{kind[:100]}'")
    return graph.add(_ACTIVATIONS[kind], call.input(0))


def _leaky_relu(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    kind, slope = call.word("act_type", "leaky"), call.number("slope", 0.25)
    if kind == "prelu":
        slopes = call.input(1)
        if slopes.size != 1:
            slopes = formulas.along(graph, slopes, x, call.checked(1, x.rank))
        return graph.add("PRelu", x, slopes)
    if kind == "gelu":
        return formulas.gelu(graph, x)
    if kind == "rrelu":  # random in training; in inference the mean of its bounds
        slope = (call.number("lower_bound", 0.125) + call.number("upper_bound", 0.334)) / 2
    if kind == "selu":
        return graph.add("Selu", x, alpha=formulas.SELU_ALPHA, gamma=formulas.SELU_GAMMA)
    call.refuse_if(kind not in _SLOPED, f"there is no act_type '{kind[:100]}'")
    return graph.add(_SLOPED[kind], x, alpha=slope)


def _softmax(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    """Convert softmax, log_softmax, and softmin, which is the softmax of the negated input."""
    op = "LogSoftmax" if call.op == "log_softmax" else "Softmax"
    if call.op == "softmin":
        x = graph.add("Neg", x)
    if call.has("temperature"):
        x = x / call.number("temperature", 1.0)
    if call.has("dtype"):
        x = graph.cast(x, call.element_type())
    axis = call.axis(x.rank, -1)
    if call.flag("use_length"):
        return _softmax_of_some(call, op, x, axis)
    return graph.add(op, x, axis=axis)


def _softmax_of_some(call: MxnetCall, op: str, x: Value, axis: int) -> Value:
    """Return the softmax of the first elements along `axis`, counted by input 1; others are 0."""
    graph = call.graph
    if op != "Softmax" or x.rank is None:
        call.cannot("use_length cannot be converted")
    lengths = graph.cast(call.input(1), DataType.INT64)
    if x.rank > 1:  # else there is one length, as a vector
        lengths = graph.unsqueeze(lengths, (axis,))
    inside = graph.add("Less", places_along(graph, x, axis), lengths, rank=x.rank)
    # exp(-inf) is 0, so what is outside has no share in the sum.
    y = graph.add("Where", inside, x, graph.like(x, -math.inf), rank=x.rank)
    y = graph.add("Softmax", y, axis=axis)
    # Again, as a row of length 0 is all -inf, of which the softmax is NaN.
    return graph.add("Where", inside, y, graph.like(x, 0.0), rank=x.rank)


def _softmax_output(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    """Convert SoftmaxOutput, whose label is for training.

    By default it is over all dims but the first; four dims are the exception, since MXNet passes
    them to MKL-DNN, which normalises only along the last.
    """
    if call.flag("multi_output"):
        return graph.add("Softmax", x, axis=1)
    if call.flag("preserve_shape") or x.rank in (2, 4):
        return graph.add("Softmax", x, axis=-1)
    return graph.reshape(graph.add("Softmax", graph.flatten(x, 1), axis=1), graph.shape(x), x.rank)


def _softmax_activation(graph: Graph, call: MxnetCall) -> Converted:
    """Convert SoftmaxActivation, which works along the last dim or, in one mode, the channels."""
    axis = 1 if call.word("mode", "instance") == "channel" else -1
    return graph.add("Softmax", call.input(0), axis=axis)


@dataclass(slots=True)
class MxnetWindow(Window):
    """A window, and whether the channels are the last dim of its input."""

    is_last: bool


def _window(call: MxnetCall) -> MxnetWindow:
    kernel = call.integers("kernel")
    dims = len(kernel)
    pad = call.integers("pad") or [0] * dims
    layout = call.word("layout", "")
    window = MxnetWindow(
        kernel,
        call.integers("stride") or [1] * dims,
        call.integers("dilate") or [1] * dims,
        pad + pad,
        layout in ("NWC", "NHWC", "NDHWC"),
    )
    sizes = (window.strides, window.dilations, pad)
    if not 1 <= dims <= 3 or any(len(size) != dims for size in sizes):
        call.refuse("kernel, stride, dilate and pad are not of one number of dims, 1 to 3")
    if min(*kernel, *window.strides, *window.dilations) < 1 or min(pad) < 0:
        call.refuse("kernel, stride and dilate should be at least 1, pad at least 0")
    if layout not in ("", "NCW", "NCHW", "NCDHW") and not window.is_last:
        call.cannot(f"layout '{layout[:100]}' cannot be converted")
    return window


def _convolution(graph: Graph, call: MxnetCall, x: Value, weight: Value) -> Converted:
    window = _window(call)
    operands = x, weight, None if call.flag("no_bias") else call.input(2)
    group = call.integer("num_group", 1)
    return window.convolve(graph, "Conv", operands, is_last=window.is_last, group=group)


def _deconvolution(graph: Graph, call: MxnetCall, x: Value, weight: Value) -> Converted:
    window = _window(call)
    call.cannot_if(window.is_last, "a layout with the channels last cannot be converted")
    # Deconvolution has no bias by default, unlike Convolution.
    bias = None if call.flag("no_bias", default=True) else call.input(2)
    operands, target = (x, weight, bias), call.integers("target_shape")
    group = call.integer("num_group", 1)
    if not any(target):
        adj = call.integers("adj") or None
        return window.convolve(graph, "ConvTranspose", operands, output_padding=adj, group=group)
    dims = len(window.kernel)
    if len(target) != dims or min(target) < 1:
        call.refuse(f"its target_shape is {target}, expected {dims} sizes")
    # It determines pad and adj: the excess is cropped, the larger half at the front.
    window.pads = [0] * (2 * dims)
    y = window.convolve(graph, "ConvTranspose", operands, group=group)
    sizes, two = graph.ints(*target), graph.ints(2)
    free = graph.shape(y, 2) - sizes + graph.ints(1)
    start = free / two
    axes = graph.ints(*range(2, 2 + dims))
    return graph.add("Slice", y, start, start + sizes, axes)


_POOLS = {"max": "MaxPool", "avg": "AveragePool", "sum": "AveragePool", "lp": "LpPool"}


def _pooling(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    kind = call.word("pool_type", "max")
    call.refuse_if(kind not in _POOLS, f"there is no pool_type '{kind[:100]}'")
    power = call.integer("p_value", 2)
    if kind == "lp" and power == 1:
        kind = "sum"  # of the values themselves, not of their magnitudes
    call.cannot_if(kind == "lp" and power != 2, f"p_value {power} cannot be converted")
    if call.flag("global_pool"):
        return _global_pool(call, kind, x)
    window, convention = _window(call), call.word("pooling_convention", "valid")
    if convention not in ("valid", "full"):
        call.cannot(f"pooling_convention '{convention[:100]}' cannot be converted")
    rank, is_full = window.rank, convention == "full"
    x = channels_first(graph, x, rank) if window.is_last else x
    is_root = kind == "lp" and is_full
    if is_root:
        x, kind = x * x, "sum"
    counts_pads = kind == "sum" or (kind == "avg" and call.flag("count_include_pad", default=True))
    if is_full and (kind == "sum" or _may_start_outside(window)):
        y = _full_pool(call, kind, x, window, counts_pads=counts_pads)
    else:
        y = window.slide(
            graph,
            _POOLS[kind],
            x,
            pads=window.pads,
            ceil_mode=1 if is_full else None,
            count_include_pad=1 if counts_pads else None,
            p=2 if kind == "lp" else None,
        )
    if kind == "sum":
        y = y * float(np.prod(window.kernel))
    if is_root:
        y = graph.add("Sqrt", y)
    return channels_last(graph, y, rank) if window.is_last else y


def _may_start_outside(window: MxnetWindow) -> bool:
    """Return whether a last window may start past the image; ONNX leaves out such windows."""
    steps = zip(window.pads, window.strides, window.kernel, strict=False)
    return any(pad + step > size for pad, step, size in steps)


def _full_pool(
    call: MxnetCall, kind: str, x: Value, window: MxnetWindow, *, counts_pads: bool
) -> Value:
    """Return a pool whose number of windows is rounded up, with `x` padded to hold them all."""
    graph, dims = call.graph, len(window.kernel)
    heads, sizes = graph.ints(*window.head), graph.shape(x, 2)
    tail = window.last_start(graph, sizes) + graph.ints(*window.kernel) - (sizes + heads)
    none, lowest = graph.ints(0, 0), graph.like(x, float(np.finfo(np.float32).min))

    def pool(value: Value, fill: Value, *, around: bool) -> Value:
        before, behind = heads, tail
        if around:  # first the given padding, which counts, then the rest, which does not
            value = graph.add("Pad", value, graph.join(none, heads, none, heads), fill)
            before = graph.ints(*[0] * dims)
            behind = tail - heads
            fill = graph.like(x, 0.0)
        value = graph.add("Pad", value, graph.join(none, before, none, behind), fill)
        # The Max does nothing but keep ONNX Runtime from fusing the Pad into the pool.
        value = graph.add("Max", value, lowest)
        return window.slide(graph, _POOLS[kind], value)

    if kind == "max":
        return pool(x, lowest, around=False)
    mean = pool(x, graph.like(x, 0.0), around=False)
    if kind == "sum":
        return mean
    one = graph.like(x, 1.0)
    ones = graph.add("Expand", one, graph.shape(x), rank=x.rank)
    share = pool(ones, one if counts_pads else graph.like(x, 0.0), around=counts_pads)
    return mean_inside(graph, mean, share)


def _global_pool(call: MxnetCall, kind: str, x: Value) -> Value:
    graph, rank = call.graph, x.rank or 4
    is_last = call.word("layout", "") in ("NWC", "NHWC", "NDHWC")
    # A reduction and not ONNX's global pools, of which there are none
    # of sums, nor with the channels last.
    axes = range(1, rank - 1) if is_last else range(2, rank)
    return graph.reduce(_REDUCERS[kind], x, axes, keep=True)


_REDUCERS = {"max": "ReduceMax", "avg": "ReduceMean", "sum": "ReduceSum", "lp": "ReduceL2"}


def _upsampling(graph: Graph, call: MxnetCall) -> Converted:
    scale = call.integer("scale", 1)
    if call.word("sample_type", "nearest") == "bilinear" and len(call.inputs) == 2:
        return _bilinear_upsampling(call, scale)
    if call.word("sample_type", "nearest") != "nearest" or len(call.inputs) != 1:
        call.cannot("only sample_type 'nearest' of one input can be converted")
    call.refuse_if(not 1 <= scale <= 1024, f"its scale is {scale}")
    return upsampled(graph, call.input(0), scale)


def _bilinear_upsampling(call: MxnetCall, scale: int) -> Value:
    """Return what MXNet computes as a transposed convolution of each channel by itself."""
    graph, weight = call.graph, call.input(1)
    # The size and padding that MXNet gives the filter.
    size, pad = 2 * scale - scale % 2, scale // 2
    if weight.array is None or weight.array.shape[1:] != (1, size, size):
        call.cannot(f"its filter is no constant of {size} times {size} for each channel")
    window = Window([size] * 2, [scale] * 2, [1] * 2, [pad] * 4)
    operands = call.input(0), weight, None
    return window.convolve(graph, "ConvTranspose", operands, group=len(weight.array))


def _batch_norm(graph: Graph, call: MxnetCall, x: Value) -> Value:
    gamma, beta, mean, variance = (call.input(index) for index in range(1, 5))
    epsilon, axis = call.number("eps", 1e-3), call.axis(x.rank, 1)
    call.cannot_if(call.flag("output_mean_var"), "output_mean_var cannot be converted")
    # By default gamma counts as 1, whatever the file holds.
    if call.flag("fix_gamma", default=True):
        gamma = graph.add("Expand", graph.like(gamma, 1.0), graph.shape(gamma), rank=1)
    if axis == 1:
        return graph.add("BatchNormalization", x, gamma, beta, mean, variance, epsilon=epsilon)
    deviation = graph.add("Sqrt", variance + epsilon)
    scale = gamma / deviation
    # BatchNormalization has its channels in dim 1 only.
    y = x - formulas.along(graph, mean, x, axis)
    y = y * formulas.along(graph, scale, x, axis)
    return y + formulas.along(graph, beta, x, axis)


def _instance_norm(graph: Graph, call: MxnetCall, x: Value, gamma: Value, beta: Value) -> Converted:
    operands = formulas.with_places(graph, x), gamma, beta
    return graph.add("InstanceNormalization", *operands, epsilon=call.number("eps", 1e-3))


def _layer_norm(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    call.cannot_if(call.flag("output_mean_var"), "output_mean_var cannot be converted")
    axis, epsilon = call.axis(x.rank, -1), call.number("eps", 1e-5)
    normal = formulas.normalised(x, [axis], epsilon)
    scale, bias = (formulas.along(graph, call.input(index), x, axis) for index in (1, 2))
    return normal * scale + bias


def _group_norm(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    count = call.integer("num_groups", 1)
    call.cannot_if(call.flag("output_mean_var"), "output_mean_var cannot be converted")
    call.refuse_if(count < 1, "num_groups should be at least 1")
    shape = graph.join(graph.length(x, 0), graph.ints(count, -1))
    normal = formulas.normalised(graph.reshape(x, shape, 3), [2], call.number("eps", 1e-5))
    normal = graph.reshape(normal, graph.shape(x), x.rank)
    axis = call.checked(1, x.rank)
    scale, bias = (formulas.along(graph, call.input(index), x, axis) for index in (1, 2))
    return normal * scale + bias


def _l2_normalization(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    mode = call.word("mode", "instance")
    if mode == "channel":
        axes = graph.ints(1)
    elif x.rank is not None and mode in ("instance", "spatial"):
        axes = graph.ints(*range(1 if mode == "instance" else 2, x.rank))
    else:
        call.cannot(f"mode '{mode[:100]}' cannot be converted")
    # Epsilon lies under the root, unlike in ONNX's LpNormalization, which has none.
    total = graph.add("ReduceSumSquare", x, axes, keepdims=1)
    length = graph.add("Sqrt", total + call.number("eps", 1e-10))
    return x / length


def _lrn(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    return graph.add(
        "LRN",
        x,
        size=max(call.integer("nsize", 1), 1),
        alpha=call.number("alpha", 1e-4),
        beta=call.number("beta", 0.75),
        bias=call.number("knorm", 2.0),
    )


OPERATORS: dict[str, Converter] = {
    "FullyConnected": _fully_connected,
    "Embedding": _embedding,
    "Activation": _activation,
    "LeakyReLU": _leaky_relu,
    **dict.fromkeys(("softmax", "log_softmax", "softmin"), _softmax),
    **dict.fromkeys(("SoftmaxOutput", "Softmax"), _softmax_output),
    "SoftmaxActivation": _softmax_activation,
    **dict.fromkeys(("Convolution", "Convolution_v1"), _convolution),
    "Deconvolution": _deconvolution,
    **dict.fromkeys(("Pooling", "Pooling_v1"), _pooling),
    "UpSampling": _upsampling,
    **dict.fromkeys(
        ("BatchNorm", "BatchNorm_v1", "CuDNNBatchNorm", "_contrib_SyncBatchNorm"), _batch_norm
    ),
    "_contrib_BatchNormWithReLU": lambda graph, call, x: graph.add(
        "Relu", _batch_norm(graph, call, x)
    ),
    "InstanceNorm": _instance_norm,
    "LayerNorm": _layer_norm,
    "GroupNorm": _group_norm,
    "L2Normalization": _l2_normalization,
    "LRN": _lrn,
}
