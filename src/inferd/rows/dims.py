"""Rules of operators that change, repeat or rearrange dims."""

from dataclasses import replace

from inferd.formats.onnx_graph import RowNode
from inferd.rows.elementwise import broadcast, check_beside
from inferd.rows.flow import RowFlow, RowTensors, Rule
from inferd.rows.lengths import made_by
from inferd.rows.size import BATCH, ONE, B, Size, Sizes, over, times
from inferd.rows.value import (
    RowTensor,
    Unclear,
    along,
    at,
    given,
    grid_of,
    integers_of,
    mixes,
    needed,
    shown,
    sizes_of,
)


def laid(node: RowNode, value: RowTensor, shape: Sizes) -> RowTensor:
    """Return `value` with its elements in the same order, in `shape`. Raises Mixed, Unclear."""
    if value.axis is None:
        return replace(value, shape=shape)
    grown = [n for n, size in enumerate(shape) if size.has_batch]
    if not grown:
        raise mixes(node, f"makes {shown(shape)} of any number of rows")
    # A batch of 4 as [2, 2] has no dim along which its rows lie.
    if len(grown) > 1:
        msg = f"{shown(shape)} has the batch in several dims"
        raise Unclear(msg)
    axis = grown[0]
    inner = over(value.after, times(*shape[axis + 1 :]))
    outer = over(value.before, times(*shape[:axis]))
    # Row-major order stays, so rows are whole pieces again only if what lies before and behind
    # the batch divides evenly by the new dims there.
    if inner is None or outer is None or times(outer, B, inner) != shape[axis]:
        what = f"makes {shown(shape)} of {shown(value.dims)}"
        # With an unknown length, it may divide all the same; with numbers alone it is sure not to.
        if any(set(size.letters) - {BATCH} for size in (*shape, *value.dims)):
            msg = f"it is not known where rows begin where it {what}"
            raise Unclear(msg)
        raise mixes(node, f"{what}: rows would begin anywhere")
    return replace(value, shape=shape, axis=axis, outer=outer, inner=inner, numbers=None)


def _reshape(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    value = needed(values, 0)
    target = given(values, 1)
    wanted: list[Size] | None
    # Reshape-1, before opset 5, had the shape as an attribute.
    if "shape" in node.attributes:
        wanted = [Size(one) for one in node.attributes["shape"]]
    else:
        wanted = sizes_of(target)
        if target is not None and target.axis is not None:
            raise mixes(node, "makes a tensor of dims that the rows say")
    if wanted is None:
        if value.is_plain and target is not None and target.is_plain:
            # The shape's own length tells the rank, though not the dims.
            length = integers_of(RowTensor((), numbers=target.shape)) if target.shape else None
            # NumPy has no more than 64 dims; a file may claim any number.
            return RowTensor(flow.letters(length[0]) if length and 0 <= length[0] < 64 else None)
        msg = "the dims it makes are not known"
        raise Unclear(msg)
    keeps_zero = bool(node.attributes.get("allowzero", 0))
    shape = _resolved(flow, node, value, wanted, keeps_zero=keeps_zero)
    if value.axis is None:
        if any(size.has_batch for size in shape) and value.is_plain:
            msg = "it gives a tensor that is the same for all rows as many dims as there are rows"
            raise Unclear(msg)
        return replace(value, shape=shape)
    return laid(node, value, shape)


def _resolved(
    flow: RowFlow, node: RowNode, value: RowTensor, wanted: list[Size], *, keeps_zero: bool
) -> Sizes:
    """Return `wanted` with 0 and -1 replaced by the lengths that they mean."""
    found: list[Size | None] = []
    for n, size in enumerate(wanted):
        # Reshape: 0 copies the dim at its place, unless allowzero is set (ONNX, Reshape).
        if size == Size(0) and not keeps_zero:
            if n >= value.rank:
                msg = f"0 copies dim {n}, which is not there"
                raise Unclear(msg)
            found.append(value.dims[n])
        else:
            found.append(None if size == Size(-1) else size)
    missing = [n for n, one in enumerate(found) if one is None]
    if not missing:
        return tuple(one for one in found if one is not None)
    if value.shape is None:
        return tuple(flow.letter() if one is None else one for one in found)
    # -1 is whatever is left, so that it is known where the rest is.
    rest = over(times(*value.shape), times(*(one for one in found if one is not None)))
    if len(missing) > 1 or rest is None:
        if value.axis is None:
            return tuple(flow.letter() if one is None else one for one in found)
        what = f"makes {shown(tuple(wanted))} of {shown(value.shape)}"
        if all(set(size.letters) <= {BATCH} for size in (*wanted, *value.shape)):
            raise mixes(node, f"{what}: rows would begin anywhere")
        msg = f"it is not known where rows begin where it {what}"
        raise Unclear(msg)
    return tuple(rest if one is None else one for one in found)


def _flatten(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    del flow
    value = needed(values, 0)
    axis = node.attributes.get("axis", 1)
    # Not by `at`: axis may be the rank itself, and then all dims go into the first (ONNX, Flatten).
    axis = axis + value.rank if axis < 0 else axis
    return laid(node, value, (times(*value.dims[:axis]), times(*value.dims[axis:])))


def _axes(node: RowNode, values: RowTensors, index: int = 1) -> list[int] | None:
    """Return the axes of an operator, an attribute or an input; None if there are none."""
    if "axes" in node.attributes:
        # Squeeze and Unsqueeze took axes as an attribute before opset 13.
        axes = node.attributes["axes"]
        return list(axes) if isinstance(axes, list) else [axes]
    value = given(values, index)
    if value is None:
        return None
    axes = integers_of(value)
    if axes is None:
        msg = "its axes are not known"
        raise Unclear(msg)
    return axes


def _squeeze(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    del flow
    value = needed(values, 0)
    axes = _axes(node, values)
    if axes is None:
        if value.axis is not None:
            raise mixes(node, "names no axes: of a single row it would take the batch dim away")
        if any(size.letters for size in value.dims):
            return RowTensor(None, counts=value.counts)
        axes = [n for n, size in enumerate(value.dims) if size == ONE]
    gone = {at(axis, value.rank) for axis in axes}
    along(node, value, gone)
    shape = tuple(size for n, size in enumerate(value.dims) if n not in gone)
    axis = value.axis
    # `and` keeps both None, and 0: nothing can have gone before dim 0.
    return replace(value, shape=shape, axis=axis and axis - sum(n < axis for n in gone))


def _unsqueeze(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    del flow
    value = needed(values, 0)
    axes = _axes(node, values)
    if axes is None:
        msg = "it has no axes"
        raise Unclear(msg)
    # Axes of Unsqueeze are those of the result.
    rank = value.rank + len(axes)
    new = {at(axis, rank) for axis in axes}
    places = [n for n in range(rank) if n not in new]
    if len(places) != value.rank:
        msg = f"its axes {axes} are not different dims"
        raise Unclear(msg)
    shape = [ONE] * rank
    for place, size in zip(places, value.dims, strict=True):
        shape[place] = size
    return replace(
        value, shape=tuple(shape), axis=None if value.axis is None else places[value.axis]
    )


def _transpose(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    del flow
    value = needed(values, 0)
    # Without perm, Transpose reverses the dims.
    order = node.attributes.get("perm") or list(range(value.rank))[::-1]
    if sorted(order) != list(range(value.rank)):
        msg = f"{order} is no order of {value.rank} dims"
        raise Unclear(msg)
    shape = tuple(value.dims[n] for n in order)
    grid = grid_of(value)
    numbers = None if grid is None else tuple(grid.transpose(order).ravel().tolist())
    return replace(
        value,
        shape=shape,
        axis=None if value.axis is None else order.index(value.axis),
        numbers=numbers,
    )


def _expand(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    value, lengths = needed(values, 0), needed(values, 1)
    if lengths.axis is not None:
        raise mixes(node, "makes a tensor of dims that the rows say")
    if value.is_plain and lengths.is_plain and sizes_of(lengths) is None:
        return RowTensor(None)
    if sizes_of(lengths) is None:
        msg = "the dims it makes are not known"
        raise Unclear(msg)
    made = made_by(flow, node, lengths)
    if value.is_place:
        if value.shape != made.shape:
            raise mixes(node, "repeats the places of rows in the batch")
        return value
    # Expanded to the number of rows: from here on, the same tensor lies there for each of them.
    if made.axis is not None and value.axis is None and not value.counts:
        place = made.rank - made.axis
        if value.rank >= place and value.dims[value.rank - place] != ONE:
            check_beside(node, value.dims[value.rank - place])
        shape = broadcast(flow, node, replace(made, axis=None), replace(value, counts=False)).shape
        return replace(made, shape=shape, axis=len(shape or ()) - place)
    return broadcast(flow, node, value, made)


def _tile(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    value = needed(values, 0)
    repeats = sizes_of(needed(values, 1))
    if repeats is None or len(repeats) != value.rank:
        if all(one is None or one.is_plain for one in values):
            return RowTensor(flow.letters(value.rank))
        msg = "how often it repeats is not known"
        raise Unclear(msg)
    shape = tuple(times(*both) for both in zip(value.dims, repeats, strict=True))
    if value.axis is not None:
        if any(one.has_batch for one in repeats):
            raise mixes(node, "repeats rows as often as there are rows")
        if repeats[value.axis] != ONE:
            raise mixes(node, "repeats the whole batch")
        return value.shaped(shape, value.axis)
    grown = [n for n, one in enumerate(repeats) if one.has_batch]
    if not grown:
        return value.shaped(shape)
    if value.counts:
        raise mixes(node, "gives each row the number of rows")
    if len(grown) > 1 or over(repeats[grown[0]], B) != ONE:
        msg = "it repeats along several dims as often as there are rows"
        raise Unclear(msg)
    # The tensor as a whole is repeated, so each row has all of that dim one behind the other.
    return RowTensor(shape, grown[0], ONE, value.dims[grown[0]])


RULES: dict[tuple[str, str], Rule] = {
    ("", "Expand"): _expand,
    ("", "Flatten"): _flatten,
    ("", "Reshape"): _reshape,
    ("", "Squeeze"): _squeeze,
    ("", "Tile"): _tile,
    ("", "Transpose"): _transpose,
    ("", "Unsqueeze"): _unsqueeze,
}
