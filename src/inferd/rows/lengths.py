"""Rules of operators that tell or compute lengths, and that make tensors of them."""

from collections.abc import Sequence
from dataclasses import replace

from inferd.formats.onnx_graph import Constant, RowNode
from inferd.rows.elementwise import counted
from inferd.rows.flow import RowFlow, RowTensors, Rule, constant_value
from inferd.rows.size import ONE, B, Size, over, times
from inferd.rows.value import (
    RowTensor,
    Unclear,
    integers_of,
    mixes,
    needed,
    shown,
    sizes_of,
)

# As many as a tensor has dims at most: what is longer is no list of lengths.
_MOST_NUMBERS = 64


def _constant(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    del values, flow
    attributes = node.attributes
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


def _shape(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    value = needed(values, 0)
    dims = value.dims
    start, end = node.attributes.get("start", 0), node.attributes.get("end", len(dims))
    del flow
    # Slices of Python clamp and count from the end as Shape's start and end do (opset 15).
    found = dims[start:end]
    return counted((Size(len(found)),), _lengths(value, found), counts=value.counts)


def _lengths(value: RowTensor, sizes: Sequence[Size]) -> list[Size | None]:
    """Return some dims of `value`. Those of what was made of the number of rows may hold that."""
    return [None if value.counts and size.letters else size for size in sizes]


def _size(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    del flow, node
    value = needed(values, 0)
    return counted((), _lengths(value, [times(*value.dims)]), counts=value.counts)


def made_by(flow: RowFlow, node: RowNode, lengths: RowTensor) -> RowTensor:
    """Return a tensor of equal elements with the dims `lengths`."""
    sizes = sizes_of(lengths)
    if sizes is None:
        if lengths.counts:
            msg = "the dims of the tensor it makes are not known"
            raise Unclear(msg)
        count = lengths.shape and integers_of(RowTensor((), numbers=lengths.shape))
        return RowTensor(flow.letters(count[0]) if count and 0 <= count[0] < 64 else None)
    grown = [n for n, size in enumerate(sizes) if size.has_batch]
    if len(grown) > 1:
        msg = f"{shown(tuple(sizes))} has the batch in several dims"
        raise Unclear(msg)
    if not grown:
        return RowTensor(tuple(sizes))
    inner = over(sizes[grown[0]], B)
    if inner is None or inner.has_batch:
        msg = "its size grows with the square of the batch"
        raise Unclear(msg)
    return RowTensor(tuple(sizes), grown[0], ONE, inner)


def _constant_of_shape(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    lengths = needed(values, 0)
    if lengths.axis is not None:
        raise mixes(node, "makes a tensor as large as the rows say")
    made = made_by(flow, node, lengths)
    if made.axis is None and made.shape is not None and len(made.shape) <= 1:
        filled = node.attributes.get("value")
        # Zero is ConstantOfShape's default value.
        numbers = filled.numbers if isinstance(filled, Constant) else (0,)
        count = made.shape[0] if made.shape else ONE
        if numbers and not count.letters and 0 <= count.number <= _MOST_NUMBERS:
            one = numbers[0]
            each = one if isinstance(one, float) else Size(int(one))
            return replace(made, numbers=(each,) * count.number)
    return made


def _range(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    if any(value is not None and value.axis is not None for value in values):
        raise mixes(node, "makes a tensor as long as the rows say")
    bounds = [sizes_of(value) for value in values]
    # arange(batch): how PyTorch's exporters write "each row's own place", as in x[arange(n), i].
    if bounds == [[Size(0)], [B], [ONE]]:
        return RowTensor((B,), 0, is_place=True)
    if any(value is not None and value.counts for value in values):
        msg = "it counts to a number that depends on the number of rows"
        raise Unclear(msg)
    if len(bounds) == 3 and bounds[0] == [Size(0)] and bounds[2] == [ONE] and bounds[1]:
        return RowTensor((bounds[1][0],))
    return RowTensor((flow.letter(),))


RULES: dict[tuple[str, str], Rule] = {
    ("", "Constant"): _constant,
    ("", "ConstantOfShape"): _constant_of_shape,
    ("", "Range"): _range,
    ("", "Shape"): _shape,
    ("", "Size"): _size,
}
