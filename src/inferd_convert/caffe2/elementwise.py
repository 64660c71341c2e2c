"""Caffe2 operators that work on each element: activations, arithmetic, comparisons, Cast."""

import numpy as np

from inferd.tensor.dtype import DataType
from inferd_convert import filled
from inferd_convert.caffe2.call import Caffe2Call
from inferd_convert.call import Converted, Converter, node
from inferd_convert.elementwise import (
    SELU_ALPHA,
    SELU_GAMMA,
    gelu,
    root_size,
    total_of,
    unchanged,
    without_nan,
)
from inferd_convert.graph import Graph, Value, wider_rank


def _logit(graph: Graph, call: Caffe2Call) -> Converted:
    """Convert Logit: log(x / (1 - x)), with x clipped to [eps, 1 - eps]."""
    eps = call.number("eps", 1e-6)
    x = graph.add("Clip", call.input(0), graph.real(eps), graph.real(1.0 - eps))
    return graph.add("Log", x / (1.0 - x))


def _clip(graph: Graph, call: Caffe2Call) -> Converted:
    # Caffe2's defaults: the bounds of float, not infinities.
    limits = np.finfo(np.float32)
    low = graph.real(call.number("min", float(limits.min)))
    high = graph.real(call.number("max", float(limits.max)))
    return graph.add("Clip", call.input(0), low, high)


def _cast(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    name = call.argument("to").s
    # Caffe2 takes both, the number of a type and its name.
    to = call.integer("to", -1) if name is None else name.decode("ascii", "replace")
    return graph.cast(x, call.element_type(to))


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
    # A Mod by 0 is undefined in C++, in which ONNX Runtime computes it.
    call.refuse_if(not divisor, "its argument 'divisor' is 0, or not there")
    by = graph.add("CastLike", graph.whole(divisor), x, rank=0)
    return graph.add("Mod", x, by, fmod=0 if call.flag("sign_follow_divisor") else 1)


def _prelu(graph: Graph, call: Caffe2Call, x: Value, slope: Value) -> Converted:
    """Convert PRelu, with one slope or one for each channel."""
    # With channels last, the slopes line up by themselves.
    if not call.is_nhwc and slope.size != 1 and x.rank != 1:
        slope = filled.along(graph, slope, x, 1)
    return graph.add("PRelu", x, slope)


def _binary(op: str) -> Converter:
    return lambda graph, call, a, b: _applied(call, op, a, b)


def _applied(call: Caffe2Call, op: str, a: Value, b: Value) -> Value:
    if call.flag("broadcast"):
        return call.graph.add(op, a, _broadcast(call, a, b))
    return call.graph.add(op, a, b, rank=wider_rank(a, b))


_ORDERS = {"LT": "Less", "LE": "LessOrEqual", "GT": "Greater", "GE": "GreaterOrEqual"}


def _ordered(graph: Graph, call: Caffe2Call, a: Value, b: Value) -> Converted:
    """Convert an ordering comparison, with False less than True."""
    # ONNX has orderings for numbers alone.
    if a.is_bool:
        a, b = graph.cast(a, DataType.INT32), graph.cast(b, DataType.INT32)
    return _applied(call, _ORDERS[call.type], a, b)


def _broadcast(call: Caffe2Call, a: Value, b: Value) -> Value:
    """Return `b` shaped to broadcast with `a` from `axis` on, as the argument `broadcast` asks."""
    graph, axis = call.graph, call.integer("axis", -1)
    # axis_str names the dim by its letter in the order of the image, such as "C".
    if axis == -1 and (letter := call.word("axis_str", "")):
        axis = call.word("order", "NCHW").find(letter)
    if b.array is not None and b.size == 1:
        return graph.constant(b.array.reshape(()))
    if axis == -1:
        return b
    # The dims to add behind b are then counted when the model runs.
    if a.rank is None or b.rank is None:
        ranks = [graph.shape(graph.shape(value)) for value in (a, b)]
        count = graph.add("Sub", *ranks) - graph.ints(axis)
        return graph.reshape(b, graph.join(graph.shape(b), filled.ones(graph, count)))
    # Caffe2's old broadcasting aligns b at `axis` of a; ONNX aligns shapes at their ends.
    missing = a.rank - axis - b.rank
    if axis < 0 or missing < 0:
        call.refuse(f"{b.rank} dims do not fit into {a.rank} from axis {axis} on")
    return graph.unsqueeze(b, range(b.rank, b.rank + missing))


def _weighted_sum(graph: Graph, call: Caffe2Call) -> Converted:
    """Convert WeightedSum, whose inputs alternate between values and their weights."""
    total = None
    if not call.inputs or len(call.inputs) % 2:
        call.refuse(f"it has {len(call.inputs)} inputs, expected pairs of a value and its weight")
    for x, weight in zip(call.inputs[::2], call.inputs[1::2], strict=True):
        # Weights have one element each, as tensors of any rank.
        part = x * graph.scalar(weight)
        total = total + part if total else part
    assert total is not None
    return total


def _affine_channel(
    graph: Graph, call: Caffe2Call, x: Value, scale: Value, bias: Value
) -> Converted:
    """Convert AffineChannel: a scale and a bias for each channel."""
    if not call.is_nhwc:
        scale, bias = filled.along(graph, scale, x, 1), filled.along(graph, bias, x, 1)
    return x * scale + bias


def _elementwise_linear(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    rows = graph.flatten(x, call.axis(x.rank, 1))
    y = rows * call.input(1) + call.input(2)
    return graph.reshape(y, graph.shape(x), x.rank)


def _row_mul(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    y = graph.flatten(x, 1) * graph.unsqueeze(call.input(1), (1,))
    return graph.reshape(y, graph.shape(x), x.rank)


def _power(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    if len(call.inputs) > 1:
        return _applied(call, "Pow", x, call.input(1))
    if not call.has("exponent"):
        call.refuse("it has neither the argument 'exponent' nor a second input")
    return graph.add("Pow", x, graph.real(call.number("exponent", 1.0)))


def _where(graph: Graph, call: Caffe2Call, condition: Value, x: Value, y: Value) -> Converted:
    """Convert Where; for Conditional or broadcast_on_rows, each condition selects a whole row."""
    if call.type == "Conditional" or call.flag("broadcast_on_rows"):
        condition = filled.along(graph, condition, x, 0)
    if x.is_bool and y.is_bool:  # not supported by ONNX Runtime's Where
        others = graph.add("And", graph.add("Not", condition), y, rank=x.rank)
        return graph.add("Or", graph.add("And", condition, x, rank=x.rank), others)
    return graph.add("Where", condition, x, y, rank=x.rank)


def _dropout(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    if not call.flag("is_test"):
        call.refuse("it drops elements at random: a net to be served has is_test: 1")
    return x, None


OPERATORS: dict[str, Converter] = {
    **dict.fromkeys(
        (
            *("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "Exp", "Log", "Sqrt", "Abs"),
            *("Floor", "Ceil", "Sign", "Erf", "Reciprocal", "Not"),
            *("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh"),
        ),
        lambda graph, call, x: graph.add(call.type, x),
    ),
    "Negative": lambda graph, call, x: graph.add("Neg", x),
    "Sqr": lambda graph, call, x: x * x,
    "Cube": lambda graph, call, x: x * x * x,
    "Rsqrt": lambda graph, call, x: graph.add("Reciprocal", graph.add("Sqrt", x)),
    "Swish": lambda graph, call, x: x * graph.add("Sigmoid", x),
    "Mish": lambda graph, call, x: x * graph.add("Tanh", graph.add("Softplus", x)),
    "IsNaN": lambda graph, call, x: graph.cast(graph.add("IsNaN", x), DataType.UINT8),
    "LeakyRelu": node("LeakyRelu", alpha=0.01),
    "Elu": node("Elu", alpha=1.0),
    "Selu": node("Selu", alpha=SELU_ALPHA, gamma=("scale", SELU_GAMMA)),
    "HardSigmoid": node("HardSigmoid", alpha=0.2, beta=0.5),
    "Gelu": lambda graph, call, x: gelu(graph, x, is_fast=call.flag("fast_gelu")),
    "ReluN": _relu_n,
    "Log1p": _log_of_one_more,
    "Mod": _modulo,
    "Clip": _clip,
    "FloatToHalf": lambda graph, call, x: graph.cast(x, DataType.FP16),
    "HalfToFloat": lambda graph, call, x: graph.cast(x, DataType.FP32),
    "Cast": _cast,
    "PRelu": _prelu,
    **{op: _binary(op) for op in ("Add", "Sub", "Mul", "Div", "And", "Or", "Xor")},
    **dict.fromkeys(_ORDERS, _ordered),
    "EQ": _binary("Equal"),
    "NE": lambda graph, call, a, b: graph.add("Not", _applied(call, "Equal", a, b)),
    "Sum": total_of,
    "Max": lambda graph, call, x: graph.add("Max", *call.inputs),
    "Min": lambda graph, call, x: graph.add("Min", *call.inputs),
    "Mean": lambda graph, call, x: total_of(graph, call, x) / len(call.inputs),
    "Pow": _power,
    **dict.fromkeys(("Where", "Conditional"), _where),
    "ThresholdedRelu": node("ThresholdedRelu", alpha=1.0),
    "Logit": _logit,
    "Cbrt": lambda graph, call, x: graph.add("Sign", x) * root_size(graph, x),
    "Scale": lambda graph, call, x: x * call.number("scale", 1.0),
    "ReplaceNaN": lambda graph, call, x: without_nan(x, call.number("value")),
    "WeightedSum": _weighted_sum,
    "AffineChannel": _affine_channel,
    "ElementwiseLinear": _elementwise_linear,
    "RowMul": _row_mul,
    "Dropout": _dropout,
    **dict.fromkeys(
        (
            *("Copy", "Alias", "StopGradient", "EnsureCPUOutput", "CopyFromCPUInput"),
            *("CopyCPUToGPU", "CopyGPUToCPU", "NanCheck", "EnsureDense"),
        ),
        unchanged,
    ),
}
