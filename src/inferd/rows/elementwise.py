"""Rules of operators that work on each element of tensors, and of those that tell lengths."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from inferd.formats.onnx_graph import Constant
from inferd.rows.flow import MICROSOFT, ML, RowCall, RowFlow, Rule, Rules, constant_value, named
from inferd.rows.value import ONE, B, RowTensor, Size, Sizes, over, shown, side_by_side, times

Number = Size | float | None

_UNARY = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Celu", "Cos",
    "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "IsInf", "IsNaN",
    "LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Shrink",
    "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh",
    "ThresholdedRelu", "RegexFullMatch",
)  # fmt: skip

_MICROSOFT_UNARY = ("Gelu", "QLinearLeakyRelu", "QLinearSigmoid", "QuickGelu")

_BROADCASTING = (
    "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Clip", "Greater",
    "GreaterOrEqual", "Less", "LessOrEqual", "Mean", "Or", "Pow", "PRelu", "StringConcat", "Sum",
    "Xor",
)  # fmt: skip


def broadcast(call: RowCall, *values: RowTensor) -> RowTensor:
    """Return what an operator makes of `values`, aligned at their last dims."""
    rows = [value for value in values if value.axis is not None]
    counts = any(value.counts for value in values)
    if not rows:
        shapes = [value.shape for value in values]
        known = [shape for shape in shapes if shape is not None]
        shape = _broadcast_shape(call.flow, known) if len(known) == len(shapes) else None
        return RowTensor(shape, counts=counts)
    if counts:
        call.mixes("computes with the number of rows")
    # Counted from the end, as broadcasting aligns shapes there.
    places = {value.rank - (value.axis or 0) for value in rows}
    if len(places) > 1:
        call.crosses(*rows)
    first = side_by_side(rows)
    [place] = places
    for value in values:
        if value.axis is None and value.rank >= place:
            beside = value.dims[value.rank - place]
            if beside != ONE:
                check_beside(call, beside)
    shape = _broadcast_shape(call.flow, [value.dims for value in values])
    sources = call.flow.join(*rows)
    return RowTensor(shape, len(shape) - place, first.outer, first.inner, sources=sources)


def check_beside(call: RowCall, size: Size) -> None:
    """Raise an error for a dim of `size` that lies beside the batch without growing with it."""
    if not size.letters:
        call.mixes(f"takes {size} fixed rows beside those of the batch")
    call.unclear(f"it is not known whether {size} rows beside those of the batch are 1")


def _broadcast_shape(flow: RowFlow, shapes: Sequence[Sizes]) -> Sizes:
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


def _unary(call: RowCall) -> RowTensor:
    return call.kept(others="parameters")


def _broadcasting(call: RowCall) -> RowTensor:
    return broadcast(call, *call.taken)


def _unchanged(call: RowCall) -> RowTensor:
    return call.needed(0)


_FLOATS, _INTEGERS, _BOOL = (1, 11), (6, 7), 9
"""TensorProto.DataType of the floats and integers that hold the lengths of tensors exactly."""


def _cast(call: RowCall) -> RowTensor:
    value, to = call.needed(0), call.attribute("to")
    # FP32 holds whole numbers up to 2**24 alone: places in larger batches would become others.
    if value.is_place and to not in _INTEGERS:
        call.mixes("computes with the places of rows in the batch")
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


def _dropout(call: RowCall) -> Sequence[RowTensor]:
    value = call.needed(0)
    if len(call.values) > 2 and call.values[2] is not None and call.values[2].numbers != (Size(0),):
        call.mixes("draws random numbers, for training")
    # Until opset 6, Dropout was in training mode unless is_test was set.
    if 0 < call.flow.opset < 7 and not call.flag("is_test"):
        call.mixes("draws random numbers, for training")
    return [value.same()] * len(call.node.outputs)


def _quantized(call: RowCall) -> RowTensor:
    value, scale = call.needed(0), call.given(1)
    call.plain(call.values[1:], "scales")
    # Blocked quantisation, since opset 21.
    if scale is not None and scale.rank > 1:
        call.unclear("it has a scale for each block of elements")
    if scale is not None and scale.rank == 1 and scale.dims != (ONE,):
        call.along(value, [call.axis(value, 1)])
    return value.same()


_MOST = 1 << 31
"""Integers beyond are not computed with: they could overflow."""

_MOST_NUMBERS = 256
"""Tensors with more elements are not computed."""


def _plus(one: Size, other: Size) -> Size | None:
    if one.number == 0 or other.number == 0:
        return other if one.number == 0 else one
    # 2*n + 3*n is 5*n; n + m is no product, and nothing here can hold it.
    if one.letters == other.letters:
        return times(Size(one.number + other.number), Size(1, one.letters))
    return None


def _minus(one: Size, other: Size) -> Size | None:
    return _plus(one, Size(-other.number, other.letters))


def _quotient(one: Size, other: Size) -> Size | None:
    exact = over(one, other)
    if exact is None and not one.letters and not other.letters and other.number:
        quotient = abs(one.number) // abs(other.number)  # towards 0, as integers are divided
        return Size(quotient if (one.number < 0) == (other.number < 0) else -quotient)
    return exact


def _remainder(one: Size, other: Size) -> Size | None:
    if not other.number:
        return None
    if one.letters or other.letters:
        return Size(0) if over(one, other) is not None else None
    return Size(one.number % other.number)


def _equal(one: Size, other: Size) -> Size | None:
    if one == other:
        return Size(1)
    # A length is never negative, so it differs from any number that is; and from one of which it
    # would be no whole part.
    if not one.letters or not other.letters:
        fixed, size = (one, other) if not one.letters else (other, one)
        if not size.letters or fixed.number < 0 < size.number or fixed.number % size.number:
            return Size(0)
    return None


def _chosen(choose: Callable[[int, int], int], one: Size, other: Size) -> Size | None:
    return None if one.letters or other.letters else Size(choose(one.number, other.number))


def counted(shape: Sizes | None, numbers: Sequence[Number] | None, *, counts: bool) -> RowTensor:
    """Return a tensor of lengths; it counts rows if one of its `numbers` does, or may do so."""
    if numbers is None:
        return RowTensor(shape, counts=counts)
    if all(isinstance(one, Size) for one in numbers):
        counts = any(isinstance(one, Size) and one.has_batch for one in numbers)
    return RowTensor(shape, numbers=tuple(numbers), counts=counts)


def _of_lengths(
    compute: Callable[[Size, Size], Size | None],
    of_equal: Callable[[Number], Number] | None = None,
) -> Rule:
    """Return the rule of what computes lengths so; of equal numbers, also others, by `of_equal`."""

    def computed(one: Number, other: Number) -> Number:
        made: Number = None
        if of_equal is not None and one is not None and one == other:
            made = of_equal(one)
        elif isinstance(one, Size) and isinstance(other, Size):
            made = compute(one, other)
        return None if isinstance(made, Size) and abs(made.number) >= _MOST else made

    def rule(call: RowCall) -> RowTensor:
        taken = call.taken
        result = broadcast(call, *taken)
        if result.axis is not None or any(value.numbers is None for value in taken):
            return result
        rows = aligned(taken)
        # With fmod the sign is that of the dividend, as in C; Python's, and ours, is the divisor's.
        if rows is None or call.flag("fmod"):
            return result
        numbers = rows[0]
        for others in rows[1:]:
            both = zip(numbers, others, strict=True)
            numbers = [computed(one, other) for one, other in both]
        return counted(result.shape, numbers, counts=result.counts)

    return rule


def aligned(values: Sequence[RowTensor]) -> list[list[Number]] | None:
    """Return the numbers of each as those of all broadcast together, None if not all are known."""
    grids = [value.grid() for value in values]
    if any(grid is None for grid in grids):
        return None
    shape = np.broadcast_shapes(*(grid.shape for grid in grids))
    # Lengths and axes are a handful; computing with larger constants would slow the load down.
    if prod(shape) > _MOST_NUMBERS:
        return None
    return [np.broadcast_to(grid, shape).ravel().tolist() for grid in grids]


def _where(call: RowCall) -> RowTensor:
    condition, one, other = (call.needed(n) for n in range(3))
    if condition.axis is None and not condition.counts:
        chosen = _chosen_by(condition, one, other)
        if chosen is not None:
            return chosen
    return broadcast(call, condition, one, other)


def _chosen_by(condition: RowTensor, one: RowTensor, other: RowTensor) -> RowTensor | None:
    rows = aligned((condition, one, other))
    if rows is None:
        return None
    picked: list[Number] = []
    for which, yes, no in zip(*rows, strict=True):
        known = yes if which != Size(0) else no
        picked.append(None if which is None else known)
    shapes = [[size.number for size in each.dims] for each in (condition, one, other)]
    shape = tuple(Size(number) for number in np.broadcast_shapes(*shapes))
    return counted(shape, picked, counts=one.counts or other.counts)


# NumPy has no more dims: what is longer is no list of lengths. A file may claim any number.
_MOST_DIMS = 64


def _constant(call: RowCall) -> RowTensor:
    attributes = call.node.attributes
    value = attributes.get("value")
    if isinstance(value, Constant):
        return constant_value(value)
    for name in ("value_int", "value_float", "value_ints", "value_floats"):
        if name in attributes:
            one = attributes[name]
            listed = one if isinstance(one, list) else [one]
            shape = (Size(len(listed)),) if isinstance(one, list) else ()
            numbers = tuple(each if isinstance(each, float) else Size(each) for each in listed)
            return RowTensor(shape, numbers=numbers)
    return RowTensor(None)


def _shape(call: RowCall) -> RowTensor:
    value = call.needed(0)
    dims = value.dims
    start, end = call.attribute("start", 0), call.attribute("end", len(dims))
    # Slices of Python clamp and count from the end as Shape's start and end do (opset 15).
    found = dims[start:end]
    return counted((Size(len(found)),), _lengths(value, found), counts=value.counts)


def _lengths(value: RowTensor, sizes: Sequence[Size]) -> list[Size | None]:
    """Return some dims of `value`. Those of what was made of the number of rows may hold that."""
    return [None if value.counts and size.letters else size for size in sizes]


def _size(call: RowCall) -> RowTensor:
    value = call.needed(0)
    return counted((), _lengths(value, [times(*value.dims)]), counts=value.counts)


def ranked_by(call: RowCall, lengths: RowTensor) -> RowTensor:
    """Return a tensor of which `lengths`, not known, tell no more than the number of dims."""
    count = lengths.count()
    is_rank = count is not None and 0 <= count < _MOST_DIMS
    return RowTensor(call.flow.letters(count or 0) if is_rank else None)


def made_by(call: RowCall, lengths: RowTensor) -> RowTensor:
    """Return a tensor of equal elements with the dims `lengths`."""
    sizes = lengths.sizes()
    if sizes is None:
        if lengths.counts:
            call.unclear("the dims of the tensor it makes are not known")
        return ranked_by(call, lengths)
    grown = [n for n, size in enumerate(sizes) if size.has_batch]
    if len(grown) > 1:
        call.unclear(f"{shown(tuple(sizes))} has the batch in several dims")
    if not grown:
        return RowTensor(tuple(sizes))
    inner = over(sizes[grown[0]], B)
    if inner is None or inner.has_batch:
        call.unclear("its size grows with the square of the batch")
    return RowTensor(tuple(sizes), grown[0], ONE, inner)


def _constant_of_shape(call: RowCall) -> RowTensor:
    lengths = call.needed(0)
    if lengths.axis is not None:
        call.mixes("makes a tensor as large as the rows say")
    made = made_by(call, lengths)
    if made.axis is None and made.shape is not None and len(made.shape) <= 1:
        filled = call.attribute("value")
        # Zero is ConstantOfShape's default value.
        numbers = filled.numbers if isinstance(filled, Constant) else (0,)
        count = made.shape[0] if made.shape else ONE
        if numbers and not count.letters and 0 <= count.number <= _MOST_DIMS:
            one = numbers[0]
            each = one if isinstance(one, float) else Size(int(one))
            return replace(made, numbers=(each,) * count.number)
    return made


def _range(call: RowCall) -> RowTensor:
    if any(value.axis is not None for value in call.taken):
        call.mixes("makes a tensor as long as the rows say")
    bounds = [call.sizes(n) for n in range(len(call.values))]
    # arange(batch): how PyTorch's exporters write "each row's own place", as in x[arange(n), i].
    if bounds == [[Size(0)], [B], [ONE]]:
        return RowTensor((B,), 0, is_place=True)
    if any(value.counts for value in call.taken):
        call.unclear("it counts to a number that depends on the number of rows")
    if len(bounds) == 3 and bounds[0] == [Size(0)] and bounds[2] == [ONE] and bounds[1]:
        return RowTensor((bounds[1][0],))
    return RowTensor((call.flow.letter(),))


RULES: Rules = {
    **named(_unary, *_UNARY),
    **named(_unary, "Binarizer", "CategoryMapper", "LabelEncoder", domain=ML),
    **named(_unary, *_MICROSOFT_UNARY, domain=MICROSOFT),
    **named(_broadcasting, *_BROADCASTING),
    **named(_broadcasting, "BiasGelu", "FastGelu", domain=MICROSOFT),
    **named(_unchanged, "Identity"),
    # CastLike has no attribute `to`: what it makes counts as no length.
    **named(_cast, "Cast", "CastLike"),
    **named(_dropout, "Dropout"),
    **named(_quantized, "QuantizeLinear", "DequantizeLinear"),
    **named(_of_lengths(_plus), "Add"),
    **named(_of_lengths(_minus, lambda _: Size(0)), "Sub"),
    **named(_of_lengths(times), "Mul"),
    **named(_of_lengths(_quotient), "Div"),
    **named(_of_lengths(_remainder), "Mod"),
    **named(_of_lengths(_equal), "Equal"),
    **named(_of_lengths(partial(_chosen, min), lambda one: one), "Min"),
    **named(_of_lengths(partial(_chosen, max), lambda one: one), "Max"),
    **named(_where, "Where"),
    **named(_constant, "Constant"),
    **named(_constant_of_shape, "ConstantOfShape"),
    **named(_range, "Range"),
    **named(_shape, "Shape"),
    **named(_size, "Size"),
}
