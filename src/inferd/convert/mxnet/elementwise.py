"""MXNet operators that work on each element."""

import math
from collections.abc import Callable

from inferd.convert.graph import Value
from inferd.convert.mxnet.call import Call, Converted
from inferd.tensor.dtype import DataType

# --- one input ---


def _named(op: str) -> Callable[[Call], Converted]:
    return lambda call: call.graph.add(op, call.input(0))


def _square(call: Call) -> Converted:
    return call.graph.add("Mul", call.input(0), call.input(0))


def _inverse_root(call: Call) -> Converted:
    return call.graph.add("Reciprocal", call.graph.add("Sqrt", call.input(0)))


def _log1p(call: Call) -> Converted:
    x = call.input(0)
    return call.graph.add("Log", call.graph.add("Add", x, call.like(x, 1.0)))


def _expm1(call: Call) -> Converted:
    x = call.input(0)
    return call.graph.add("Sub", call.graph.add("Exp", x), call.like(x, 1.0))


def _log_of(base: float) -> Callable[[Call], Converted]:
    def convert(call: Call) -> Converted:
        x = call.input(0)
        return call.graph.add("Mul", call.graph.add("Log", x), call.like(x, 1 / math.log(base)))

    return convert


def _truncated(call: Call) -> Converted:
    graph, x = call.graph, call.input(0)
    return graph.add("Mul", graph.add("Sign", x), graph.add("Floor", graph.add("Abs", x)))


def _rounded(call: Call) -> Converted:
    """Convert round: halves go away from zero, which ONNX rounds to even."""
    graph, x = call.graph, call.input(0)
    size = graph.add("Floor", graph.add("Add", graph.add("Abs", x), call.like(x, 0.5)))
    return graph.add("Mul", graph.add("Sign", x), size)


def _nearest(call: Call) -> Converted:
    """Convert rint: halves go down."""
    graph, x = call.graph, call.input(0)
    return graph.add("Ceil", graph.add("Sub", x, call.like(x, 0.5)))


def _hard_sigmoid(call: Call) -> Converted:
    alpha, beta = call.number("alpha", 0.2), call.number("beta", 0.5)
    return call.graph.add("HardSigmoid", call.input(0), alpha=alpha, beta=beta)


def _clip(call: Call) -> Converted:
    x = call.input(0)
    low, high = call.like(x, call.number("a_min")), call.like(x, call.number("a_max"))
    return call.graph.add("Clip", x, low, high)


def _same(call: Call) -> Converted:
    return call.input(0)


def _dropout(call: Call) -> Converted:
    if call.word("mode", "training") == "always":
        call.refuse("it drops elements at random whenever it runs")
    return call.input(0)


def _cast(call: Call) -> Converted:
    return call.graph.cast(call.input(0), call.element_type())


def _filled(number: float) -> Callable[[Call], Converted]:
    def convert(call: Call) -> Converted:
        x = call.input(0)
        return call.graph.add("Expand", call.like(x, number), call.graph.shape(x), rank=x.rank)

    return convert


# --- two inputs, or one and a number ---


def _pair(op: str) -> Callable[[Call], Converted]:
    return lambda call: _applied(call, op, call.input(0), call.input(1))


def _scalar(op: str, *, reverse: bool = False) -> Callable[[Call], Converted]:
    def convert(call: Call) -> Converted:
        x = call.input(0)
        number = call.like(x, call.number("scalar"))
        return _applied(call, op, number, x) if reverse else _applied(call, op, x, number)

    return convert


_COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_LOGIC = ("And", "Or", "Xor")


def _applied(call: Call, op: str, a: Value, b: Value) -> Value:
    """Return what `op` makes of two values; truth is a number of their type, as in MXNet."""
    graph = call.graph
    ranks = (a.rank, b.rank)
    rank = None if None in ranks else max(rank for rank in ranks if rank is not None)
    if op == "NotEqual":
        equal = graph.add("Equal", a, b, rank=rank)
        return graph.add("CastLike", graph.add("Not", equal), a)
    if op in _LOGIC:
        sides = [graph.cast(side, DataType.BOOL) for side in (a, b)]
        return graph.add("CastLike", graph.add(op, *sides, rank=rank), a)
    result = graph.add(op, a, b, rank=rank)
    return graph.add("CastLike", result, a) if op in _COMPARISONS else result


def _hypotenuse(call: Call) -> Converted:
    graph = call.graph
    squares = [graph.add("Mul", side, side) for side in (call.input(0), call.input(1))]
    return graph.add("Sqrt", _applied(call, "Add", *squares))


def _sum(call: Call) -> Converted:
    total = call.input(0)
    for other in call.inputs[1:]:
        total = call.graph.add("Add", total, other)
    return total


def _where(call: Call) -> Converted:
    condition, x, y = (call.input(index) for index in range(3))
    if condition.rank != x.rank:
        call.cannot("its condition has another number of dims than what it chooses from")
    chosen = call.graph.cast(condition, DataType.BOOL)
    return call.graph.add("Where", chosen, x, y, rank=x.rank)


def _not(call: Call) -> Converted:
    graph, x = call.graph, call.input(0)
    return graph.add("CastLike", graph.add("Not", graph.cast(x, DataType.BOOL)), x)


_ONE_INPUT = {
    "abs": "Abs", "arccos": "Acos", "arccosh": "Acosh", "arcsin": "Asin", "arcsinh": "Asinh",
    "arctan": "Atan", "arctanh": "Atanh", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh",
    "erf": "Erf", "exp": "Exp", "floor": "Floor", "log": "Log", "negative": "Neg",
    "reciprocal": "Reciprocal", "relu": "Relu", "sigmoid": "Sigmoid", "sign": "Sign",
    "sin": "Sin", "sinh": "Sinh", "softsign": "Softsign", "sqrt": "Sqrt", "tan": "Tan",
    "tanh": "Tanh",
}  # fmt: skip

_TWO_INPUTS = {
    "add": "Add", "plus": "Add", "sub": "Sub", "minus": "Sub", "mul": "Mul", "div": "Div",
    "power": "Pow", "maximum": "Max", "minimum": "Min", "equal": "Equal",
    "not_equal": "NotEqual", "greater": "Greater", "greater_equal": "GreaterOrEqual",
    "lesser": "Less", "lesser_equal": "LessOrEqual", "logical_and": "And", "logical_or": "Or",
    "logical_xor": "Xor",
}  # fmt: skip

_OLD_NAMES = {
    "_Plus": "Add", "_Minus": "Sub", "_Mul": "Mul", "_Div": "Div", "_Power": "Pow",
    "_Maximum": "Max", "_Minimum": "Min",
}  # fmt: skip

OPERATORS: dict[str, Callable[[Call], Converted]] = {
    **{name: _named(op) for name, op in _ONE_INPUT.items()},
    **{
        prefix + name: _pair(op)
        for name, op in _TWO_INPUTS.items()
        for prefix in ("broadcast_", "elemwise_", "_")
    },
    **{f"_{name}_scalar": _scalar(op) for name, op in _TWO_INPUTS.items()},
    **{name: _pair(op) for name, op in _OLD_NAMES.items()},
    **{f"{name}Scalar": _scalar(op) for name, op in _OLD_NAMES.items()},
    **dict.fromkeys(("_rminus_scalar", "_RMinusScalar"), _scalar("Sub", reverse=True)),
    **dict.fromkeys(("_rdiv_scalar", "_RDivScalar"), _scalar("Div", reverse=True)),
    **dict.fromkeys(("_rpower_scalar", "_RPowerScalar"), _scalar("Pow", reverse=True)),
    **dict.fromkeys(("add_n", "ElementWiseSum", "_sum"), _sum),
    **dict.fromkeys(("_copy", "identity", "BlockGrad", "stop_gradient", "MakeLoss"), _same),
    **dict.fromkeys(("make_loss", "IdentityAttachKLSparseReg"), _same),
    **dict.fromkeys(("LinearRegressionOutput", "MAERegressionOutput"), _same),
    "LogisticRegressionOutput": _named("Sigmoid"),
    "Dropout": _dropout,
    **dict.fromkeys(("Cast", "cast", "amp_cast"), _cast),
    "square": _square,
    "rsqrt": _inverse_root,
    "log1p": _log1p,
    "expm1": _expm1,
    "log2": _log_of(2.0),
    "log10": _log_of(10.0),
    "round": _rounded,
    "rint": _nearest,
    **dict.fromkeys(("fix", "trunc"), _truncated),
    "hard_sigmoid": _hard_sigmoid,
    "clip": _clip,
    "zeros_like": _filled(0.0),
    "ones_like": _filled(1.0),
    "broadcast_hypot": _hypotenuse,
    "where": _where,
    "logical_not": _not,
}
