"""Caffe2 operators that work on each element, or create tensors, of which init nets consist."""

from functools import reduce
from math import prod
from operator import add
from typing import Any

import numpy as np

from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType
from inferd_convert import formulas
from inferd_convert.caffe2.call import Caffe2Call
from inferd_convert.call import Converted, Converter, node
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
        slope = formulas.along(graph, slope, x, 1)
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
        return graph.reshape(b, graph.join(graph.shape(b), formulas.ones(graph, count)))
    # Caffe2's old broadcasting aligns b at `axis` of a; ONNX aligns shapes at their ends.
    missing = a.rank - axis - b.rank
    if axis < 0 or missing < 0:
        call.refuse(f"{b.rank} dims do not fit into {a.rank} from axis {axis} on")
    return graph.unsqueeze(b, range(b.rank, b.rank + missing))


def _weighted_sum(graph: Graph, call: Caffe2Call) -> Converted:
    """Convert WeightedSum, whose inputs alternate between values and their weights."""
    if not call.inputs or len(call.inputs) % 2:
        call.refuse(f"it has {len(call.inputs)} inputs, expected pairs of a value and its weight")
    pairs = zip(call.inputs[::2], call.inputs[1::2], strict=True)
    # Weights have one element each, as tensors of any rank.
    return reduce(add, (x * graph.scalar(weight) for x, weight in pairs))


def _affine_channel(
    graph: Graph, call: Caffe2Call, x: Value, scale: Value, bias: Value
) -> Converted:
    """Convert AffineChannel: a scale and a bias for each channel."""
    if not call.is_nhwc:
        scale, bias = formulas.along(graph, scale, x, 1), formulas.along(graph, bias, x, 1)
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
        condition = formulas.along(graph, condition, x, 0)
    if x.is_bool and y.is_bool:  # not supported by ONNX Runtime's Where
        others = graph.add("And", graph.add("Not", condition), y, rank=x.rank)
        return graph.add("Or", graph.add("And", condition, x, rank=x.rank), others)
    return graph.add("Where", condition, x, y, rank=x.rank)


def _dropout(graph: Graph, call: Caffe2Call, x: Value) -> Converted:
    if not call.flag("is_test"):
        call.refuse("it drops elements at random: a net to be served has is_test: 1")
    return x, None


def _given(datatype: DataType) -> Converter:
    """Return the converter of a fill whose elements the file contains."""
    return lambda graph, call: _shaped(call, _values(call, datatype))


def _values(call: Caffe2Call, datatype: DataType) -> Array:
    given = call.argument("values")
    if datatype is DataType.BYTES:
        # np.array() would make fixed-width bytes of them and drop trailing NULs.
        array = np.empty(len(given.strings), object)
        array[:] = given.strings
        return array
    if datatype in (DataType.FP32, DataType.FP64):
        return given.floats.astype(datatype.numpy, copy=False)
    try:
        return np.array(call.integers("values"), datatype.numpy)
    except OverflowError:
        call.refuse(f"not all of its values are {datatype.value}")


def _byte_string(graph: Graph, call: Caffe2Call) -> Converted:
    return _shaped(call, np.frombuffer(b"".join(call.argument("values").strings), np.uint8))


def _shaped(call: Caffe2Call, values: Array) -> Converted:
    shape = [*call.integers("shape"), *call.integers("extra_shape")]
    if call.inputs or call.flag("input_as_shape"):
        call.refuse("a fill whose shape is an input cannot be converted")
    if min(shape, default=0) < 0 or prod(shape) != values.size:
        call.refuse(f"its shape is {shape}, and it has {values.size} values")
    return call.graph.constant(values.reshape(shape))


def _constant(graph: Graph, call: Caffe2Call) -> Converted:
    """Convert ConstantFill; its shape is an argument, an input's shape, or an input's value."""
    value = np.array([_one_value(call)])
    if call.inputs:
        x, extra = call.inputs[0], call.integers("extra_shape")
        is_shape = call.flag("input_as_shape")
        dims = graph.cast(x, DataType.INT64) if is_shape else graph.shape(x)
        shape = graph.join(dims, graph.ints(*extra)) if extra else dims
        rank = x.size if is_shape else x.rank
        rank = None if rank is None else rank + len(extra)
        return graph.add("ConstantOfShape", shape, rank=rank, value=value)
    return _filled(call, value[0])


def _filled(call: Caffe2Call, value: Any) -> Value:
    """Return a constant with the shape in the argument `shape`, filled with `value`."""
    dims_given = call.integers("shape")
    call.count_filled(dims_given)
    return call.graph.constant(np.full(dims_given, value))


def _one_value(call: Caffe2Call) -> object:
    given = call.argument("value")
    kind = call.argument("dtype")
    if kind.s is not None:
        datatype = call.element_type(kind.s.decode("ascii", "replace"))
    elif kind.i is not None:
        datatype = call.element_type(kind.i)
    else:  # the value implies it
        datatype = DataType.FP32 if given.i is None else DataType.INT64
    call.refuse_if(datatype is DataType.BYTES, "texts cannot be filled in")
    number = call.number("value", 0.0) if given.i is None else given.i
    # Caffe2 casts without a check, so what does not fit becomes what C makes of it.
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array(number).astype(datatype.numpy)[()]


def _half_fill(graph: Graph, call: Caffe2Call) -> Converted:
    with np.errstate(over="ignore"):
        value = np.array(call.number("value", 0.0)).astype(np.float16)[()]
    return _filled(call, value)


def _range(graph: Graph, call: Caffe2Call) -> Converted:
    """Convert Range of (stop), (start, stop) or (start, stop, step), each of one element."""
    bounds = [graph.scalar(call.input(index)) for index in range(len(call.inputs))]
    call.refuse_if(not 1 <= len(bounds) <= 3, f"it has {len(bounds)} inputs, expected 1 to 3")
    # Of the bounds' type, as Range takes three of one type.
    start = graph.add("CastLike", graph.whole(0), bounds[0], rank=0)
    step = graph.add("CastLike", graph.whole(1), bounds[0], rank=0)
    if len(bounds) == 1:
        bounds = [start, *bounds]
    return graph.add("Range", *bounds, *[step] * (len(bounds) == 2), rank=1)


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
    "Selu": node("Selu", alpha=formulas.SELU_ALPHA, gamma=("scale", formulas.SELU_GAMMA)),
    "HardSigmoid": node("HardSigmoid", alpha=0.2, beta=0.5),
    "Gelu": lambda graph, call, x: formulas.gelu(graph, x, is_fast=call.flag("fast_gelu")),
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
    "Sum": formulas.total_of,
    "Max": lambda graph, call, x: graph.add("Max", *call.inputs),
    "Min": lambda graph, call, x: graph.add("Min", *call.inputs),
    "Mean": lambda graph, call, x: formulas.total_of(graph, call, x) / len(call.inputs),
    "Pow": _power,
    **dict.fromkeys(("Where", "Conditional"), _where),
    "ThresholdedRelu": node("ThresholdedRelu", alpha=1.0),
    "Logit": _logit,
    "Cbrt": lambda graph, call, x: graph.add("Sign", x) * formulas.root_size(graph, x),
    "Scale": lambda graph, call, x: x * call.number("scale", 1.0),
    "ReplaceNaN": lambda graph, call, x: formulas.without_nan(x, call.number("value")),
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
        formulas.unchanged,
    ),
    "GivenTensorFill": _given(DataType.FP32),
    "GivenTensorDoubleFill": _given(DataType.FP64),
    "GivenTensorBoolFill": _given(DataType.BOOL),
    "GivenTensorInt16Fill": _given(DataType.INT16),
    "GivenTensorIntFill": _given(DataType.INT32),
    "GivenTensorInt64Fill": _given(DataType.INT64),
    "GivenTensorStringFill": _given(DataType.BYTES),
    "GivenTensorByteStringToUInt8Fill": _byte_string,
    "ConstantFill": _constant,
    "Float16ConstantFill": _half_fill,
    "Range": _range,
}
