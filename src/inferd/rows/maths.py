"""Rules of operators that compute along dims: products of matrices, sums, normalisation."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from inferd.formats.onnx_graph import RowNode
from inferd.rows.elementwise import broadcast, check_beside, counted
from inferd.rows.flow import RowFlow, RowTensors, Rule
from inferd.rows.size import ONE, Size, Sizes, times
from inferd.rows.value import (
    RowTensor,
    Unclear,
    along,
    at,
    given,
    integers_of,
    mixes,
    needed,
    plain,
    side_by_side,
)


def product(flow: RowFlow, node: RowNode, one: RowTensor, other: RowTensor) -> RowTensor:
    """Return what MatMul makes of two tensors (numpy.matmul)."""
    if one.is_plain and other.is_plain and None in (one.shape, other.shape):
        return RowTensor(None)
    is_row, is_column = one.rank == 1, other.rank == 1
    # As numpy.matmul: a vector is a matrix with one row, or one column, whose dim goes again.
    if is_row:
        one = _with_dim(one, 0)
    if is_column:
        other = _with_dim(other, other.rank)
    # The dims that are summed along.
    for value, place in ((one, one.rank - 1), (other, other.rank - 2)):
        along(node, value, [place])
    # Rows of the first or columns of the second: then the product
    # has a number for each pair of rows.
    crosses = one.axis == one.rank - 2 or other.axis == other.rank - 1
    if one.axis is not None and other.axis is not None and crosses:
        raise flow.crossing(node, one, other)
    # Two tensors of which the last two dims are dealt with: the others are broadcast.
    left, right = (_outer(value) for value in (one, other))
    stacked = broadcast(flow, node, left, right)
    shape = (*stacked.dims[:-2], one.dims[-2], other.dims[-1])
    whole = one if one.axis is not None else other
    axis = stacked.axis
    if one.axis == one.rank - 2:
        axis = len(shape) - 2
    elif other.axis == other.rank - 1:
        axis = len(shape) - 1
    result = replace(whole.shaped(shape, axis), sources=flow.join(one, other))
    return _without_dims(result, row=is_row, column=is_column)


def _with_dim(value: RowTensor, place: int) -> RowTensor:
    dims = list(value.dims)
    dims.insert(place, ONE)
    axis = value.axis
    return value.shaped(tuple(dims), axis if axis is None or axis < place else axis + 1)


def _outer(value: RowTensor) -> RowTensor:
    """Return `value` with the last two dims 1, and without the batch if it lies there."""
    axis = value.axis if value.axis is not None and value.axis < value.rank - 2 else None
    return RowTensor(
        (*value.dims[:-2], ONE, ONE),
        axis,
        value.outer if axis is not None else ONE,
        value.inner if axis is not None else ONE,
        sources=value.sources if axis is not None else frozenset(),
    )


def _without_dims(value: RowTensor, *, row: bool, column: bool) -> RowTensor:
    dims, axis = list(value.dims), value.axis
    if column:
        del dims[-1]
    if row:
        place = len(dims) - (1 if column else 2)
        del dims[place]
        if axis is not None and axis > place:
            axis -= 1
    return value.shaped(tuple(dims), axis)


def _matmul(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    plain(node, values[2:], "zero points")
    return product(flow, node, needed(values, 0), needed(values, 1))


def _quantized_matmul(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    plain(node, (*values[1:3], *values[4:]), "scales")
    return product(flow, node, needed(values, 0), needed(values, 3))


def _turned(value: RowTensor, *, is_turned: bool) -> RowTensor:
    if not is_turned:
        return value
    dims = list(value.dims)
    dims[-2:] = reversed(dims[-2:])
    swapped = {len(dims) - 2: len(dims) - 1, len(dims) - 1: len(dims) - 2}
    axis = value.axis
    return value.shaped(tuple(dims), None if axis is None else swapped.get(axis, axis))


def _gemm(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    one, other = (
        _turned(needed(values, n), is_turned=bool(node.attributes.get(name, 0)))
        for n, name in enumerate(("transA", "transB"))
    )
    result = product(flow, node, one, other)
    added = given(values, 2)
    return result if added is None else broadcast(flow, node, result, added)


def _fused_matmul(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    if node.attributes.get("transBatchA", 0) or node.attributes.get("transBatchB", 0):
        msg = "its transposed batches are not known"
        raise Unclear(msg)
    one, other = (
        _turned(needed(values, n), is_turned=bool(node.attributes.get(name, 0)))
        for n, name in enumerate(("transA", "transB"))
    )
    return product(flow, node, one, other)


def _einsum(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    text = str(node.attributes.get("equation", "")).replace(" ", "")
    terms, arrow, result = text.partition("->")
    taken = [value for value in values if value is not None]
    letters = terms.split(",")
    # Without an arrow the result's dims are sorted by letter; no exporter writes that.
    if not arrow or "." in text or len(letters) != len(taken):
        msg = f"the equation '{text[:50]}' is not known"
        raise Unclear(msg)
    lengths: dict[str, Size] = {}
    for term, value in zip(letters, taken, strict=True):
        if len(term) != value.rank:
            msg = f"'{term[:50]}' does not name the {value.rank} dims of an input"
            raise Unclear(msg)
        for letter, size in zip(term, value.dims, strict=True):
            # A dim of 1 is broadcast against the other inputs' dim of the same letter.
            lengths[letter] = size if lengths.get(letter, ONE) == ONE else lengths[letter]
    shape = tuple(lengths.get(letter, ONE) for letter in result)
    return _summed(flow, node, list(zip(letters, taken, strict=True)), result, shape)


def _summed(
    flow: RowFlow, node: RowNode, terms: list[tuple[str, RowTensor]], result: str, shape: Sizes
) -> RowTensor:
    """Return the result of an einsum, whose dims have the letters `result`."""
    rows = [(term, value) for term, value in terms if value.axis is not None]
    if not rows:
        return RowTensor(shape)
    batch = {term[value.axis or 0] for term, value in rows}
    values = [value for _, value in rows]
    if len(batch) > 1:
        raise flow.crossing(node, *values)
    [letter] = batch
    # A letter that the result lacks is summed along (numpy.einsum).
    if letter not in result:
        raise mixes(node, "sums along the batch")
    if any(term.count(letter) > 1 for term, _ in rows):
        raise mixes(node, "takes a diagonal through the batch")
    first = side_by_side(values)
    for term, value in terms:
        if value.axis is None and letter in term and value.dims[term.index(letter)] != ONE:
            check_beside(node, value.dims[term.index(letter)])
    whole = first.shaped(shape, result.index(letter))
    return replace(whole, sources=flow.join(*values))


def _axes(flow: RowFlow, node: RowNode, values: RowTensors, rank: int) -> list[int]:
    """Return the dims that a reduction removes."""
    del flow
    axes = node.attributes.get("axes")
    if axes is None and given(values, 1) is not None:
        axes = integers_of(given(values, 1))
        if axes is None:
            msg = "its axes are not known"
            raise Unclear(msg)
    if not axes:
        # No axes mean all of them, unless the attribute (opset 18) says that they mean none.
        return [] if node.attributes.get("noop_with_empty_axes", 0) else list(range(rank))
    return [at(axis, rank) for axis in axes]


def _reduced(node: RowNode, value: RowTensor, axes: Sequence[int]) -> RowTensor:
    along(node, value, axes)
    keeps = node.attributes.get("keepdims", 1)
    shape, axis = [], value.axis
    for n, size in enumerate(value.dims):
        if n not in axes:
            shape.append(size)
        elif keeps:
            shape.append(ONE)
        elif value.axis is not None and n < value.axis:
            axis = (axis or 0) - 1
    return value.shaped(tuple(shape), axis)


def _reduce(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    value = needed(values, 0)
    axes = _axes(flow, node, values, value.rank)
    # How exporters compute the number of elements for a reshape.
    if node.op == "ReduceProd" and value.numbers is not None and value.axis is None and axes:
        known = [one for one in value.numbers if isinstance(one, Size)]
        if len(known) == len(value.numbers) and value.rank == 1:
            shape = (ONE,) if node.attributes.get("keepdims", 1) else ()
            return counted(shape, [times(*known)], counts=False)
    return _reduced(node, value, axes)


def _arg(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    del flow
    value = needed(values, 0)
    return _reduced(node, value, [at(node.attributes.get("axis", 0), value.rank)])


def _top_k(flow: RowFlow, node: RowNode, values: RowTensors) -> Sequence[RowTensor]:
    value = needed(values, 0)
    axis = at(node.attributes.get("axis", -1), value.rank)
    along(node, value, [axis])
    count = given(values, 1)
    if count is not None and not count.is_plain:
        raise mixes(node, "takes as many as the rows say")
    # k was an attribute before opset 10.
    known = integers_of(count) or ([node.attributes["k"]] if "k" in node.attributes else None)
    length = Size(known[0]) if known else flow.letter()
    shape = (*value.dims[:axis], length, *value.dims[axis + 1 :])
    # Values and indices, of one shape.
    return [value.shaped(shape, value.axis)] * 2


def _cumulative(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    del flow
    value, axes = needed(values, 0), integers_of(given(values, 1))
    if not axes:
        if value.is_plain:
            return value.same()
        msg = "its axis is not known"
        raise Unclear(msg)
    along(node, value, [at(axes[0], value.rank)])
    return value.same()


def _softmax(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    value = needed(values, 0)
    if flow.opset < 13:
        # Before opset 13, Softmax worked on everything from axis on as one line.
        start = at(node.attributes.get("axis", 1), value.rank) if value.rank > 1 else 0
        along(node, value, range(start, value.rank))
    else:
        along(node, value, [at(node.attributes.get("axis", -1), value.rank)])
    return value.same()


def _from_axis_on(usual: int) -> Callable[[RowFlow, RowNode, RowTensors], Sequence[RowTensor]]:
    """Return the rule of what normalises all dims from `axis` on, with weights."""

    def rule(flow: RowFlow, node: RowNode, values: RowTensors) -> Sequence[RowTensor]:
        value = needed(values, 0)
        plain(node, values[1:], "weights")
        start = at(node.attributes.get("axis", usual), value.rank)
        along(node, value, range(start, value.rank))
        if any(one is not None and one.rank > value.rank - start for one in values[1:]):
            msg = "its weights have more dims than it normalises"
            raise Unclear(msg)
        # Mean and inverse deviation, one for all that is normalised together.
        stats = value.shaped((*value.dims[:start], *[ONE] * (value.rank - start)), value.axis)
        del flow
        return [value.same(), *[stats] * (len(node.outputs) - 1)]

    return rule


def _along(attribute: str, usual: int) -> Callable[[RowFlow, RowNode, RowTensors], RowTensor]:
    """Return the rule of what works along one dim, which `attribute` names."""

    def rule(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
        del flow
        value = needed(values, 0)
        plain(node, values[1:], "weights")
        along(node, value, [at(node.attributes.get(attribute, usual), value.rank)])
        return value.same()

    return rule


def _mean_variance(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    del flow
    value = needed(values, 0)
    # The default normalises over the batch, too (ONNX, MeanVarianceNormalization).
    axes = node.attributes.get("axes") or [0, 2, 3]
    along(node, value, [at(axis, value.rank) for axis in axes])
    return value.same()


def _batch_normalization(flow: RowFlow, node: RowNode, values: RowTensors) -> Sequence[RowTensor]:
    value = needed(values, 0)
    plain(node, values[1:], "weights")
    is_training = node.attributes.get("training_mode", 0) or (
        # Until opset 6, it was in training mode unless is_test was set.
        0 < flow.opset < 7 and not node.attributes.get("is_test", 0)
    )
    if is_training and value.axis is not None:
        raise mixes(node, "is in training mode: it takes the mean of the whole batch")
    # Weights are by channel, which dim 1 is: rows there would each have weights of their own.
    along(node, value, [1])
    if len([name for name in node.outputs if name]) > 1:
        msg = "its further outputs are not known"
        raise Unclear(msg)
    return [value.same()]


def _per_image(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    """Normalises what lies in dim 1 and behind it, for each of dim 0."""
    del flow
    value = needed(values, 0)
    plain(node, values[1:], "weights")
    first = 2 if node.op == "InstanceNormalization" else 1
    along(node, value, range(first, value.rank))
    if node.op == "InstanceNormalization":
        along(node, value, [1])  # its weights are by channel
    return value.same()


_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip

RULES: dict[tuple[str, str], Rule] = {
    **{("", name): _reduce for name in _REDUCTIONS},
    ("", "ArgMax"): _arg,
    ("", "ArgMin"): _arg,
    ("", "BatchNormalization"): _batch_normalization,
    ("", "CumSum"): _cumulative,
    ("", "CumProd"): _cumulative,
    ("", "Einsum"): _einsum,
    ("", "Gemm"): _gemm,
    ("", "GroupNormalization"): _per_image,
    ("", "Hardmax"): _softmax,
    ("", "InstanceNormalization"): _per_image,
    ("", "LRN"): _along("", 1),
    ("", "LayerNormalization"): _from_axis_on(-1),
    ("", "LogSoftmax"): _softmax,
    ("", "LpNormalization"): _along("axis", -1),
    ("", "MatMul"): _matmul,
    ("", "MatMulInteger"): _matmul,
    ("", "MeanVarianceNormalization"): _mean_variance,
    ("", "QLinearMatMul"): _quantized_matmul,
    ("", "RMSNormalization"): _from_axis_on(-1),
    ("", "Softmax"): _softmax,
    ("", "TopK"): _top_k,
    ("com.microsoft", "FusedMatMul"): _fused_matmul,
    ("com.microsoft", "FusedGemm"): _gemm,
    ("", "SimplifiedLayerNormalization"): _from_axis_on(-1),
}
