"""Rules of operators that change, repeat, rearrange or resize dims."""

from collections.abc import Sequence
from dataclasses import replace

from inferd.rows.elementwise import broadcast, check_beside, made_by, ranked_by
from inferd.rows.flow import RowCall, RowFlow, Rules, named
from inferd.rows.value import BATCH, ONE, B, RowTensor, Size, Sizes, at, over, shown, times


def laid(call: RowCall, value: RowTensor, shape: Sizes) -> RowTensor:
    """Return `value` with its elements in the same order, in `shape`. Raises Mixed, Unclear."""
    if value.axis is None:
        return replace(value, shape=shape)
    grown = [n for n, size in enumerate(shape) if size.has_batch]
    if not grown:
        call.mixes(f"makes {shown(shape)} of any number of rows")
    # A batch of 4 as [2, 2] has no dim along which its rows lie.
    if len(grown) > 1:
        call.unclear(f"{shown(shape)} has the batch in several dims")
    axis = grown[0]
    inner = over(value.after, times(*shape[axis + 1 :]))
    outer = over(value.before, times(*shape[:axis]))
    # Row-major order stays, so rows are whole pieces again only if what lies before and behind
    # the batch divides evenly by the new dims there.
    if inner is None or outer is None or times(outer, B, inner) != shape[axis]:
        what = f"makes {shown(shape)} of {shown(value.dims)}"
        # With an unknown length, it may divide all the same; with numbers alone it is sure not to.
        if any(set(size.letters) - {BATCH} for size in (*shape, *value.dims)):
            call.unclear(f"it is not known where rows begin where it {what}")
        call.mixes(f"{what}: rows would begin anywhere")
    return replace(value, shape=shape, axis=axis, outer=outer, inner=inner, numbers=None)


def _reshape(call: RowCall) -> RowTensor:
    value = call.needed(0)
    target = call.given(1)
    wanted = call.sizes(1)
    # Reshape-1, before opset 5, had the shape as an attribute.
    if "shape" in call.node.attributes:
        wanted = [Size(one) for one in call.attribute("shape")]
    elif target is not None and target.axis is not None:
        call.mixes("makes a tensor of dims that the rows say")
    if wanted is None:
        if value.is_plain and target is not None and target.is_plain:
            return ranked_by(call, target)
        call.unclear("the dims it makes are not known")
    keeps_zero = call.flag("allowzero")
    shape = _resolved(call, value, wanted, keeps_zero=keeps_zero)
    if value.axis is None:
        if any(size.has_batch for size in shape) and value.is_plain:
            call.unclear(
                "it gives a tensor that is the same for all rows as many dims as there are rows"
            )
        return replace(value, shape=shape)
    return laid(call, value, shape)


def _resolved(call: RowCall, value: RowTensor, wanted: list[Size], *, keeps_zero: bool) -> Sizes:
    """Return `wanted` with 0 and -1 replaced by the lengths that they mean."""
    found: list[Size | None] = []
    for n, size in enumerate(wanted):
        # Reshape: 0 copies the dim at its place, unless allowzero is set (ONNX, Reshape).
        if size == Size(0) and not keeps_zero:
            if n >= value.rank:
                call.unclear(f"0 copies dim {n}, which is not there")
            found.append(value.dims[n])
        else:
            found.append(None if size == Size(-1) else size)
    missing = [n for n, one in enumerate(found) if one is None]
    if not missing:
        return tuple(one for one in found if one is not None)
    if value.shape is None:
        return tuple(call.flow.letter() if one is None else one for one in found)
    # -1 is whatever is left, so that it is known where the rest is.
    rest = over(times(*value.shape), times(*(one for one in found if one is not None)))
    if len(missing) > 1 or rest is None:
        if value.axis is None:
            return tuple(call.flow.letter() if one is None else one for one in found)
        what = f"makes {shown(tuple(wanted))} of {shown(value.shape)}"
        if all(set(size.letters) <= {BATCH} for size in (*wanted, *value.shape)):
            call.mixes(f"{what}: rows would begin anywhere")
        call.unclear(f"it is not known where rows begin where it {what}")
    return tuple(rest if one is None else one for one in found)


def _flatten(call: RowCall) -> RowTensor:
    value = call.needed(0)
    axis = call.attribute("axis", 1)
    # Not by `at`: axis may be the rank itself, and then all dims go into the first (ONNX, Flatten).
    axis = axis + value.rank if axis < 0 else axis
    return laid(call, value, (times(*value.dims[:axis]), times(*value.dims[axis:])))


def _squeeze(call: RowCall) -> RowTensor:
    value = call.needed(0)
    axes = call.axes(1)
    # ONNX Runtime takes an empty list of axes for none at all.
    if not axes:
        if value.axis is not None:
            call.mixes("names no axes: of a single row it would take the batch dim away")
        if any(size.letters for size in value.dims):
            return RowTensor(None, counts=value.counts)
        axes = [n for n, size in enumerate(value.dims) if size == ONE]
    gone = {at(axis, value.rank) for axis in axes}
    call.along(value, gone)
    return replace(value.narrowed(gone), numbers=value.numbers)


def _unsqueeze(call: RowCall) -> RowTensor:
    value = call.needed(0)
    axes = call.axes(1)
    if axes is None:
        call.unclear("it has no axes")
    # Axes of Unsqueeze are those of the result.
    rank = value.rank + len(axes)
    new = {at(axis, rank) for axis in axes}
    places = [n for n in range(rank) if n not in new]
    if len(places) != value.rank:
        call.unclear(f"its axes {axes} are not different dims")
    shape = [ONE] * rank
    for place, size in zip(places, value.dims, strict=True):
        shape[place] = size
    return replace(
        value, shape=tuple(shape), axis=None if value.axis is None else places[value.axis]
    )


def _transpose(call: RowCall) -> RowTensor:
    value = call.needed(0)
    # Without perm, Transpose reverses the dims.
    order = call.attribute("perm") or list(range(value.rank))[::-1]
    if sorted(order) != list(range(value.rank)):
        call.unclear(f"{order} is no order of {value.rank} dims")
    shape = tuple(value.dims[n] for n in order)
    grid = value.grid()
    numbers = None if grid is None else tuple(grid.transpose(order).ravel().tolist())
    return replace(
        value,
        shape=shape,
        axis=None if value.axis is None else order.index(value.axis),
        numbers=numbers,
    )


def _expand(call: RowCall) -> RowTensor:
    value, lengths = call.needed(0), call.needed(1)
    if lengths.axis is not None:
        call.mixes("makes a tensor of dims that the rows say")
    if value.is_plain and lengths.is_plain and lengths.sizes() is None:
        return RowTensor(None)
    if lengths.sizes() is None:
        call.unclear("the dims it makes are not known")
    made = made_by(call, lengths)
    if value.is_place:
        if value.shape != made.shape:
            call.mixes("repeats the places of rows in the batch")
        return value
    # Expanded to the number of rows: from here on, the same tensor lies there for each of them.
    if made.axis is not None and value.axis is None and not value.counts:
        place = made.rank - made.axis
        if value.rank >= place and value.dims[value.rank - place] != ONE:
            check_beside(call, value.dims[value.rank - place])
        shape = broadcast(call, replace(made, axis=None), replace(value, counts=False)).shape
        return replace(made, shape=shape, axis=len(shape or ()) - place)
    return broadcast(call, value, made)


def _tile(call: RowCall) -> RowTensor:
    value = call.needed(0)
    repeats = call.needed(1).sizes()
    if repeats is None or len(repeats) != value.rank:
        if call.is_plain:
            return RowTensor(call.flow.letters(value.rank))
        call.unclear("how often it repeats is not known")
    shape = tuple(times(*both) for both in zip(value.dims, repeats, strict=True))
    if value.axis is not None:
        if any(one.has_batch for one in repeats):
            call.mixes("repeats rows as often as there are rows")
        if repeats[value.axis] != ONE:
            call.mixes("repeats the whole batch")
        return value.shaped(shape, value.axis)
    grown = [n for n, one in enumerate(repeats) if one.has_batch]
    if not grown:
        return value.shaped(shape)
    if value.counts:
        call.mixes("gives each row the number of rows")
    if len(grown) > 1 or over(repeats[grown[0]], B) != ONE:
        call.unclear("it repeats along several dims as often as there are rows")
    # The tensor as a whole is repeated, so each row has all of that dim one behind the other.
    return RowTensor(shape, grown[0], ONE, value.dims[grown[0]])


_MOST_SCALE = 1 << 30

_Numbers = Sequence[Size | float | None]


def _resize(call: RowCall) -> RowTensor:
    value = call.needed(0)
    if any(one is not None and one.axis is not None for one in call.values[1:]):
        call.mixes("resizes as the rows say")
    if value.is_plain:
        return RowTensor(call.flow.letters(value.rank))
    places = [at(axis, value.rank) for axis in call.attribute("axes") or range(value.rank)]
    _check_region(call, value, places)
    has_region = call.node.op == "Resize" and call.flow.opset > 10  # the input before the scales
    factors = call.given(2 if has_region else 1)
    lengths = call.given(3) if has_region else None
    # Upsample-7 had its scales as an attribute.
    scales: _Numbers = call.attribute("scales") or (factors and factors.numbers) or ()
    if len(scales) == len(places):
        made = [
            _scaled(call.flow, value.dims[n], scale)
            for n, scale in zip(places, scales, strict=True)
        ]
    elif lengths is not None and lengths.numbers and len(lengths.numbers) == len(places):
        made = [one if isinstance(one, Size) else call.flow.letter() for one in lengths.numbers]
    elif value.axis in places:
        call.unclear("how it resizes is not known")
    else:
        made = [call.flow.letter() for _ in places]
    _check_counts(call, value, dict(zip(places, made, strict=True)))
    shape = list(value.dims)
    for place, size in zip(places, made, strict=True):
        shape[place] = size
    # Scales are given for all dims, with 1 for the batch.
    call.along(value, [n for n in places if shape[n] != value.dims[n]])
    return value.shaped(tuple(shape), value.axis)


def _check_counts(call: RowCall, value: RowTensor, made: dict[int, Size]) -> None:
    """Raise Mixed if the number of rows may say the length of a dim other than the batch."""
    counts = any(one is not None and one.counts for one in call.values[1:])
    others = [size for place, size in made.items() if place != value.axis]
    if counts and any(size.letters for size in others):
        call.mixes("resizes as the number of rows says")


def _check_region(call: RowCall, value: RowTensor, places: Sequence[int]) -> None:
    """Raise Unclear if the batch may change though its own length is asked for."""
    is_cut = call.attribute("coordinate_transformation_mode") == "tf_crop_and_resize"
    # Of a region, the result's length tells nothing of what it shows.
    if is_cut and value.axis in places:
        call.unclear("it takes a region of dims among which is the batch")
    if call.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        call.unclear("it chooses lengths for the sake of proportions")


def _scaled(flow: RowFlow, size: Size, scale: Size | float | None) -> Size:
    if scale in (1.0, ONE):
        return size
    # Fractions are rounded down, in FP32, by rules that differ between runtimes: no exact length.
    if isinstance(scale, float) and scale.is_integer() and 0 < scale < _MOST_SCALE:
        return times(size, Size(int(scale)))
    return flow.letter()


RULES: Rules = {
    **named(_expand, "Expand"),
    **named(_flatten, "Flatten"),
    **named(_reshape, "Reshape"),
    **named(_squeeze, "Squeeze"),
    **named(_tile, "Tile"),
    **named(_transpose, "Transpose"),
    **named(_unsqueeze, "Unsqueeze"),
    **named(_resize, "Resize", "Upsample"),
}
