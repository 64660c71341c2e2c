"""Rules of operators that read from tensors, or write to them, by places."""

from dataclasses import replace

from inferd.formats.onnx_graph import RowNode
from inferd.rows.elementwise import counted
from inferd.rows.flow import RowFlow, RowTensors, Rule
from inferd.rows.size import ONE, B
from inferd.rows.value import RowTensor, Unclear, along, at, integers_of, mixes, needed


def _gather(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    data, indices = needed(values, 0), needed(values, 1)
    axis = at(node.attributes.get("axis", 0), data.rank)
    # Picking lengths out of a shape, which exporters do all the time.
    if data.numbers is not None and data.rank == 1:
        chosen = integers_of(indices)
        if chosen is not None and all(-len(data.numbers) <= n < len(data.numbers) for n in chosen):
            return counted(indices.shape, [data.numbers[n] for n in chosen], counts=data.counts)
    if indices.is_place or data.is_place:
        return _own_row(flow, node, data, indices, axis)
    if indices.counts or (data.counts and indices.axis is not None):
        raise mixes(node, "looks up the number of rows")
    along(node, data, [axis])
    shape = (*data.dims[:axis], *indices.dims, *data.dims[axis + 1 :])
    if indices.axis is None:
        moved = data.axis
        if moved is not None and moved > axis:
            # The dims of the indices stand where the one that is picked from stood.
            moved += indices.rank - 1
        return data.shaped(shape, moved)
    # Each row's indices into each row's data: one result for each pair.
    if data.axis is not None:
        raise flow.crossing(node, data, indices)
    return indices.shaped(shape, axis + indices.axis)


def _own_row(
    flow: RowFlow, node: RowNode, data: RowTensor, indices: RowTensor, dim: int
) -> RowTensor:
    """Return what each row finds of `data` at its own place along `dim`."""
    is_batch = data.axis == dim and (data.outer, data.inner) == (ONE, ONE) and not data.is_place
    if not is_batch or not indices.is_place or indices.dims != (B,):
        raise mixes(node, "looks up the places of rows in the batch")
    return replace(data.same(), sources=flow.join(data, indices))


def _gather_elements(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    data, indices = needed(values, 0), needed(values, 1)
    axis = at(node.attributes.get("axis", 0), data.rank)
    for value in (data, indices):
        along(node, value, [axis])
    if data.is_plain and indices.is_plain:
        return RowTensor(indices.shape)
    layout = {(value.axis, value.outer, value.inner) for value in (data, indices)}
    if len(layout) > 1:
        msg = "its inputs do not both have the rows along the same dim"
        raise Unclear(msg)
    return replace(data.shaped(indices.dims, data.axis), sources=flow.join(data, indices))


def _gather_nd(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    data, indices = needed(values, 0), needed(values, 1)
    batch_dims = node.attributes.get("batch_dims", 0)
    last = indices.dims[-1]
    if last.letters:
        msg = "the length of its indices is not known"
        raise Unclear(msg)
    # The last dim of the indices says where to look, the rest how often (ONNX, GatherND).
    shape = (*indices.dims[:-1], *data.dims[batch_dims + last.number :])
    if indices.is_place or data.is_place:
        is_batch = data.axis == 0 and (data.outer, data.inner) == (ONE, ONE) and not data.is_place
        if batch_dims or not is_batch or indices.axis != 0 or indices.rank < 2:
            raise mixes(node, "looks up the places of rows in the batch")
        return replace(indices.shaped(shape, 0), sources=flow.join(data, indices), is_place=False)
    if data.axis is None:
        along(node, indices, [*range(batch_dims), indices.rank - 1])
        return indices.shaped(shape, indices.axis)
    if data.axis >= batch_dims + last.number:
        if indices.axis is not None:
            raise flow.crossing(node, data, indices)
        return data.shaped(shape, data.axis - batch_dims - last.number + indices.rank - 1)
    if data.axis >= batch_dims:
        raise mixes(node, f"looks up rows by number along dim {data.axis}, the batch")
    layout = {(value.axis, value.outer, value.inner) for value in (data, indices)}
    if len(layout) > 1:
        msg = "its inputs do not both have the rows along the same dim"
        raise Unclear(msg)
    return replace(data.shaped(shape, data.axis), sources=flow.join(data, indices))


def _scatter_elements(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    data, indices, updates = (needed(values, n) for n in range(3))
    axis = at(node.attributes.get("axis", 0), data.rank)
    for value in (data, indices, updates):
        along(node, value, [axis])
    layout = {(value.axis, value.outer, value.inner) for value in (data, indices, updates)}
    if len(layout) > 1:
        msg = "its inputs do not all have the rows along the same dim"
        raise Unclear(msg)
    return replace(data.same(), sources=flow.join(data, indices, updates))


def _scatter_nd(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    del flow
    data = needed(values, 0)
    if all(value is None or value.is_plain for value in values):
        return data.same()
    # Which rows is what the indices say, and two of them may say the same.
    raise mixes(node, "writes to rows by number")


RULES: dict[tuple[str, str], Rule] = {
    ("", "Gather"): _gather,
    ("", "GatherElements"): _gather_elements,
    ("", "GatherND"): _gather_nd,
    ("", "Scatter"): _scatter_elements,
    ("", "ScatterElements"): _scatter_elements,
    ("", "ScatterND"): _scatter_nd,
}
