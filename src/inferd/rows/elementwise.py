"""Rules of operators that work on each element, with those at the same place of other tensors."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from inferd.formats.onnx_graph import RowNode
from inferd.rows.flow import RowFlow, Rule
from inferd.rows.size import ONE, Size, Sizes, over, times
from inferd.rows.value import (
    RowTensor,
    Unclear,
    along,
    at,
    given,
    grid_of,
    mixes,
    needed,
    plain,
    side_by_side,
)

Number = Size | float | None

_UNARY = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Celu", "Cos",
    "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "IsInf", "IsNaN",
    "LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Shrink",
    "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh",
    "ThresholdedRelu", "RegexFullMatch",
)  # fmt: skip

_BROADCASTING = (
    "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Greater", "GreaterOrEqual",
    "Less", "LessOrEqual", "Mean", "Or", "Pow", "PRelu", "StringConcat", "Sum", "Xor",
)  # fmt: skip


def broadcast(flow: RowFlow, node: RowNode, *values: RowTensor) -> RowTensor:
    """Return what an operator makes of `values`, aligned at their last dims."""
    rows = [value for value in values if value.axis is not None]
    counts = any(value.counts for value in values)
    if not rows:
        shapes = [value.shape for value in values]
        known = [shape for shape in shapes if shape is not None]
        shape = _shape(flow, known) if len(known) == len(shapes) else None
        return RowTensor(shape, counts=counts)
    if counts:
        raise mixes(node, "computes with the number of rows")
    # Counted from the end, as broadcasting aligns shapes there.
    places = {value.rank - (value.axis or 0) for value in rows}
    if len(places) > 1:
        raise flow.crossing(node, *rows)
    first = side_by_side(rows)
    [place] = places
    for value in values:
        if value.axis is None and value.rank >= place:
            beside = value.dims[value.rank - place]
            if beside != ONE:
                check_beside(node, beside)
    shape = _shape(flow, [value.dims for value in values])
    sources = flow.join(*rows)
    return RowTensor(shape, len(shape) - place, first.outer, first.inner, sources=sources)


def check_beside(node: RowNode, size: Size) -> None:
    """Raise an error for a dim of `size` that lies beside the batch without growing with it."""
    if not size.letters:
        raise mixes(node, f"takes {size} fixed rows beside those of the batch")
    msg = f"it is not known whether {size} rows beside those of the batch are 1"
    raise Unclear(msg)


def _shape(flow: RowFlow, shapes: Sequence[Sizes]) -> Sizes:
    rank = max(len(shape) for shape in shapes)
    whole = [(ONE,) * (rank - len(shape)) + shape for shape in shapes]
    found = []
    for sizes in zip(*whole, strict=True):
        several = {size for size in sizes if size != ONE}
        fixed = [size for size in several if not size.letters]
        # A piece that was cut off at another length: beside that, it can only be as long.
        several -= {size for size in several if flow.ends.get(size) in several}
        if len(several) == 1:
            found.append(several.pop())
        elif not several:
            found.append(ONE)
        elif grown := [size for size in several if size.has_batch]:
            found.append(grown[0])  # the other one is known to be 1
        else:
            found.append(fixed[0] if fixed else flow.letter())
    return tuple(found)


def _unary(flow: RowFlow, node: RowNode, values: Sequence[RowTensor | None]) -> RowTensor:
    del flow
    value = needed(values, 0)
    plain(node, values[1:], "parameters")
    return value.same()


def _broadcasting(flow: RowFlow, node: RowNode, values: Sequence[RowTensor | None]) -> RowTensor:
    return broadcast(flow, node, *(value for value in values if value is not None))


def _unchanged(flow: RowFlow, node: RowNode, values: Sequence[RowTensor | None]) -> RowTensor:
    del flow, node
    return needed(values, 0)


_FLOATS, _INTEGERS, _BOOL = (1, 11), (6, 7), 9
"""TensorProto.DataType of the floats and integers that hold the lengths of tensors exactly."""


def _cast(flow: RowFlow, node: RowNode, values: Sequence[RowTensor | None]) -> RowTensor:
    del flow
    value, to = needed(values, 0), node.attributes.get("to")
    # FP32 holds whole numbers up to 2**24 alone: places in larger batches would become others.
    if value.is_place and to not in _INTEGERS:
        raise mixes(node, "computes with the places of rows in the batch")
    if value.numbers is None:
        return value
    return replace(value, numbers=tuple(_as_type(one, to) for one in value.numbers))


def _as_type(number: Number, to: object) -> Number:
    if isinstance(number, float):
        is_length = number.is_integer() and abs(number) < _MOST
        whole = Size(int(number)) if is_length and to in _INTEGERS else None
        return number if to in _FLOATS else whole
    if number is None or abs(number.number) >= _MOST:
        return None
    if to in _INTEGERS or (to in _FLOATS and number.letters):
        return number
    if to in _FLOATS:  # 5 / 2 is another number then
        return float(number.number)
    return Size(int(number.number != 0)) if to == _BOOL and not number.letters else None


def _dropout(
    flow: RowFlow, node: RowNode, values: Sequence[RowTensor | None]
) -> Sequence[RowTensor]:
    value = needed(values, 0)
    if len(values) > 2 and values[2] is not None and values[2].numbers != (Size(0),):
        raise mixes(node, "draws random numbers, for training")
    # Until opset 6, Dropout was in training mode unless is_test was set.
    if 0 < flow.opset < 7 and not node.attributes.get("is_test", 0):
        raise mixes(node, "draws random numbers, for training")
    return [value.same()] * len(node.outputs)


def _clip(flow: RowFlow, node: RowNode, values: Sequence[RowTensor | None]) -> RowTensor:
    return broadcast(flow, node, needed(values, 0), *(one for one in values[1:] if one is not None))


def _quantized(flow: RowFlow, node: RowNode, values: Sequence[RowTensor | None]) -> RowTensor:
    del flow
    value, scale = needed(values, 0), given(values, 1)
    plain(node, values[1:], "scales")
    # Blocked quantisation, since opset 21.
    if scale is not None and scale.rank > 1:
        msg = "it has a scale for each block of elements"
        raise Unclear(msg)
    if scale is not None and scale.rank == 1 and scale.dims != (ONE,):
        along(node, value, [at(node.attributes.get("axis", 1), value.rank)])
    return value.same()


_MOST = 1 << 31
"""Integers beyond are not computed with: they could overflow."""

_MOST_NUMBERS = 256
"""Tensors with more elements are not computed."""


def _plus(one: Number, other: Number) -> Number:
    if not isinstance(one, Size) or not isinstance(other, Size):
        return None
    if one.number == 0 or other.number == 0:
        return other if one.number == 0 else one
    # 2*n + 3*n is 5*n; n + m is no product, and nothing here can hold it.
    if one.letters == other.letters:
        return times(Size(one.number + other.number), Size(1, one.letters))
    return None


def _minus(one: Number, other: Number) -> Number:
    if one is not None and one == other:
        return Size(0)
    negative = Size(-other.number, other.letters) if isinstance(other, Size) else None
    return _plus(one, negative)


def _product(one: Number, other: Number) -> Number:
    if isinstance(one, Size) and isinstance(other, Size):
        return times(one, other)
    return None


def _quotient(one: Number, other: Number) -> Number:
    if not isinstance(one, Size) or not isinstance(other, Size):
        return None
    exact = over(one, other)
    if exact is None and not one.letters and not other.letters and other.number:
        quotient = abs(one.number) // abs(other.number)  # towards 0, as integers are divided
        return Size(quotient if (one.number < 0) == (other.number < 0) else -quotient)
    return exact


def _remainder(one: Number, other: Number) -> Number:
    if not isinstance(one, Size) or not isinstance(other, Size) or not other.number:
        return None
    if one.letters or other.letters:
        return Size(0) if over(one, other) is not None else None
    return Size(one.number % other.number)


def _equal(one: Number, other: Number) -> Number:
    if not isinstance(one, Size) or not isinstance(other, Size):
        return None
    if one == other:
        return Size(1)
    # A length is never negative, so it differs from any number that is; and from one of which it
    # would be no whole part.
    if not one.letters or not other.letters:
        fixed, size = (one, other) if not one.letters else (other, one)
        if not size.letters or fixed.number < 0 < size.number or fixed.number % size.number:
            return Size(0)
    return None


def _least(one: Number, other: Number) -> Number:
    return _chosen(one, other, min)


def _greatest(one: Number, other: Number) -> Number:
    return _chosen(one, other, max)


def _chosen(one: Number, other: Number, choose: Callable[[int, int], int]) -> Number:
    if one is not None and one == other:
        return one
    if not isinstance(one, Size) or not isinstance(other, Size) or one.letters or other.letters:
        return None
    return Size(choose(one.number, other.number))


def counted(shape: Sizes | None, numbers: Sequence[Number] | None, *, counts: bool) -> RowTensor:
    """Return a tensor of lengths; it counts rows if one of its `numbers` does, or may do so."""
    if numbers is None:
        return RowTensor(shape, counts=counts)
    if all(isinstance(one, Size) for one in numbers):
        counts = any(isinstance(one, Size) and one.has_batch for one in numbers)
    return RowTensor(shape, numbers=tuple(numbers), counts=counts)


def _of_lengths(compute: Callable[[Number, Number], Number]) -> Rule:
    def rule(flow: RowFlow, node: RowNode, values: Sequence[RowTensor | None]) -> RowTensor:
        taken = [value for value in values if value is not None]
        result = broadcast(flow, node, *taken)
        if result.axis is not None or any(value.numbers is None for value in taken):
            return result
        rows = aligned(taken)
        # With fmod the sign is that of the dividend, as in C; Python's, and ours, is the divisor's.
        if rows is None or node.attributes.get("fmod", 0):
            return result
        numbers = rows[0]
        for others in rows[1:]:
            both = zip(numbers, others, strict=True)
            numbers = [_in_range(compute(one, other)) for one, other in both]
        return counted(result.shape, numbers, counts=result.counts)

    return rule


def _in_range(number: Number) -> Number:
    is_out = isinstance(number, Size) and abs(number.number) >= _MOST
    return None if is_out else number


def aligned(values: Sequence[RowTensor]) -> list[list[Number]] | None:
    """Return the numbers of each as those of all broadcast together, None if not all are known."""
    grids = [grid_of(value) for value in values]
    if any(grid is None for grid in grids):
        return None
    shape = np.broadcast_shapes(*(grid.shape for grid in grids))
    # Lengths and axes are a handful; computing with larger constants would slow the load down.
    if prod(shape) > _MOST_NUMBERS:
        return None
    return [np.broadcast_to(grid, shape).ravel().tolist() for grid in grids]


def _where(flow: RowFlow, node: RowNode, values: Sequence[RowTensor | None]) -> RowTensor:
    condition, one, other = (needed(values, n) for n in range(3))
    if condition.axis is None and not condition.counts:
        chosen = _chosen_by(condition, one, other)
        if chosen is not None:
            return chosen
    return broadcast(flow, node, condition, one, other)


def _chosen_by(condition: RowTensor, one: RowTensor, other: RowTensor) -> RowTensor | None:
    rows = aligned((condition, one, other))
    if rows is None:
        return None
    picked: list[Number] = []
    for which, yes, no in zip(*rows, strict=True):
        if which is None:
            picked.append(None)
        else:
            picked.append(yes if which != Size(0) else no)
    shapes = [[size.number for size in each.dims] for each in (condition, one, other)]
    shape = tuple(Size(number) for number in np.broadcast_shapes(*shapes))
    return counted(shape, picked, counts=one.counts or other.counts)


RULES: dict[tuple[str, str], Rule] = {
    **{("", name): _unary for name in _UNARY},
    **{("", name): _broadcasting for name in _BROADCASTING},
    ("", "Identity"): _unchanged,
    ("", "Cast"): _cast,
    # CastLike has no attribute `to`: what it makes counts as no length.
    ("", "CastLike"): _cast,
    ("", "Clip"): _clip,
    ("", "Dropout"): _dropout,
    ("", "QuantizeLinear"): _quantized,
    ("", "DequantizeLinear"): _quantized,
    ("", "Add"): _of_lengths(_plus),
    ("", "Sub"): _of_lengths(_minus),
    ("", "Mul"): _of_lengths(_product),
    ("", "Div"): _of_lengths(_quotient),
    ("", "Mod"): _of_lengths(_remainder),
    ("", "Equal"): _of_lengths(_equal),
    ("", "Min"): _of_lengths(_least),
    ("", "Max"): _of_lengths(_greatest),
    ("", "Where"): _where,
}
