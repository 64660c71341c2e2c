"""The rule of operators that resize images, along any dims."""

from collections.abc import Sequence

from inferd.formats.onnx_graph import RowNode
from inferd.rows.flow import RowFlow, RowTensors, Rule
from inferd.rows.size import ONE, Size, times
from inferd.rows.value import (
    RowTensor,
    Unclear,
    along,
    at,
    given,
    mixes,
    needed,
)

_MOST_SCALE = 1 << 30

_Numbers = Sequence[Size | float | None]


def _resize(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    value = needed(values, 0)
    if any(one is not None and one.axis is not None for one in values[1:]):
        raise mixes(node, "resizes as the rows say")
    if value.is_plain:
        return RowTensor(flow.letters(value.rank))
    places = [at(axis, value.rank) for axis in node.attributes.get("axes") or range(value.rank)]
    _check_region(node, value, places)
    has_region = node.op == "Resize" and flow.opset > 10  # the input before the scales
    factors = given(values, 2 if has_region else 1)
    lengths = given(values, 3) if has_region else None
    # Upsample-7 had its scales as an attribute.
    scales: _Numbers = node.attributes.get("scales") or (factors and factors.numbers) or ()
    if len(scales) == len(places):
        made = [
            _scaled(flow, value.dims[n], scale) for n, scale in zip(places, scales, strict=True)
        ]
    elif lengths is not None and lengths.numbers and len(lengths.numbers) == len(places):
        made = [one if isinstance(one, Size) else flow.letter() for one in lengths.numbers]
    elif value.axis in places:
        msg = "how it resizes is not known"
        raise Unclear(msg)
    else:
        made = [flow.letter() for _ in places]
    _check_counts(node, value, values, dict(zip(places, made, strict=True)))
    shape = list(value.dims)
    for place, size in zip(places, made, strict=True):
        shape[place] = size
    # Scales are given for all dims, with 1 for the batch.
    along(node, value, [n for n in places if shape[n] != value.dims[n]])
    return value.shaped(tuple(shape), value.axis)


def _check_counts(
    node: RowNode, value: RowTensor, values: RowTensors, made: dict[int, Size]
) -> None:
    """Raise Mixed if the number of rows may say the length of a dim other than the batch."""
    counts = any(one is not None and one.counts for one in values[1:])
    others = [size for place, size in made.items() if place != value.axis]
    if counts and any(size.letters for size in others):
        raise mixes(node, "resizes as the number of rows says")


def _check_region(node: RowNode, value: RowTensor, places: Sequence[int]) -> None:
    """Raise Unclear if the batch may change though its own length is asked for."""
    is_cut = node.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    # Of a region, the result's length tells nothing of what it shows.
    if is_cut and value.axis in places:
        msg = "it takes a region of dims among which is the batch"
        raise Unclear(msg)
    if node.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        msg = "it chooses lengths for the sake of proportions"
        raise Unclear(msg)


def _scaled(flow: RowFlow, size: Size, scale: Size | float | None) -> Size:
    if scale in (1.0, ONE):
        return size
    # Fractions are rounded down, in FP32, by rules that differ between runtimes: no exact length.
    if isinstance(scale, float) and scale.is_integer() and 0 < scale < _MOST_SCALE:
        return times(size, Size(int(scale)))
    return flow.letter()


RULES: dict[tuple[str, str], Rule] = {("", "Resize"): _resize, ("", "Upsample"): _resize}
