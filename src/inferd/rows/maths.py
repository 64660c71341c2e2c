"""Rules of operators that compute along dims: products of matrices, sums, normalisation."""

from collections.abc import Sequence

from inferd.rows.elementwise import broadcast, check_beside, counted
from inferd.rows.flow import MICROSOFT, RowCall, Rule, Rules, named
from inferd.rows.value import ONE, RowTensor, Size, Sizes, at, side_by_side, times


def product(call: RowCall, one: RowTensor, other: RowTensor) -> RowTensor:
    """Return what MatMul makes of two tensors (numpy.matmul)."""
    if one.is_plain and other.is_plain and None in (one.shape, other.shape):
        return RowTensor(None)
    is_row, is_column = one.rank == 1, other.rank == 1
    # As numpy.matmul: a vector is a matrix with one row, or one column, whose dim goes again.
    if is_row:
        one = one.widened(0, ONE)
    if is_column:
        other = other.widened(1, ONE)
    # The dims that are summed along.
    for value, place in ((one, one.rank - 1), (other, other.rank - 2)):
        call.along(value, [place])
    # Rows of the first or columns of the second: then the product
    # has a number for each pair of rows.
    crosses = one.axis == one.rank - 2 or other.axis == other.rank - 1
    if one.axis is not None and other.axis is not None and crosses:
        call.crosses(one, other)
    # Two tensors of which the last two dims are dealt with: the others are broadcast.
    left, right = (_outer(value) for value in (one, other))
    stacked = broadcast(call, left, right)
    shape = (*stacked.dims[:-2], one.dims[-2], other.dims[-1])
    whole = one if one.axis is not None else other
    axis = stacked.axis
    if one.axis == one.rank - 2:
        axis = len(shape) - 2
    elif other.axis == other.rank - 1:
        axis = len(shape) - 1
    result = call.joined(whole.shaped(shape, axis), one, other)
    sides = ((result.rank - 2, is_row), (result.rank - 1, is_column))
    return result.narrowed([dim for dim, is_gone in sides if is_gone])


def _outer(value: RowTensor) -> RowTensor:
    """Return `value` with the last two dims 1, and without the batch if it lies there."""
    shape = (*value.dims[:-2], ONE, ONE)
    if value.axis is None or value.axis >= value.rank - 2:
        return RowTensor(shape)
    return RowTensor(shape, value.axis, value.outer, value.inner, sources=value.sources)


def _matmul(call: RowCall) -> RowTensor:
    call.plain(call.values[2:], "zero points")
    return product(call, call.needed(0), call.needed(1))


def _quantized_matmul(call: RowCall) -> RowTensor:
    call.plain((*call.values[1:3], *call.values[4:]), "scales")
    return product(call, call.needed(0), call.needed(3))


def _turned(value: RowTensor, *, is_turned: bool) -> RowTensor:
    if not is_turned:
        return value
    dims = list(value.dims)
    dims[-2:] = reversed(dims[-2:])
    swapped = {len(dims) - 2: len(dims) - 1, len(dims) - 1: len(dims) - 2}
    axis = value.axis
    return value.shaped(tuple(dims), None if axis is None else swapped.get(axis, axis))


def _turned_product(call: RowCall) -> RowTensor:
    one, other = (
        _turned(call.needed(n), is_turned=call.flag(name))
        for n, name in enumerate(("transA", "transB"))
    )
    return product(call, one, other)


def _gemm(call: RowCall) -> RowTensor:
    result = _turned_product(call)
    added = call.given(2)
    return result if added is None else broadcast(call, result, added)


def _fused_matmul(call: RowCall) -> RowTensor:
    if call.flag("transBatchA") or call.flag("transBatchB"):
        call.unclear("its transposed batches are not known")
    return _turned_product(call)


def _einsum(call: RowCall) -> RowTensor:
    text = str(call.attribute("equation", "")).replace(" ", "")
    terms, arrow, result = text.partition("->")
    taken = call.taken
    letters = terms.split(",")
    # Without an arrow the result's dims are sorted by letter; no exporter writes that.
    if not arrow or "." in text or len(letters) != len(taken):
        call.unclear(f"the equation '{text[:50]}' is not known")
    lengths: dict[str, Size] = {}
    for term, value in zip(letters, taken, strict=True):
        if len(term) != value.rank:
            call.unclear(f"'{term[:50]}' does not name the {value.rank} dims of an input")
        for letter, size in zip(term, value.dims, strict=True):
            # A dim of 1 is broadcast against the other inputs' dim of the same letter.
            lengths[letter] = size if lengths.get(letter, ONE) == ONE else lengths[letter]
    shape = tuple(lengths.get(letter, ONE) for letter in result)
    return _summed(call, list(zip(letters, taken, strict=True)), result, shape)


def _summed(
    call: RowCall, terms: list[tuple[str, RowTensor]], result: str, shape: Sizes
) -> RowTensor:
    """Return the result of an einsum, whose dims have the letters `result`."""
    rows = [(term, value) for term, value in terms if value.axis is not None]
    if not rows:
        return RowTensor(shape)
    batch = {term[value.axis or 0] for term, value in rows}
    values = [value for _, value in rows]
    if len(batch) > 1:
        call.crosses(*values)
    [letter] = batch
    # A letter that the result lacks is summed along (numpy.einsum).
    if letter not in result:
        call.mixes("sums along the batch")
    if any(term.count(letter) > 1 for term, _ in rows):
        call.mixes("takes a diagonal through the batch")
    first = side_by_side(values)
    for term, value in terms:
        if value.axis is None and letter in term and value.dims[term.index(letter)] != ONE:
            check_beside(call, value.dims[term.index(letter)])
    whole = first.shaped(shape, result.index(letter))
    return call.joined(whole, *values)


def _axes(call: RowCall, rank: int) -> list[int]:
    """Return the dims that a reduction removes."""
    axes = call.axes(1)
    if not axes:
        # No axes mean all of them, unless the attribute (opset 18) says that they mean none.
        return [] if call.flag("noop_with_empty_axes") else list(range(rank))
    return [at(axis, rank) for axis in axes]


def _reduced(call: RowCall, value: RowTensor, axes: Sequence[int]) -> RowTensor:
    call.along(value, axes)
    if not call.flag("keepdims", default=True):
        return value.narrowed(axes)
    shape = tuple(ONE if n in axes else size for n, size in enumerate(value.dims))
    return value.shaped(shape, value.axis)


def _reduce(call: RowCall) -> RowTensor:
    value = call.needed(0)
    axes = _axes(call, value.rank)
    # How exporters compute the number of elements for a reshape.
    if call.node.op == "ReduceProd" and value.numbers is not None and value.axis is None and axes:
        known = [one for one in value.numbers if isinstance(one, Size)]
        if len(known) == len(value.numbers) and value.rank == 1:
            shape = (ONE,) if call.flag("keepdims", default=True) else ()
            return counted(shape, [times(*known)], counts=False)
    return _reduced(call, value, axes)


def _arg(call: RowCall) -> RowTensor:
    value = call.needed(0)
    return _reduced(call, value, [call.axis(value, 0)])


def _top_k(call: RowCall) -> Sequence[RowTensor]:
    value = call.needed(0)
    axis = call.axis(value, -1)
    call.along(value, [axis])
    count = call.given(1)
    if count is not None and not count.is_plain:
        call.mixes("takes as many as the rows say")
    # k was an attribute before opset 10.
    known = (call.integers(1) or [call.attribute("k")])[0]
    # Values and indices, of one shape.
    return [value.resized(axis, call.flow.letter() if known is None else Size(known))] * 2


def _cumulative(call: RowCall) -> RowTensor:
    value, axes = call.needed(0), call.integers(1)
    if not axes:
        if value.is_plain:
            return value.same()
        call.unclear("its axis is not known")
    call.along(value, [at(axes[0], value.rank)])
    return value.same()


def softmax(call: RowCall, start: int, opset: int) -> RowTensor:
    """Return what the Softmax of an opset makes, along the dim `start`."""
    value = call.needed(0)
    # Before opset 13, it worked on everything from axis on as one line.
    call.along(value, range(start, value.rank) if opset < 13 else [start])
    return value.same()


def _softmax(call: RowCall) -> RowTensor:
    value, opset = call.needed(0), call.flow.opset
    is_line = opset < 13 and value.rank < 2
    start = 0 if is_line else call.axis(value, 1 if opset < 13 else -1)
    return softmax(call, start, opset)


def _layer_normalization(call: RowCall) -> Sequence[RowTensor]:
    """Normalises all dims from `axis` on, with weights."""
    value = call.kept()
    start = call.axis(value, -1)
    call.along(value, range(start, value.rank))
    if any(one is not None and one.rank > value.rank - start for one in call.values[1:]):
        call.unclear("its weights have more dims than it normalises")
    # Mean and inverse deviation, one for all that is normalised together.
    stats = value.shaped((*value.dims[:start], *[ONE] * (value.rank - start)), value.axis)
    return [value, *[stats] * (len(call.node.outputs) - 1)]


def _working_along(attribute: str, usual: int) -> Rule:
    """Return the rule of what works along one dim, which `attribute` names."""

    def rule(call: RowCall) -> RowTensor:
        value = call.kept()
        call.along(value, [call.axis(value, usual, attribute)])
        return value

    return rule


def _mean_variance(call: RowCall) -> RowTensor:
    value = call.needed(0)
    # The default normalises over the batch, too (ONNX, MeanVarianceNormalization).
    axes = call.attribute("axes") or [0, 2, 3]
    call.along(value, [at(axis, value.rank) for axis in axes])
    return value.same()


def _batch_normalization(call: RowCall) -> Sequence[RowTensor]:
    value = call.needed(0)
    call.plain(call.values[1:], "weights")
    is_training = call.flag("training_mode") or (
        # Until opset 6, it was in training mode unless is_test was set.
        0 < call.flow.opset < 7 and not call.flag("is_test")
    )
    if is_training and value.axis is not None:
        call.mixes("is in training mode: it takes the mean of the whole batch")
    # Weights are by channel, which dim 1 is: rows there would each have weights of their own.
    call.along(value, [1])
    if len([name for name in call.node.outputs if name]) > 1:
        call.unclear("its further outputs are not known")
    return [value.same()]


def _per_image(call: RowCall) -> RowTensor:
    """Normalises what lies in dim 1 and behind it, for each of dim 0."""
    # InstanceNormalization works behind dim 1, but its weights are by channel, which that is.
    return call.kept(1)


_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip


RULES: Rules = {
    **named(_reduce, *_REDUCTIONS),
    **named(_arg, "ArgMax", "ArgMin"),
    **named(_batch_normalization, "BatchNormalization"),
    **named(_cumulative, "CumSum", "CumProd"),
    **named(_einsum, "Einsum"),
    **named(_gemm, "Gemm"),
    **named(_per_image, "GroupNormalization", "InstanceNormalization"),
    **named(_softmax, "Hardmax", "LogSoftmax", "Softmax"),
    **named(_working_along("", 1), "LRN"),
    **named(_layer_normalization, "LayerNormalization", "RMSNormalization"),
    **named(_layer_normalization, "SimplifiedLayerNormalization"),
    **named(_working_along("axis", -1), "LpNormalization"),
    **named(_matmul, "MatMul", "MatMulInteger"),
    **named(_mean_variance, "MeanVarianceNormalization"),
    **named(_quantized_matmul, "QLinearMatMul"),
    **named(_top_k, "TopK"),
    **named(_fused_matmul, "FusedMatMul", domain=MICROSOFT),
    **named(_gemm, "FusedGemm", domain=MICROSOFT),
}
