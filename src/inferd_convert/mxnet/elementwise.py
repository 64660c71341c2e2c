"""MXNet operators that work on each element, or create arrays."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from inferd.tensor.dtype import DataType
from inferd_convert import formulas
from inferd_convert.call import MAX_FILLED, Converted, Converter, node
from inferd_convert.graph import Graph, Value, wider_rank
from inferd_convert.mxnet.call import MxnetCall


def _rounded(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    """Convert round, which rounds halves away from zero; ONNX rounds them to even."""
    return graph.add("Sign", x) * graph.add("Floor", graph.add("Abs", x) + 0.5)


def _clip(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    low, high = call.number("a_min"), call.number("a_max")
    if x.datatype is not None and call.is_whole(x):
        limits = np.iinfo(x.datatype.numpy.str)  # for UINT8, -1 would be outside
        low, high = (min(max(one, limits.min), limits.max) for one in (low, high))
    return graph.add("Clip", x, graph.like(x, low), graph.like(x, high))


def _dropout(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    if call.word("mode", "training") == "always":
        call.refuse("it drops elements at random whenever it runs")
    return x


def _cast(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    """Convert Cast, and amp_cast, which leaves integers unchanged."""
    is_left = call.op == "amp_cast" and call.is_whole(x)
    return x if is_left else graph.cast(x, call.element_type())


def _pair(op: str) -> Converter:
    return lambda graph, call, a, b: _applied(call, op, a, b)


def _scalar(op: str, *, reverse: bool = False) -> Converter:
    def convert(graph: Graph, call: MxnetCall, x: Value) -> Converted:
        # Integers become FP64 if the scalar is marked as real.
        if not call.flag("is_int", default=True) and call.is_whole(x):
            x = graph.cast(x, DataType.FP64)
        number = graph.like(x, call.number("scalar"))
        return _applied(call, op, number, x) if reverse else _applied(call, op, x, number)

    return convert


_COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_LOGIC = ("And", "Or", "Xor")


def _applied(call: MxnetCall, op: str, a: Value, b: Value) -> Value:
    """Return the result of `op`; booleans become numbers of the operands' type, as in MXNet."""
    graph, rank = call.graph, wider_rank(a, b)
    if op == "Modulo":
        return _modulo(call, a, b, rank)
    if op == "Hypotenuse":
        return graph.add("Sqrt", graph.add("Add", a * a, b * b, rank=rank))
    if op == "NotEqual":
        equal = graph.add("Equal", a, b, rank=rank)
        return graph.add("CastLike", graph.add("Not", equal), a)
    if op in _LOGIC:
        sides = [graph.cast(side, DataType.BOOL) for side in (a, b)]
        return graph.add("CastLike", graph.add(op, *sides, rank=rank), a)
    result = graph.add(op, a, b, rank=rank)
    return graph.add("CastLike", result, a) if op in _COMPARISONS else result


def _where(graph: Graph, call: MxnetCall, condition: Value, x: Value, y: Value) -> Converted:
    """Convert where; a condition of one dim selects whole rows."""
    chosen = graph.cast(condition, DataType.BOOL)
    if condition.rank != x.rank:
        if condition.rank != 1 or x.rank is None:
            call.cannot("its condition has neither one dim nor those of what it chooses from")
        chosen = graph.unsqueeze(chosen, range(1, x.rank))
    return graph.add("Where", chosen, x, y, rank=x.rank)


def _modulo(call: MxnetCall, x: Value, y: Value, rank: int | None) -> Value:
    """Return x mod y with the sign of y, and 0 where y is 0."""
    graph, zero = call.graph, call.graph.like(x, 0.0)
    # fmod=1 has the sign of x, and is the only Mod that ONNX has for floats.
    rest = graph.add("Mod", x, y, rank=rank, fmod=1)
    # A negative product: rest and divisor have different signs.
    other = graph.add("Less", graph.add("Mul", rest, y, rank=rank), zero)
    rest = graph.add("Where", other, graph.add("Add", rest, y, rank=rank), rest, rank=rank)
    return graph.add("Where", graph.add("Equal", y, zero), zero, rest, rank=rank)


def _of_reals(convert: Callable[[MxnetCall, Value], Value]) -> Converter:
    """Return a converter that computes integers as FP64, and truncates the result."""

    def converted(graph: Graph, call: MxnetCall, x: Value) -> Converted:
        if not call.is_whole(x):
            return convert(call, x)
        # FP64 holds the 32 bits that most integers have; FP32 does not.
        made = convert(call, graph.cast(x, DataType.FP64))
        # By way of INT64: a value that is too large keeps its low bits, as in C.
        return graph.add("CastLike", graph.cast(made, DataType.INT64), x)

    return converted


def _cube_root(call: MxnetCall, x: Value) -> Value:
    graph = call.graph
    root = formulas.root_size(graph, x)
    if call.is_whole(call.input(0)):  # otherwise the root of 27 is just below 3
        nearest = graph.add("Round", root)
        cube = nearest * nearest * nearest
        root = graph.add("Where", graph.add("Equal", cube, graph.add("Abs", x)), nearest, root)
    return graph.add("Sign", x) * root


def _inverse_cube_root(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    call.cannot_if(call.is_whole(x), "it is of whole numbers, of which it is 1 or nothing")
    return graph.add("Reciprocal", _cube_root(call, x))


def _smooth_l1(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    """Convert smooth_l1: a parabola that continues as lines."""
    if call.is_whole(x):
        call.cannot("it is of whole numbers, and what MXNet cuts off on its way is not known")
    square = call.number("scalar") ** 2
    call.refuse_if(not 0 < square < 1e30, "its scalar should not be 0")
    size = graph.add("Abs", x)
    curve = x * x * (square / 2)
    line = size - 0.5 / square
    return graph.add("Where", graph.add("Less", size, graph.like(x, 1 / square)), curve, line)


def _not(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    return graph.add("CastLike", graph.add("Not", graph.cast(x, DataType.BOOL)), x)


_ONE_INPUT = {
    "abs": "Abs", "arccos": "Acos", "arccosh": "Acosh", "arcsin": "Asin", "arcsinh": "Asinh",
    "arctan": "Atan", "arctanh": "Atanh", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh",
    "erf": "Erf", "exp": "Exp", "floor": "Floor", "log": "Log", "negative": "Neg",
    "reciprocal": "Reciprocal", "relu": "Relu", "sigmoid": "Sigmoid", "sign": "Sign",
    "sin": "Sin", "sinh": "Sinh", "softsign": "Softsign", "sqrt": "Sqrt", "tan": "Tan",
    "tanh": "Tanh",
}  # fmt: skip

_NEW = ("add", "sub")  # which the oldest files call plus and minus

_TWO_INPUTS = {
    "add": "Add", "plus": "Add", "sub": "Sub", "minus": "Sub", "mul": "Mul", "div": "Div",
    "power": "Pow", "maximum": "Max", "minimum": "Min", "equal": "Equal",
    "not_equal": "NotEqual", "greater": "Greater", "greater_equal": "GreaterOrEqual",
    "lesser": "Less", "lesser_equal": "LessOrEqual", "logical_and": "And", "logical_or": "Or",
    "logical_xor": "Xor", "mod": "Modulo", "hypot": "Hypotenuse",
}  # fmt: skip

_OLD_NAMES = {f"_{name.title()}": op for name, op in _TWO_INPUTS.items() if name not in _NEW}

_REVERSED = {"minus": "Sub", "div": "Div", "power": "Pow", "mod": "Modulo"}


def _filled(graph: Graph, call: MxnetCall) -> Converted:
    """Convert _zeros, _ones and _full.

    A dim of 0 is one that MXNet infers; it becomes 1, which broadcasts to any size.
    """
    dims = [dim or 1 for dim in call.integers("shape")]
    value = call.number("value") if call.op == "_full" else float(call.op == "_ones")
    call.count_filled(dims)
    return graph.constant(np.full(dims or [1], value).astype(_dtype(call)))


def _dtype(call: MxnetCall) -> "np.dtype[Any]":
    return call.element_type().numpy if call.has("dtype") else DataType.FP32.numpy


def _arange(graph: Graph, call: MxnetCall) -> Converted:
    start, step, repeat = call.number("start"), call.number("step", 1.0), call.integer("repeat", 1)
    call.cannot_if(call.flag("infer_range"), "infer_range cannot be converted")
    # As Python's range(): one number alone is the end.
    begin, end = (start, call.number("stop")) if call.has("stop") else (0.0, start)
    # As `not ... <`: NaN is refused, too.
    if step == 0 or repeat < 1 or not abs((end - begin) / step) * repeat < MAX_FILLED:
        call.refuse(f"it counts from {begin} to {end} in steps of {step}, each {repeat} times")
    count = max(0, int(np.ceil((end - begin) / step)))
    call.count_filled([count * repeat])
    dtype = _dtype(call)  # MXNet counts in this type too
    numbers = np.array(begin).astype(dtype) + np.array(step).astype(dtype) * np.arange(count)
    return graph.constant(np.repeat(numbers, repeat).astype(dtype))


def _arange_like(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    """Convert arange_like: a range over an axis, or over all elements."""
    repeat = call.integer("repeat", 1)
    call.cannot_if(repeat != 1, "repeat cannot be converted")
    if call.has("axis"):
        numbers = formulas.places(graph, x, call.axis(x.rank, 0))
    else:
        numbers = formulas.numbered(graph, x)
    return graph.cast(numbers, DataType.FP32) * call.number("step", 1.0) + call.number("start")


OPERATORS: dict[str, Converter] = {
    **{name: node(op) for name, op in _ONE_INPUT.items()},
    **{
        prefix + name: _pair(op)
        for name, op in _TWO_INPUTS.items()
        for prefix in ("broadcast_", "elemwise_", "_")
    },
    **{f"_{name}_scalar": _scalar(op) for name, op in _TWO_INPUTS.items()},
    **{name: _pair(op) for name, op in _OLD_NAMES.items()},
    **{f"_{name.replace('_', '')}Scalar": _scalar(op) for name, op in _OLD_NAMES.items()},
    **{f"_r{name}_scalar": _scalar(op, reverse=True) for name, op in _REVERSED.items()},
    **{f"_R{name.title()}Scalar": _scalar(op, reverse=True) for name, op in _REVERSED.items()},
    "_grad_add": _pair("Add"),
    **dict.fromkeys(("add_n", "ElementWiseSum", "_sum"), formulas.total_of),
    **dict.fromkeys(
        (
            *("_copy", "identity", "BlockGrad", "stop_gradient", "MakeLoss", "make_loss"),
            *("LinearRegressionOutput", "MAERegressionOutput"),
            *("IdentityAttachKLSparseReg", "_copyto", "_CrossDeviceCopy"),
            *("_identity_with_attr_like_rhs", "_contrib_gradientmultiplier"),
        ),
        formulas.unchanged,
    ),
    "LogisticRegressionOutput": node("Sigmoid"),
    "Dropout": _dropout,
    **dict.fromkeys(("Cast", "cast", "amp_cast"), _cast),
    "square": lambda graph, call, x: x * x,
    "rsqrt": lambda graph, call, x: graph.add("Reciprocal", graph.add("Sqrt", x)),
    "log1p": lambda graph, call, x: graph.add("Log", x + 1.0),
    "expm1": lambda graph, call, x: graph.add("Exp", x) - 1.0,
    "log2": lambda graph, call, x: graph.add("Log", x) * (1 / math.log(2)),
    "log10": lambda graph, call, x: graph.add("Log", x) * (1 / math.log(10)),
    "round": _rounded,
    "rint": lambda graph, call, x: graph.add("Ceil", x - 0.5),  # halves down
    **dict.fromkeys(
        ("fix", "trunc"),
        lambda graph, call, x: graph.add("Sign", x) * graph.add("Floor", graph.add("Abs", x)),
    ),
    "hard_sigmoid": node("HardSigmoid", alpha=0.2, beta=0.5),
    "clip": _clip,
    "zeros_like": lambda graph, call, x: formulas.full_like(graph, x, 0.0),
    "ones_like": lambda graph, call, x: formulas.full_like(graph, x, 1.0),
    "where": _where,
    "logical_not": _not,
    "cbrt": _of_reals(_cube_root),
    "rcbrt": _inverse_cube_root,
    "degrees": _of_reals(lambda call, x: x * (180 / math.pi)),
    "radians": _of_reals(lambda call, x: x * (math.pi / 180)),
    "smooth_l1": _smooth_l1,
    **dict.fromkeys(("_zeros", "_zeros_without_dtype", "_ones", "_full"), _filled),
    "_arange": _arange,
    "_contrib_arange_like": _arange_like,
}
