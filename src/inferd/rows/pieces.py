"""Rules of operators that take tensors apart and put them together."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from inferd.formats.onnx_graph import RowNode
from inferd.rows.elementwise import check_beside, counted
from inferd.rows.flow import RowFlow, RowTensors, Rule
from inferd.rows.size import ONE, B, Size, over, times
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
    plain,
    shown,
    side_by_side,
    sizes_of,
)

_MOST_NUMBERS = 256
_FAR = 1 << 30
"""Exporters write "to the end" as a number beyond this."""


def concat(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    """Return tensors joined along a dim, or whole batches one behind another. Raises Mixed."""
    taken = [value for value in values if value is not None]
    ranks = {value.rank for value in taken}
    if len(ranks) != 1:
        msg = "its inputs have different numbers of dims"
        raise Unclear(msg)
    [rank] = ranks
    # Concat's axis had a default of 1 until opset 3; since then the attribute is required.
    axis = at(node.attributes.get("axis", 1 if flow.opset < 4 else 0), rank)
    rows = [value for value in taken if value.axis is not None]
    if not rows:
        return _concatenated(flow, taken, axis)
    if any(value.axis == axis for value in rows):
        return _behind(flow, node, taken, axis)
    if any(value.is_place for value in taken[1:]) or (
        # GatherND takes pairs of a place and what to find there, so the place may only be first.
        taken[0].is_place and (axis != rank - 1 or taken[0].dims[axis] != ONE)
    ):
        raise mixes(node, "computes with the places of rows in the batch")
    if any(value.counts for value in taken):
        raise mixes(node, "puts the number of rows beside data")
    if len({value.axis for value in rows}) > 1:
        raise flow.crossing(node, *rows)
    first = side_by_side(rows)
    for value in taken:
        if value.axis is None:
            check_beside(node, value.dims[first.axis or 0])
            raise mixes(node, "takes one fixed row beside those of the batch")
    shape = list(first.dims)
    shape[axis] = _sum(flow, [value.dims[axis] for value in taken])
    return replace(first.shaped(tuple(shape), first.axis), sources=flow.join(*rows))


def _behind(flow: RowFlow, node: RowNode, taken: Sequence[RowTensor], axis: int) -> RowTensor:
    """Return whole batches one behind the other along their batch dim."""
    outer = Size(0)
    for value in taken:
        whole = outer if value.outer.letters else Size(outer.number + value.outer.number)
        if value.axis != axis or value.is_place or value.inner != taken[0].inner or whole == outer:
            # Whole batches of one kind can be told apart again; a batch
            # behind some fixed rows cannot.
            raise mixes(node, f"puts rows behind others along dim {axis}, the batch")
        outer = whole
    shape = list(taken[0].dims)
    shape[axis] = times(outer, B, taken[0].inner)
    sources = flow.join(*taken)
    return replace(taken[0].shaped(tuple(shape), axis), outer=outer, sources=sources)


def _parts(
    node: RowNode, value: RowTensor, count: int, wanted: list[Size] | None
) -> list[RowTensor] | None:
    """Return the whole batches that a split along the batch dim makes, None if it makes others."""
    assert value.axis is not None
    unit, outer = times(B, value.inner), value.outer
    if wanted is None:
        each = None if outer.letters else over(outer, Size(count))
        outers = [each] * count
    else:
        outers = [over(size, unit) for size in wanted]
    found = [one for one in outers if one is not None and not one.letters and one.number > 0]
    if len(found) != count or sum(one.number for one in found) != outer.number or outer.letters:
        return None
    made = []
    for one in found:
        shape = list(value.dims)
        shape[value.axis] = times(one, unit)
        made.append(replace(value.shaped(tuple(shape), value.axis), outer=one))
    return made


def _concatenated(flow: RowFlow, taken: Sequence[RowTensor], axis: int) -> RowTensor:
    shape = list(taken[0].dims)
    shape[axis] = _sum(flow, [value.dims[axis] for value in taken])
    counts = any(value.counts for value in taken)
    if len(shape) > 1 or any(value.numbers is None for value in taken):
        return RowTensor(tuple(shape), counts=counts)
    numbers = [number for value in taken for number in value.numbers or ()]
    is_small = len(numbers) <= _MOST_NUMBERS
    return counted(tuple(shape), numbers if is_small else None, counts=counts)


def _sum(flow: RowFlow, sizes: Sequence[Size]) -> Size:
    letters = {size.letters for size in sizes}
    # 2*n + 3*n is 5*n; other sums are no products.
    if len(letters) == 1:
        return Size(sum(size.number for size in sizes), letters.pop())
    return flow.letter()


def _split(flow: RowFlow, node: RowNode, values: RowTensors) -> Sequence[RowTensor]:
    value = needed(values, 0)
    axis = at(node.attributes.get("axis", 0), value.rank)
    count = len(node.outputs)
    if axis == value.axis:
        wanted = None if given(values, 1) is None else sizes_of(given(values, 1)) or []
        # Split lengths in the file are numbers, which no multiple of the batch is.
        batches = None if "split" in node.attributes else _parts(node, value, count, wanted)
        if batches is not None:
            return batches
    plain(node, values[1:], "lengths")
    along(node, value, [axis])
    parts = node.attributes.get("split") or integers_of(given(values, 1))
    if parts and len(parts) == count:
        sizes = [Size(one) for one in parts]
    else:
        # Without lengths, all parts are alike (ONNX, Split).
        even = over(value.dims[axis], Size(count)) if given(values, 1) is None else None
        sizes = [even or flow.letter() for _ in range(count)]
    starts = [sum(one.number for one in sizes[:n]) for n in range(count)]
    made = []
    for start, size in zip(starts, sizes, strict=True):
        shape = (*value.dims[:axis], size, *value.dims[axis + 1 :])
        part = value.shaped(shape, value.axis)
        if value.numbers is not None and value.rank == 1 and not size.letters:
            numbers = value.numbers[start : start + size.number]
            part = counted(shape, numbers, counts=value.counts)
        made.append(part)
    return made


def _slice(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    value = needed(values, 0)
    # Slice had its bounds as attributes until opset 9, then as inputs.
    if flow.opset < 10:
        starts: list[Size | None] = [Size(one) for one in node.attributes.get("starts", [])]
        ends: list[Size | None] = [Size(one) for one in node.attributes.get("ends", [])]
        axes = node.attributes.get("axes") or list(range(len(starts)))
        steps = [1] * len(axes)
    else:
        for one in values[1:]:
            if one is not None and one.axis is not None:
                raise mixes(node, "takes a piece that the rows say")
        length = given(values, 1)
        count = (
            integers_of(RowTensor((), numbers=length.shape)) if length and length.shape else None
        )
        axes = _axes_of_slice(values, count[0] if count else None)
        starts, ends = (_bounds(values, n, len(axes)) for n in (1, 2))
        steps = integers_of(given(values, 4)) or [1] * len(axes)
        if given(values, 4) is not None and integers_of(given(values, 4)) is None:
            steps = [0] * len(axes)  # not known
    shape = list(value.dims)
    grid = grid_of(value)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        place = at(axis, value.rank)
        # Exporters slice all dims, most of them from the beginning to the end.
        if start == Size(0) and step == 1 and _is_end(end, value.dims[place]):
            continue
        if place == value.axis:
            value = _batches(node, value, start, end, step)
            shape[place] = value.dims[place]
            continue
        if value.axis is not None:
            _check_bounds(node, values, (start, end))
        shape[place] = _length(flow, value.dims[place], start, end, step)
        grid = _piece(grid, place, start, end, step)
    if grid is not None:
        return counted(tuple(shape), grid.ravel().tolist(), counts=value.counts)
    return value.shaped(tuple(shape), value.axis)


def _batches(
    node: RowNode, value: RowTensor, start: Size | None, end: Size | None, step: int
) -> RowTensor:
    """Return some of the whole batches that lie one behind the other. Raises Mixed for others."""
    assert value.axis is not None
    unit, whole = times(B, value.inner), value.dims[value.axis]
    first = Size(0) if start == Size(0) else over(start, unit) if start is not None else None
    last = value.outer if _is_end(end, whole) else over(end, unit) if end is not None else None
    if first is not None and last is not None and step == 1 and not value.outer.letters:
        is_number = not first.letters and not last.letters
        if is_number and 0 <= first.number < last.number <= value.outer.number:
            shape, outer = list(value.dims), Size(last.number - first.number)
            shape[value.axis] = times(outer, unit)
            return replace(value.shaped(tuple(shape), value.axis), outer=outer)
    raise mixes(node, f"takes some of the rows along dim {value.axis}, the batch")


def _check_bounds(node: RowNode, values: RowTensors, bounds: Sequence[Size | None]) -> None:
    """Raise Mixed if the number of rows may say where a piece begins or ends."""
    is_open = any(one is None or one.has_batch for one in bounds)
    if is_open and any(one is not None and one.counts for one in values[1:]):
        raise mixes(node, "takes a piece that the number of rows says")


def _axes_of_slice(values: RowTensors, count: int | None) -> list[int]:
    if given(values, 3) is not None:
        axes = integers_of(given(values, 3))
        if axes is None:
            msg = "its axes are not known"
            raise Unclear(msg)
        return axes
    if count is None:
        msg = "its axes are not known"
        raise Unclear(msg)
    return list(range(count))


def _bounds(values: RowTensors, index: int, count: int) -> list[Size | None]:
    value = needed(values, index)
    if value.numbers is None or len(value.numbers) != count:
        return [None] * count
    return [one if isinstance(one, Size) else None for one in value.numbers]


def _is_end(end: Size | None, size: Size) -> bool:
    return end is not None and (end == size or (not end.letters and end.number >= _FAR))


def _length(flow: RowFlow, size: Size, start: Size | None, end: Size | None, step: int) -> Size:
    fixed = [start, Size(_FAR) if end is not None and _is_end(end, size) else end]
    if size.letters or step == 0 or any(one is None or one.letters for one in fixed):
        found = flow.letter()
        if start == Size(0) and step == 1 and end is not None and end.letters and end.number > 0:
            # x[:, :n]: in tables of positions, n is the length of the text that they are added to.
            flow.ends[found] = end
        return found
    first, last = (one.number for one in fixed if one is not None)
    return Size(len(range(*slice(first, last, step).indices(size.number))))


def _piece(grid: Any, place: int, start: Size | None, end: Size | None, step: int) -> Any:
    if grid is None or start is None or end is None or start.letters or end.letters or not step:
        return None
    last: int | None = end.number
    # Python would take a large negative end for one within the list.
    if step < 0 and end.number < -_FAR:
        last = None  # to the beginning
    return grid[(slice(None),) * place + (slice(start.number, last, step),)]


def _pad(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    value = needed(values, 0)
    plain(node, values[2:3], "values to fill with")
    # Pad-1 called its attribute paddings; since opset 11 it is an input.
    pads = node.attributes.get("pads") or node.attributes.get("paddings")
    said, places = given(values, 1), given(values, 3)
    if pads is None:
        pads = integers_of(said)
    axes = integers_of(places)
    if said is not None and said.axis is not None:
        raise mixes(node, "fills as much as the rows say")
    if pads is None or (places is not None and axes is None):
        known = sizes_of(said)
        if value.axis is None or known is None or axes is not None:
            if value.is_plain:
                return RowTensor(flow.letters(value.rank))
            msg = "how much it fills is not known"
            raise Unclear(msg)
        pads = [one.number if not one.letters else None for one in known]
    axes = list(range(value.rank)) if axes is None else [at(axis, value.rank) for axis in axes]
    if len(pads) != 2 * len(axes):
        msg = f"{len(pads)} numbers do not say how much it fills at both ends of {len(axes)} dims"
        raise Unclear(msg)
    shape = list(value.dims)
    for place, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        # PyTorch's exporter names all dims, with zeros for those that stay.
        if before == 0 and after == 0:
            continue
        # Filled along the batch, rows would move.
        along(node, value, [place])
        if None in (before, after) and any(one is not None and one.counts for one in values):
            raise mixes(node, "fills as much as the number of rows says")
        size = shape[place]
        is_known = not size.letters and before is not None and after is not None
        shape[place] = Size(size.number + before + after) if is_known else flow.letter()
    return value.shaped(tuple(shape), value.axis)


def _one_hot(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    indices, depth = needed(values, 0), needed(values, 1)
    plain(node, values[1:], "depths or values")
    axis = at(node.attributes.get("axis", -1), indices.rank + 1)
    shape = list(indices.dims)
    known = sizes_of(depth)
    shape.insert(axis, known[0] if known and len(known) == 1 else flow.letter())
    moved = indices.axis
    if moved is not None and moved >= axis:
        moved += 1
    return indices.shaped(tuple(shape), moved)


def _trilu(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    del flow
    value = needed(values, 0)
    plain(node, values[1:], "diagonals")
    along(node, value, [value.rank - 2, value.rank - 1])
    return value.same()


def _depth_to_space(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    del flow
    value = needed(values, 0)
    along(node, value, [1, 2, 3])
    size = node.attributes.get("blocksize", 1)
    n, depth, height, width = value.dims
    square, side = Size(size * size), Size(size)
    shape: tuple[Size | None, ...]
    if node.op == "DepthToSpace":
        shape = (n, over(depth, square), times(height, side), times(width, side))
    else:
        shape = (n, times(depth, square), over(height, side), over(width, side))
    if any(one is None for one in shape):
        msg = f"{shown(value.dims)} cannot be divided by {size}"
        raise Unclear(msg)
    return value.shaped(tuple(one for one in shape if one is not None), value.axis)


def _eye_like(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    del flow
    value = needed(values, 0)
    if value.is_plain:
        return RowTensor(value.shape)
    raise mixes(node, "makes a matrix that numbers the rows")


RULES: dict[tuple[str, str], Rule] = {
    ("", "Concat"): concat,
    ("", "DepthToSpace"): _depth_to_space,
    ("", "EyeLike"): _eye_like,
    ("", "OneHot"): _one_hot,
    ("", "Pad"): _pad,
    ("", "Slice"): _slice,
    ("", "SpaceToDepth"): _depth_to_space,
    ("", "Split"): _split,
    ("", "Trilu"): _trilu,
}
