"""Caffe2 operators that work on each element: activations, arithmetic, comparisons, Cast."""

import math
from collections.abc import Callable

import numpy as np

from inferd.convert.caffe2.call import Call, Converted
from inferd.convert.caffe2.types import datatype_of
from inferd.convert.graph import Value
from inferd.tensor.dtype import DataType

# --- one input ---


def _same_name(call: Call) -> Converted:
    return call.graph.add(call.type, call.input(0))


def _negative(call: Call) -> Converted:
    return call.graph.add("Neg", call.input(0))


def _square(call: Call) -> Converted:
    return call.graph.add("Mul", call.input(0), call.input(0))


def _cube(call: Call) -> Converted:
    x = call.input(0)
    return call.graph.add("Mul", call.graph.add("Mul", x, x), x)


def _reciprocal_root(call: Call) -> Converted:
    return call.graph.add("Reciprocal", call.graph.add("Sqrt", call.input(0)))


def _swish(call: Call) -> Converted:
    x = call.input(0)
    return call.graph.add("Mul", x, call.graph.add("Sigmoid", x))


def _mish(call: Call) -> Converted:
    graph, x = call.graph, call.input(0)
    return graph.add("Mul", x, graph.add("Tanh", graph.add("Softplus", x)))


def _is_nan(call: Call) -> Converted:
    return call.graph.cast(call.graph.add("IsNaN", call.input(0)), DataType.UINT8)


def _leaky_relu(call: Call) -> Converted:
    return call.graph.add("LeakyRelu", call.input(0), alpha=call.number("alpha", 0.01))


def _elu(call: Call) -> Converted:
    return call.graph.add("Elu", call.input(0), alpha=call.number("alpha", 1.0))


def _selu(call: Call) -> Converted:
    alpha = call.number("alpha", 1.6732632423543772)
    scale = call.number("scale", 1.0507009873554805)
    return call.graph.add("Selu", call.input(0), alpha=alpha, gamma=scale)


def _hard_sigmoid(call: Call) -> Converted:
    alpha, beta = call.number("alpha", 0.2), call.number("beta", 0.5)
    return call.graph.add("HardSigmoid", call.input(0), alpha=alpha, beta=beta)


def _gelu(call: Call) -> Converted:
    """Convert Gelu, x·Φ(x), with erf, or with tanh for fast_gelu."""
    graph, x = call.graph, call.input(0)
    if call.flag("fast_gelu"):
        cube = graph.add("Mul", graph.add("Mul", x, x), x)
        inner = graph.add("Add", x, graph.add("Mul", cube, graph.real(0.044715)))
        inner = graph.add("Mul", inner, graph.real(math.sqrt(2 / math.pi)))
        curve = graph.add("Tanh", inner)
    else:
        curve = graph.add("Erf", graph.add("Mul", x, graph.real(math.sqrt(0.5))))
    part = graph.add("Add", curve, graph.real(1.0))
    return graph.add("Mul", graph.add("Mul", x, graph.real(0.5)), part)


def _thresholded_relu(call: Call) -> Converted:
    return call.graph.add("ThresholdedRelu", call.input(0), alpha=call.number("alpha", 1.0))


def _logit(call: Call) -> Converted:
    """Convert Logit: log(x / (1 - x)), with x clipped to [eps, 1 - eps]."""
    graph, eps = call.graph, call.number("eps", 1e-6)
    x = graph.add("Clip", call.input(0), graph.real(eps), graph.real(1.0 - eps))
    return graph.add("Log", graph.add("Div", x, graph.add("Sub", graph.real(1.0), x, rank=x.rank)))


def _cube_root(call: Call) -> Converted:
    graph, x = call.graph, call.input(0)
    root = graph.add("Pow", graph.add("Abs", x), graph.real(1 / 3))
    return graph.add("Mul", graph.add("Sign", x), root)


def _scale(call: Call) -> Converted:
    x = call.input(0)
    return call.graph.add("Mul", x, _like(call, x, call.number("scale", 1.0)))


def _replace_nan(call: Call) -> Converted:
    graph, x = call.graph, call.input(0)
    value = _like(call, x, call.number("value", 0.0))
    return graph.add("Where", graph.add("IsNaN", x), value, x, rank=x.rank)


def _like(call: Call, x: Value, number: float) -> Value:
    return call.graph.add("CastLike", call.graph.real(number), x, rank=0)


def _clip(call: Call) -> Converted:
    graph, limits = call.graph, np.finfo(np.float32)
    low = graph.real(call.number("min", float(limits.min)))
    high = graph.real(call.number("max", float(limits.max)))
    return graph.add("Clip", call.input(0), low, high)


def _cast(call: Call) -> Converted:
    to = call.argument("to")
    if to.s is not None:
        return call.graph.cast(call.input(0), datatype_of(call, to.s.decode("ascii", "replace")))
    return call.graph.cast(call.input(0), datatype_of(call, call.integer("to", -1)))


# --- several inputs ---


def _prelu(call: Call) -> Converted:
    """Convert PRelu, with one slope or one for each channel."""
    graph, x, slope = call.graph, call.input(0), call.input(1)
    if not call.is_nhwc and slope.size != 1 and x.rank != 1:
        slope = along_channels(call, slope, x)
    return graph.add("PRelu", x, slope)


def along_channels(call: Call, vector: Value, x: Value) -> Value:
    """Return a vector over channels as [C, 1, 1, ...], to broadcast with `x` in order NCHW."""
    graph = call.graph
    if x.rank is not None:
        return graph.unsqueeze(vector, range(1, x.rank - 1))
    spatial = graph.add("ConstantOfShape", graph.shape(graph.shape(x, 2)), rank=1, value=_ONE)
    return graph.reshape(vector, graph.join(graph.ints(-1), spatial))


_ONE = np.array([1], np.int64)


def _binary(op: str) -> Callable[[Call], Converted]:
    def convert(call: Call) -> Converted:
        a, b = call.input(0), call.input(1)
        if call.flag("broadcast"):
            return call.graph.add(op, a, _broadcast(call, a, b))
        return call.graph.add(op, a, b, rank=_wider(a, b))

    return convert


def _ordered(op: str) -> Callable[[Call], Converted]:
    """Return the converter of an ordering comparison, with False less than True."""

    def convert(call: Call) -> Converted:
        if call.input(0).is_bool:
            sides = [call.graph.cast(side, DataType.INT32) for side in call.inputs]
            call.inputs = tuple(sides)
        return _binary(op)(call)

    return convert


def _not_equal(call: Call) -> Converted:
    equal = _binary("Equal")(call)
    assert isinstance(equal, Value)
    return call.graph.add("Not", equal)


def _broadcast(call: Call, a: Value, b: Value) -> Value:
    """Return `b` shaped to broadcast with `a` from `axis` on, as the argument `broadcast` asks."""
    graph, axis = call.graph, call.integer("axis", -1)
    if axis == -1 and (letter := call.word("axis_str", "")):
        axis = call.word("order", "NCHW").find(letter)
    if b.array is not None and b.size == 1:
        return graph.constant(b.array.reshape(()))
    if axis == -1:
        return b
    if a.rank is None or b.rank is None:
        ranks = [graph.shape(graph.shape(value)) for value in (a, b)]
        count = graph.add("Sub", graph.add("Sub", *ranks), graph.ints(axis))
        tail = graph.add("ConstantOfShape", count, rank=1, value=_ONE)
        return graph.reshape(b, graph.join(graph.shape(b), tail))
    missing = a.rank - axis - b.rank
    if axis < 0 or missing < 0:
        call.refuse(f"{b.rank} dims do not fit into {a.rank} from axis {axis} on")
    return graph.unsqueeze(b, range(b.rank, b.rank + missing))


def _wider(*values: Value) -> int | None:
    ranks = [value.rank for value in values]
    known = [rank for rank in ranks if rank is not None]
    return max(known) if len(known) == len(ranks) else None


def _sum(call: Call) -> Converted:
    total = call.input(0)
    for other in call.inputs[1:]:
        total = call.graph.add("Add", total, other)
    return total


def _weighted_sum(call: Call) -> Converted:
    """Convert WeightedSum, whose inputs alternate between values and their weights."""
    graph, total = call.graph, None
    if not call.inputs or len(call.inputs) % 2:
        call.refuse(f"it has {len(call.inputs)} inputs, expected pairs of a value and its weight")
    for x, weight in zip(call.inputs[::2], call.inputs[1::2], strict=True):
        part = graph.add("Mul", x, graph.reshape(weight, graph.ints()), rank=x.rank)
        total = graph.add("Add", total, part) if total else part
    assert total is not None
    return total


def _affine_channel(call: Call) -> Converted:
    """Convert AffineChannel: a scale and a bias for each channel."""
    graph, x, (scale, bias) = call.graph, call.input(0), (call.input(1), call.input(2))
    if not call.is_nhwc:
        scale, bias = along_channels(call, scale, x), along_channels(call, bias, x)
    y = graph.add("Mul", x, scale, rank=x.rank)
    return graph.add("Add", y, bias, rank=x.rank)


def _elementwise_linear(call: Call) -> Converted:
    graph, x = call.graph, call.input(0)
    rows = graph.flatten(x, call.axis(x.rank, 1))
    y = graph.add("Add", graph.add("Mul", rows, call.input(1)), call.input(2))
    return graph.reshape(y, graph.shape(x), x.rank)


def _row_mul(call: Call) -> Converted:
    graph, x = call.graph, call.input(0)
    y = graph.add("Mul", graph.flatten(x, 1), graph.unsqueeze(call.input(1), (1,)), rank=2)
    return graph.reshape(y, graph.shape(x), x.rank)


def _several(call: Call) -> Converted:
    call.input(0)
    return call.graph.add(call.type, *call.inputs)


def _mean(call: Call) -> Converted:
    graph, total = call.graph, _sum(call)
    assert isinstance(total, Value)
    count = graph.add("CastLike", graph.whole(len(call.inputs)), total, rank=0)
    return graph.add("Div", total, count)


def _power(call: Call) -> Converted:
    x = call.input(0)
    if len(call.inputs) > 1:
        return _binary("Pow")(call)
    if not call.has("exponent"):
        call.refuse("it has neither the argument 'exponent' nor a second input")
    return call.graph.add("Pow", x, call.graph.real(call.number("exponent", 1.0)))


def _where(call: Call) -> Converted:
    """Convert Where; for Conditional or broadcast_on_rows, each condition selects a whole row."""
    graph, condition, x, y = call.graph, call.input(0), call.input(1), call.input(2)
    if call.type == "Conditional" or call.flag("broadcast_on_rows"):
        if x.rank is None:
            ones = graph.add("ConstantOfShape", graph.shape(graph.shape(x, 1)), rank=1, value=_ONE)
            condition = graph.reshape(condition, graph.join(graph.ints(-1), ones))
        else:
            condition = graph.unsqueeze(condition, range(1, x.rank))
    if x.is_bool and y.is_bool:  # not supported by ONNX Runtime's Where
        others = graph.add("And", graph.add("Not", condition), y, rank=x.rank)
        return graph.add("Or", graph.add("And", condition, x, rank=x.rank), others)
    return graph.add("Where", condition, x, y, rank=x.rank)


# --- no-ops ---


def _copy(call: Call) -> Converted:
    return call.input(0)


def _dropout(call: Call) -> Converted:
    if not call.flag("is_test"):
        call.refuse("it drops elements at random: a net to be served has is_test: 1")
    return call.input(0), None


OPERATORS: dict[str, Callable[[Call], Converted]] = {
    **dict.fromkeys(
        (
            *("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "Exp", "Log", "Sqrt", "Abs"),
            *("Floor", "Ceil", "Sign", "Erf", "Reciprocal", "Not"),
            *("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh"),
        ),
        _same_name,
    ),
    "Negative": _negative,
    "Sqr": _square,
    "Cube": _cube,
    "Rsqrt": _reciprocal_root,
    "Swish": _swish,
    "Mish": _mish,
    "IsNaN": _is_nan,
    "LeakyRelu": _leaky_relu,
    "Elu": _elu,
    "Selu": _selu,
    "HardSigmoid": _hard_sigmoid,
    "Gelu": _gelu,
    "Clip": _clip,
    "Cast": _cast,
    "PRelu": _prelu,
    "Add": _binary("Add"),
    "Sub": _binary("Sub"),
    "Mul": _binary("Mul"),
    "Div": _binary("Div"),
    "And": _binary("And"),
    "Or": _binary("Or"),
    "Xor": _binary("Xor"),
    "LT": _ordered("Less"),
    "LE": _ordered("LessOrEqual"),
    "GT": _ordered("Greater"),
    "GE": _ordered("GreaterOrEqual"),
    "EQ": _binary("Equal"),
    "NE": _not_equal,
    "Sum": _sum,
    "Max": _several,
    "Min": _several,
    "Mean": _mean,
    "Pow": _power,
    "Where": _where,
    "Conditional": _where,
    "ThresholdedRelu": _thresholded_relu,
    "Logit": _logit,
    "Cbrt": _cube_root,
    "Scale": _scale,
    "ReplaceNaN": _replace_nan,
    "WeightedSum": _weighted_sum,
    "AffineChannel": _affine_channel,
    "ElementwiseLinear": _elementwise_linear,
    "RowMul": _row_mul,
    "Dropout": _dropout,
    **dict.fromkeys(
        ("Copy", "Alias", "StopGradient", "EnsureCPUOutput", "CopyFromCPUInput"), _copy
    ),
    **dict.fromkeys(("CopyCPUToGPU", "CopyGPUToCPU", "NanCheck", "EnsureDense"), _copy),
}
