"""Rules of operators that take tensors apart, by pieces or places, and put them together."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from inferd.rows.elementwise import check_beside, counted
from inferd.rows.flow import RowCall, RowFlow, Rules, named
from inferd.rows.value import ONE, B, RowTensor, Size, at, over, shown, side_by_side, times

_MOST_NUMBERS = 256
_FAR = 1 << 30
"""Exporters write "to the end" as a number beyond this."""


def concat(call: RowCall) -> RowTensor:
    """Return tensors joined along a dim, or whole batches one behind another. Raises Mixed."""
    taken = call.taken
    ranks = {value.rank for value in taken}
    if len(ranks) != 1:
        call.unclear("its inputs have different numbers of dims")
    [rank] = ranks
    # Concat's axis had a default of 1 until opset 3; since then the attribute is required.
    axis = at(call.attribute("axis", 1 if call.flow.opset < 4 else 0), rank)
    rows = [value for value in taken if value.axis is not None]
    if not rows:
        return _concatenated(call.flow, taken, axis)
    if any(value.axis == axis for value in rows):
        return _behind(call, taken, axis)
    if any(value.is_place for value in taken[1:]) or (
        # GatherND takes pairs of a place and what to find there, so the place may only be first.
        taken[0].is_place and (axis != rank - 1 or taken[0].dims[axis] != ONE)
    ):
        call.mixes("computes with the places of rows in the batch")
    if any(value.counts for value in taken):
        call.mixes("puts the number of rows beside data")
    if len({value.axis for value in rows}) > 1:
        call.crosses(*rows)
    first = side_by_side(rows)
    for value in taken:
        if value.axis is None:
            check_beside(call, value.dims[first.axis or 0])
            call.mixes("takes one fixed row beside those of the batch")
    whole = first.resized(axis, _sum(call.flow, [value.dims[axis] for value in taken]))
    return call.joined(whole, *rows)


def _behind(call: RowCall, taken: Sequence[RowTensor], axis: int) -> RowTensor:
    """Return whole batches one behind the other along their batch dim."""
    outer = Size(0)
    for value in taken:
        whole = outer if value.outer.letters else Size(outer.number + value.outer.number)
        if value.axis != axis or value.is_place or value.inner != taken[0].inner or whole == outer:
            # Whole batches of one kind can be told apart again; a batch
            # behind some fixed rows cannot.
            call.mixes(f"puts rows behind others along dim {axis}, the batch")
        outer = whole
    return call.joined(_batched(taken[0], axis, outer), *taken)


def _batched(value: RowTensor, axis: int, outer: Size) -> RowTensor:
    """Return a tensor of `outer` whole batches, along the batch dim of `value`."""
    return replace(value.resized(axis, times(outer, B, value.inner)), outer=outer)


def _parts(
    value: RowTensor, axis: int, count: int, wanted: list[Size] | None
) -> list[RowTensor] | None:
    """Return the whole batches that a split along the batch dim makes, None if it makes others."""
    unit, outer = times(B, value.inner), value.outer
    if wanted is None:
        each = None if outer.letters else over(outer, Size(count))
        outers = [each] * count
    else:
        outers = [over(size, unit) for size in wanted]
    found = [one for one in outers if one is not None and not one.letters and one.number > 0]
    if len(found) != count or sum(one.number for one in found) != outer.number or outer.letters:
        return None
    return [_batched(value, axis, one) for one in found]


def _concatenated(flow: RowFlow, taken: Sequence[RowTensor], axis: int) -> RowTensor:
    shape = taken[0].resized(axis, _sum(flow, [value.dims[axis] for value in taken])).dims
    counts = any(value.counts for value in taken)
    if len(shape) > 1 or any(value.numbers is None for value in taken):
        return RowTensor(shape, counts=counts)
    numbers = [number for value in taken for number in value.numbers or ()]
    is_small = len(numbers) <= _MOST_NUMBERS
    return counted(shape, numbers if is_small else None, counts=counts)


def _sum(flow: RowFlow, sizes: Sequence[Size]) -> Size:
    letters = {size.letters for size in sizes}
    # 2*n + 3*n is 5*n; other sums are no products.
    if len(letters) == 1:
        return Size(sum(size.number for size in sizes), letters.pop())
    return flow.letter()


def _split(call: RowCall) -> Sequence[RowTensor]:
    value = call.needed(0)
    axis = call.axis(value, 0)
    count = len(call.node.outputs)
    if axis == value.axis:
        wanted = None if call.given(1) is None else call.sizes(1) or []
        # Split lengths in the file are numbers, which no multiple of the batch is.
        batches = None if "split" in call.node.attributes else _parts(value, axis, count, wanted)
        if batches is not None:
            return batches
    call.plain(call.values[1:], "lengths")
    call.along(value, [axis])
    parts = call.attribute("split") or call.integers(1)
    if parts and len(parts) == count:
        sizes = [Size(one) for one in parts]
    else:
        # Without lengths, all parts are alike (ONNX, Split).
        even = over(value.dims[axis], Size(count)) if call.given(1) is None else None
        sizes = [even or call.flow.letter() for _ in range(count)]
    starts = [sum(one.number for one in sizes[:n]) for n in range(count)]
    made = []
    for start, size in zip(starts, sizes, strict=True):
        part = value.resized(axis, size)
        if value.numbers is not None and value.rank == 1 and not size.letters:
            numbers = value.numbers[start : start + size.number]
            part = counted(part.shape, numbers, counts=value.counts)
        made.append(part)
    return made


def _slice(call: RowCall) -> RowTensor:
    value = call.needed(0)
    # Slice had its bounds as attributes until opset 9, then as inputs.
    if call.flow.opset < 10:
        starts: list[Size | None] = [Size(one) for one in call.attribute("starts", [])]
        ends: list[Size | None] = [Size(one) for one in call.attribute("ends", [])]
        axes = call.attribute("axes") or list(range(len(starts)))
        steps = [1] * len(axes)
    else:
        for one in call.values[1:]:
            if one is not None and one.axis is not None:
                call.mixes("takes a piece that the rows say")
        axes = _axes_of_slice(call)
        starts, ends = (_bounds(call, n, len(axes)) for n in (1, 2))
        steps = call.integers(4) or [1] * len(axes)
        if call.given(4) is not None and call.integers(4) is None:
            steps = [0] * len(axes)  # not known
    shape = list(value.dims)
    grid = value.grid()
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        place = at(axis, value.rank)
        # Exporters slice all dims, most of them from the beginning to the end.
        if start == Size(0) and step == 1 and _is_end(end, value.dims[place]):
            continue
        if place == value.axis:
            value = _batches(call, value, place, start, end, step)
            shape[place] = value.dims[place]
            continue
        if value.axis is not None:
            _check_bounds(call, (start, end))
        shape[place] = _length(call.flow, value.dims[place], start, end, step)
        grid = _piece(grid, place, start, end, step)
    if grid is not None:
        return counted(tuple(shape), grid.ravel().tolist(), counts=value.counts)
    return value.shaped(tuple(shape), value.axis)


def _batches(
    call: RowCall, value: RowTensor, axis: int, start: Size | None, end: Size | None, step: int
) -> RowTensor:
    """Return some of the whole batches that lie one behind the other. Raises Mixed for others."""
    unit, whole = times(B, value.inner), value.dims[axis]
    first = Size(0) if start == Size(0) else over(start, unit) if start is not None else None
    last = value.outer if _is_end(end, whole) else over(end, unit) if end is not None else None
    if first is not None and last is not None and step == 1 and not value.outer.letters:
        is_number = not first.letters and not last.letters
        if is_number and 0 <= first.number < last.number <= value.outer.number:
            return _batched(value, axis, Size(last.number - first.number))
    call.mixes(f"takes some of the rows along dim {axis}, the batch")


def _check_bounds(call: RowCall, bounds: Sequence[Size | None]) -> None:
    """Raise Mixed if the number of rows may say where a piece begins or ends."""
    is_open = any(one is None or one.has_batch for one in bounds)
    if is_open and any(one is not None and one.counts for one in call.values[1:]):
        call.mixes("takes a piece that the number of rows says")


def _axes_of_slice(call: RowCall) -> list[int]:
    starts, axes = call.given(1), call.integers(3)
    if call.given(3) is None and starts is not None:
        count = starts.count()
        axes = None if count is None else list(range(count))
    if axes is None:
        call.unclear("its axes are not known")
    return axes


def _bounds(call: RowCall, index: int, count: int) -> list[Size | None]:
    value = call.needed(index)
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


def _pad(call: RowCall) -> RowTensor:
    value = call.needed(0)
    call.plain(call.values[2:3], "values to fill with")
    # Pad-1 called its attribute paddings; since opset 11 it is an input.
    pads = call.attribute("pads") or call.attribute("paddings")
    said, places = call.given(1), call.given(3)
    if pads is None:
        pads = call.integers(1)
    axes = call.integers(3)
    if said is not None and said.axis is not None:
        call.mixes("fills as much as the rows say")
    if pads is None or (places is not None and axes is None):
        known = call.sizes(1)
        if value.axis is None or known is None or axes is not None:
            if value.is_plain:
                return RowTensor(call.flow.letters(value.rank))
            call.unclear("how much it fills is not known")
        pads = [one.number if not one.letters else None for one in known]
    axes = list(range(value.rank)) if axes is None else [at(axis, value.rank) for axis in axes]
    if len(pads) != 2 * len(axes):
        call.unclear(
            f"{len(pads)} numbers do not say how much it fills at both ends of {len(axes)} dims"
        )
    shape = list(value.dims)
    for place, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        # PyTorch's exporter names all dims, with zeros for those that stay.
        if before == 0 and after == 0:
            continue
        # Filled along the batch, rows would move.
        call.along(value, [place])
        if None in (before, after) and any(one is not None and one.counts for one in call.values):
            call.mixes("fills as much as the number of rows says")
        size = shape[place]
        is_known = not size.letters and before is not None and after is not None
        shape[place] = Size(size.number + before + after) if is_known else call.flow.letter()
    return value.shaped(tuple(shape), value.axis)


def _one_hot(call: RowCall) -> RowTensor:
    indices, depth = call.needed(0), call.needed(1)
    call.plain(call.values[1:], "depths or values")
    axis = at(call.attribute("axis", -1), indices.rank + 1)
    known = depth.sizes()
    return indices.widened(axis, known[0] if known and len(known) == 1 else call.flow.letter())


def _trilu(call: RowCall) -> RowTensor:
    return call.kept(-2, "diagonals")


def _depth_to_space(call: RowCall) -> RowTensor:
    value = call.needed(0)
    call.along(value, [1, 2, 3])
    size = call.attribute("blocksize", 1)
    n, depth, height, width = value.dims
    square, side = Size(size * size), Size(size)
    shape: tuple[Size | None, ...]
    if call.node.op == "DepthToSpace":
        shape = (n, over(depth, square), times(height, side), times(width, side))
    else:
        shape = (n, times(depth, square), over(height, side), over(width, side))
    if any(one is None for one in shape):
        call.unclear(f"{shown(value.dims)} cannot be divided by {size}")
    return value.shaped(tuple(one for one in shape if one is not None), value.axis)


def _eye_like(call: RowCall) -> RowTensor:
    value = call.needed(0)
    if value.is_plain:
        return RowTensor(value.shape)
    call.mixes("makes a matrix that numbers the rows")


def _gather(call: RowCall) -> RowTensor:
    data, indices = call.needed(0), call.needed(1)
    axis = call.axis(data, 0)
    # Picking lengths out of a shape, which exporters do all the time.
    if data.numbers is not None and data.rank == 1:
        chosen = indices.integers()
        if chosen is not None and all(-len(data.numbers) <= n < len(data.numbers) for n in chosen):
            return counted(indices.shape, [data.numbers[n] for n in chosen], counts=data.counts)
    if indices.is_place or data.is_place:
        return _own_row(call, data, indices, axis)
    if indices.counts or (data.counts and indices.axis is not None):
        call.mixes("looks up the number of rows")
    call.along(data, [axis])
    shape = (*data.dims[:axis], *indices.dims, *data.dims[axis + 1 :])
    if indices.axis is None:
        moved = data.axis
        if moved is not None and moved > axis:
            # The dims of the indices stand where the one that is picked from stood.
            moved += indices.rank - 1
        return data.shaped(shape, moved)
    # Each row's indices into each row's data: one result for each pair.
    if data.axis is not None:
        call.crosses(data, indices)
    return indices.shaped(shape, axis + indices.axis)


def _own_row(call: RowCall, data: RowTensor, indices: RowTensor, dim: int) -> RowTensor:
    """Return what each row finds of `data` at its own place along `dim`."""
    is_batch = data.axis == dim and (data.outer, data.inner) == (ONE, ONE) and not data.is_place
    if not is_batch or not indices.is_place or indices.dims != (B,):
        call.mixes("looks up the places of rows in the batch")
    return call.joined(data.same(), data, indices)


def _gather_elements(call: RowCall) -> RowTensor:
    data, indices = call.needed(0), call.needed(1)
    axis = call.axis(data, 0)
    for value in (data, indices):
        call.along(value, [axis])
    if data.is_plain and indices.is_plain:
        return RowTensor(indices.shape)
    return _in_each_row(call, data.shaped(indices.dims, data.axis), data, indices)


def _in_each_row(call: RowCall, made: RowTensor, *values: RowTensor) -> RowTensor:
    """Return `made` of `values`, row by row. Raises Unclear unless their rows lie alike."""
    if len({(value.axis, value.outer, value.inner) for value in values}) > 1:
        both = "both" if len(values) == 2 else "all"
        call.unclear(f"its inputs do not {both} have the rows along the same dim")
    return call.joined(made, *values)


def _gather_nd(call: RowCall) -> RowTensor:
    data, indices = call.needed(0), call.needed(1)
    batch_dims = call.attribute("batch_dims", 0)
    last = indices.dims[-1]
    if last.letters:
        call.unclear("the length of its indices is not known")
    # The last dim of the indices says where to look, the rest how often (ONNX, GatherND).
    shape = (*indices.dims[:-1], *data.dims[batch_dims + last.number :])
    if indices.is_place or data.is_place:
        is_batch = data.axis == 0 and (data.outer, data.inner) == (ONE, ONE) and not data.is_place
        if batch_dims or not is_batch or indices.axis != 0 or indices.rank < 2:
            call.mixes("looks up the places of rows in the batch")
        return call.joined(replace(indices.shaped(shape, 0), is_place=False), data, indices)
    if data.axis is None:
        call.along(indices, [*range(batch_dims), indices.rank - 1])
        return indices.shaped(shape, indices.axis)
    if data.axis >= batch_dims + last.number:
        if indices.axis is not None:
            call.crosses(data, indices)
        return data.shaped(shape, data.axis - batch_dims - last.number + indices.rank - 1)
    if data.axis >= batch_dims:
        call.mixes(f"looks up rows by number along dim {data.axis}, the batch")
    return _in_each_row(call, data.shaped(shape, data.axis), data, indices)


def _scatter_elements(call: RowCall) -> RowTensor:
    data, indices, updates = (call.needed(n) for n in range(3))
    axis = call.axis(data, 0)
    for value in (data, indices, updates):
        call.along(value, [axis])
    return _in_each_row(call, data.same(), data, indices, updates)


def _scatter_nd(call: RowCall) -> RowTensor:
    data = call.needed(0)
    if call.is_plain:
        return data.same()
    # Which rows is what the indices say, and two of them may say the same.
    call.mixes("writes to rows by number")


RULES: Rules = {
    **named(concat, "Concat"),
    **named(_depth_to_space, "DepthToSpace", "SpaceToDepth"),
    **named(_eye_like, "EyeLike"),
    **named(_one_hot, "OneHot"),
    **named(_pad, "Pad"),
    **named(_slice, "Slice"),
    **named(_split, "Split"),
    **named(_trilu, "Trilu"),
    **named(_gather, "Gather"),
    **named(_gather_elements, "GatherElements"),
    **named(_gather_nd, "GatherND"),
    **named(_scatter_elements, "Scatter", "ScatterElements"),
    **named(_scatter_nd, "ScatterND"),
}
