"""MXNet operators that slice, join, rearrange, pick, sort, count and reduce."""

import numpy as np

from inferd.tensor.dtype import DataType
from inferd_convert import formulas
from inferd_convert.call import Converted, Converter
from inferd_convert.graph import END, Graph, Value
from inferd_convert.mxnet.call import MxnetCall


def _reshape(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    """Convert Reshape with its special codes.

    0 keeps a dim, -1 is inferred, -2 keeps the rest, -3 joins two, -4 splits one in two. In
    reverse, codes and dims are matched from the end.
    """
    spec = call.integers("shape")
    call.cannot_if(not spec, "a Reshape without 'shape' cannot be converted")
    # A vector of parameters, as an RNN's, has to stay a constant: its converter takes it apart.
    if x.array is not None and spec == [-1]:
        return graph.constant(x.array.reshape(-1))
    parts: list[Value] = []
    source = 0
    codes = _codes(call, spec)
    is_reverse = call.flag("reverse")
    if is_reverse:
        codes.reverse()
    for code in codes:
        count = {-2: None, -3: 2}.get(code[0], 1)
        taken = _dims(graph, x, source, count, is_reverse=is_reverse)
        source += count or 0
        parts.append(_reshaped(call, code, taken))
    if is_reverse:
        parts.reverse()
    is_open = any(code[0] == -2 for code in codes)
    rank = None if is_open else sum(max(1, len(code) - 1) for code in codes)
    return graph.add("Reshape", x, graph.join(*parts), rank=rank)


def _codes(call: MxnetCall, spec: list[int]) -> list[list[int]]:
    """Return the codes of a Reshape one by one, each -4 with its two sizes."""
    codes, position = [], 0
    while position < len(spec):
        count = 3 if spec[position] == -4 else 1
        code = spec[position : position + count]
        call.refuse_if(len(code) < count or code[0] < -4, f"its shape is {spec}")
        codes.append(code)
        position += count
    return codes


def _dims(graph: Graph, x: Value, source: int, count: int | None, *, is_reverse: bool) -> Value:
    """Return `count` dims of `x`, None for all, after the first, in reverse last, `source`."""
    if not is_reverse:
        return graph.shape(x, source, None if count is None else source + count)
    return graph.shape(x, 0 if count is None else -source - count, -source if source else None)


def _reshaped(call: MxnetCall, code: list[int], dims: Value) -> Value:
    graph = call.graph
    match code:
        case [-4, first, second]:
            return _halves(call, dims, first, second)
        case [-3]:
            return graph.reduce("ReduceProd", dims, keep=True)
        case [0] | [-2]:
            return dims
    return graph.ints(*code)


def _halves(call: MxnetCall, whole: Value, first: int, second: int) -> Value:
    graph = call.graph
    if first > 0 and second > 0:
        return graph.ints(first, second)
    if max(first, second) < 1 or min(first, second) != -1:
        call.refuse(f"-4 is followed by {first} and {second}")
    other = whole / graph.ints(max(first, second))
    return graph.join(*((graph.ints(first), other) if first > 0 else (other, graph.ints(second))))


def _transpose(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    axes = call.integers("axes")
    if not axes:
        return graph.add("Transpose", x)
    axes = [call.checked(axis, len(axes)) for axis in axes]
    if sorted(axes) != list(range(len(axes))):
        call.refuse(f"axes {axes} are not those of its input")
    return graph.transpose(x, axes)


def _swap_axes(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    perm = list(range(call.known_rank(x)))
    first, second = (call.axis(x.rank, 0, name) for name in ("dim1", "dim2"))
    perm[first], perm[second] = perm[second], perm[first]
    return graph.transpose(x, perm)


def _squeeze(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    axes = call.integers("axis")
    if axes:
        return _no_scalar(graph, graph.squeeze(x, *axes))
    shape = graph.shape(graph.add("Squeeze", x, rank=None))
    nothing = graph.add("Equal", graph.shape(shape), graph.ints(0))
    # If all dims were 1, one is left: MXNet has no scalars.
    return graph.reshape(
        x, graph.join(shape, formulas.ones(graph, graph.cast(nothing, DataType.INT64)))
    )


def _concat(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    axis = call.axis(x.rank, 1, "dim")
    return graph.add("Concat", *call.inputs, axis=axis)


def _stack(graph: Graph, call: MxnetCall) -> Converted:
    axis = call.integer("axis")
    # For its error, as the loop below would join nothing.
    call.input(0)
    parts = [graph.unsqueeze(part, (axis,)) for part in call.inputs]
    return graph.add("Concat", *parts, axis=call.checked(axis, parts[0].rank))


def _split(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    count, axis = call.integer("num_outputs", 1), call.axis(x.rank, 1)
    # Each part is a value here, and the number is the file's.
    call.refuse_if(not 1 <= count <= 4096, f"num_outputs is {count}")
    return _equal_parts(graph, x, axis, count, squeezes=call.flag("squeeze_axis"))


def _equal_parts(
    graph: Graph, x: Value, axis: int, count: int, *, squeezes: bool = False
) -> tuple[Value, ...]:
    """Return `count` parts of `x` along `axis`, which is left out if the split `squeezes`."""
    parts = graph.add_several(count, "Split", x, axis=axis, num_outputs=count)
    return tuple(graph.squeeze(part, axis) for part in parts) if squeezes else parts


def _slice(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    begin, end = call.optional_integers("begin"), call.optional_integers("end")
    step = call.optional_integers("step") or [None] * len(begin)
    if not begin or not len(begin) == len(end) == len(step):
        call.refuse("begin, end and step are not of one length")
    bounds: list[list[int]] = [[], [], []]
    for first, behind, by in zip(begin, end, step, strict=True):
        by = 1 if by is None else by
        call.refuse_if(by == 0, "a step is 0")
        # Backwards from the last element to before the first: -1 would be the last itself.
        default = (0, END) if by > 0 else (END, -END)
        bounds[0].append(default[0] if first is None else first)
        bounds[1].append(default[1] if behind is None else behind)
        bounds[2].append(by)
    axes = graph.ints(*range(len(begin)))
    starts, ends, steps = (graph.ints(*numbers) for numbers in bounds)
    return graph.add("Slice", x, starts, ends, axes, steps)


def _slice_axis(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    axis, begin = call.axis(x.rank, 0), call.integer("begin")
    end = call.integer("end", END)
    return graph.slice(x, axis, begin, end)


def _tile(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    reps = call.integers("reps")
    if x.rank is None or min(reps, default=0) < 1:
        call.refuse("its reps are not all at least 1, or the dims of its input are not known")
    # As numpy.tile: the shorter one gets ones in front.
    if len(reps) > x.rank:
        x = graph.unsqueeze(x, range(len(reps) - x.rank))
    reps = [1] * ((x.rank or 0) - len(reps)) + reps
    return graph.add("Tile", x, graph.ints(*reps))


def _reverse(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    axes = call.integers("axis")
    count = len(axes)
    starts, ends, steps = (graph.ints(*[one] * count) for one in (-1, -END, -1))
    return graph.add("Slice", x, starts, ends, graph.ints(*axes), steps)


def _pad(graph: Graph, call: MxnetCall) -> Converted:
    mode, widths = call.word("mode", "constant"), call.integers("pad_width")
    if mode not in ("constant", "edge", "reflect") or len(widths) % 2 or not widths:
        call.refuse("its mode or pad_width cannot be converted")
    x = call.input(0)
    # MXNet lists pairs for each dim, ONNX all begins, then all ends.
    pads = graph.ints(*widths[::2], *widths[1::2])
    value = graph.like(x, call.number("constant_value")) if mode == "constant" else None
    return graph.add("Pad", x, pads, value, mode=mode)


def _broadcast_to(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    dims = call.integers("shape")
    call.refuse_if(not dims or min(dims) < 0, f"its shape is {dims}")
    # 0 keeps a dim, as 1 does in ONNX's Expand.
    return graph.add("Expand", x, graph.ints(*(dim or 1 for dim in dims)), rank=len(dims))


def bounded(index: Value, length: Value, *, wraps: bool = False) -> Value:
    """Return `index` as INT64, with indices outside of 0 to `length` clipped or wrapped."""
    graph, rank = index.graph, index.rank
    # Indices are floats in MXNet; the cast cuts off, as MXNet does.
    numbers = graph.cast(index, DataType.INT64)
    if wraps:
        return graph.add("Mod", numbers, length, rank=rank)
    numbers = graph.add("Min", numbers, length - graph.ints(1), rank=rank)
    return graph.add("Max", numbers, graph.ints(0), rank=rank)


def _take(graph: Graph, call: MxnetCall, x: Value, index: Value) -> Converted:
    """Convert take; indices out of range are clipped or wrapped."""
    axis, mode = call.axis(x.rank, 0), call.word("mode", "clip")
    call.refuse_if(mode not in ("clip", "wrap"), f"mode '{mode[:100]}' cannot be converted")
    numbers = bounded(index, graph.length(x, axis), wraps=mode == "wrap")
    rank = None
    if x.rank is not None and index.rank is not None:
        rank = x.rank + index.rank - 1
        if index.rank == 0:
            numbers = graph.scalar(numbers)
    return graph.add("Gather", x, numbers, rank=rank, axis=axis)


def _one_hot(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    call.refuse_if(call.integer("depth") < 1, "its depth should be at least 1")
    values = np.array([call.number("off_value", 0.0), call.number("on_value", 1.0)], np.float32)
    depth = graph.whole(call.integer("depth"))
    numbers = graph.cast(x, DataType.INT64)
    # A negative index means none here; in ONNX it counts from the end.
    outside = graph.add("Less", numbers, graph.whole(0))
    numbers = graph.add("Where", outside, depth, numbers, rank=x.rank)
    hot = graph.add("OneHot", numbers, depth, graph.constant(values), rank=x.rank_with(1), axis=-1)
    return graph.cast(hot, call.element_type()) if call.has("dtype") else hot


def _arg(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    """Convert argmax and argmin, whose indices have the type of the input."""
    op, keep = "ArgMax" if call.op == "argmax" else "ArgMin", call.flag("keepdims")
    if not call.has("axis"):  # over all elements, flattened
        flat = graph.reshape(x, graph.ints(-1))
        found = graph.add("CastLike", graph.add(op, flat, axis=0, keepdims=1), x)
        if not keep:
            return found
        return graph.reshape(found, formulas.ones(graph, graph.shape(graph.shape(x))), x.rank)
    found = formulas.place_of_extreme(graph, op, x, call.axis(x.rank, 0), keep=keep)
    return graph.add("CastLike", _no_scalar(graph, found), x)


def places_along(graph: Graph, x: Value, axis: int) -> Value:
    """Return 0, 1, ... along `axis` as INT64, shaped to broadcast with `x`, of known rank."""
    steps = formulas.places(graph, x, axis)
    return graph.unsqueeze(steps, [other for other in range(x.rank or 1) if other != axis])


def _reduce(op: str) -> Converter:
    return lambda graph, call, x: _reduced(call, op, x)


def _reduced(call: MxnetCall, op: str, x: Value) -> Value:
    """Return `x` reduced by `op` over the axes in the attribute `axis`."""
    axes = _axes_of(call, x, "axis")
    if not axes and call.integers("axis"):  # all axes are excluded
        return x
    return _no_scalar(call.graph, call.graph.reduce(op, x, axes, keep=call.flag("keepdims")))


def _no_scalar(graph: Graph, x: Value) -> Value:
    """Return `x`, a scalar as a vector of one element: MXNet has no scalars."""
    return graph.reshape(x, graph.ints(1)) if x.rank == 0 else x


def _axes_of(call: MxnetCall, x: Value, name: str) -> list[int]:
    """Return the axes in the attribute `name`; with `exclude` all the others."""
    axes = [call.checked(axis, x.rank) for axis in call.integers(name)]
    if not call.flag("exclude") or not axes:
        return axes
    if x.rank is None:
        call.cannot("the number of dims of its input is not known, which 'exclude' needs")
    return [axis for axis in range(x.rank) if axis not in axes]


def _norm(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    order = call.integer("ord", 2)
    call.refuse_if(order not in (1, 2), f"its ord is {order}, expected 1 or 2")
    return _reduced(call, f"ReduceL{order}", x)


def _pick(graph: Graph, call: MxnetCall) -> Converted:
    """Convert pick: one element along an axis; indices out of range are clipped or wrapped."""
    call.cannot_if(call.is_none("axis"), "pick without an axis cannot be converted")
    return _picked(call, call.integer("axis", -1), keep=call.flag("keepdims"))


def _picked(call: MxnetCall, axis: int, *, keep: bool) -> Value:
    graph, x, index = call.graph, call.input(0), call.input(1)
    if x.rank is None or index.rank is None:
        call.cannot("the number of dims of its inputs is not known")
    axis = call.checked(axis, x.rank)
    # With keepdims when it was exported, the index has the dim already.
    if index.rank < x.rank:
        index = graph.unsqueeze(index, (axis,))
    # ONNX Runtime fails on an index out of range, and reads negative ones from the end.
    numbers = bounded(index, graph.length(x, axis), wraps=call.word("mode", "clip") == "wrap")
    found = graph.add("GatherElements", x, numbers, axis=axis)
    if keep:
        return found
    return _no_scalar(graph, graph.squeeze(found, axis))


def _gather_nd(graph: Graph, call: MxnetCall, x: Value, index: Value) -> Converted:
    if index.rank is None:
        call.cannot("the number of dims of its indices is not known")
    numbers = graph.cast(index, DataType.INT64)
    # MXNet has an index's coordinates along dim 0, ONNX along the last.
    numbers = graph.transpose(numbers, (*range(1, index.rank), 0))
    return graph.add("GatherND", x, numbers, rank=None)


def _sorted(call: MxnetCall, k: int, *, ascending: bool) -> tuple[Value, Value]:
    """Return the first `k` values in order and their indices; all of them if `k` is 0."""
    graph, x = call.graph, call.input(0)
    axis = -1
    if call.is_none("axis"):
        x = graph.reshape(x, graph.ints(-1))
    else:
        axis = call.axis(x.rank, -1)
    length = graph.length(x, axis)
    # ONNX's TopK refuses a k beyond the length.
    count = graph.add("Min", graph.ints(k), length, rank=1) if k else length
    values, places = graph.add_several(
        2, "TopK", x, count, axis=axis, largest=0 if ascending else 1
    )
    return values, places


def _top_k(graph: Graph, call: MxnetCall) -> Converted:
    k, kind = call.integer("k", 1), call.word("ret_typ", "indices")
    if k < 0 or kind not in ("indices", "value", "both"):
        call.cannot(f"k {k} with ret_typ '{kind[:100]}' cannot be converted")
    values, places = _sorted(call, k, ascending=call.flag("is_ascend"))
    if kind == "value":
        return values
    found = graph.cast(places, _index_type(call))
    return found if kind == "indices" else (values, found)


def _index_type(call: MxnetCall) -> DataType:
    # MXNet's indices are floats by default.
    return call.element_type() if call.has("dtype") else DataType.FP32


def _argsort(graph: Graph, call: MxnetCall) -> Converted:
    places = _sorted(call, 0, ascending=call.flag("is_ascend", default=True))[1]
    return graph.cast(places, _index_type(call))


def _repeat(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    count = call.integer("repeats", 1)
    call.refuse_if(count < 1, f"repeats is {count}")
    axis = 0
    if not call.has("axis"):
        x = graph.reshape(x, graph.ints(-1))
    else:
        axis = call.axis(call.known_rank(x), 0)
    rank = x.rank or 1
    times = [1] * (rank + 1)
    times[axis + 1] = count
    # Each element by itself: ONNX's Tile repeats the whole.
    spread = graph.add("Tile", graph.unsqueeze(x, (axis + 1,)), graph.ints(*times))
    size = graph.length(x, axis) * graph.ints(count)
    parts = [graph.shape(x, 0, axis)] * (axis > 0) + [size]
    parts += [graph.shape(x, axis + 1)] * (axis + 1 < rank)
    return graph.reshape(spread, graph.join(*parts), rank)


def _broadcast_axis(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    axes, sizes = call.integers("axis"), call.integers("size")
    dims = [1] * call.known_rank(x)
    if len(axes) != len(sizes) or min(sizes, default=1) < 1:
        call.refuse(f"its axes {axes} and sizes {sizes} do not fit")
    for axis, size in zip(axes, sizes, strict=True):
        dims[call.checked(axis, x.rank)] = size
    # Expand takes 1 for a dim that stays (ONNX broadcasts both ways).
    return graph.add("Expand", x, graph.ints(*dims))


def _broadcast_like(graph: Graph, call: MxnetCall, x: Value, other: Value) -> Converted:
    axes, others = call.integers("lhs_axes"), call.integers("rhs_axes")
    if not axes and not others:
        return graph.add("Expand", x, graph.shape(other), rank=other.rank)
    if x.rank is None or len(axes) != len(others):
        call.cannot("its axes are not of one number, or the dims of its input not known")
    dims = [graph.ints(1)] * x.rank
    for axis, source in zip(axes, others, strict=True):
        place = call.checked(source, other.rank)
        dims[call.checked(axis, x.rank)] = graph.length(other, place)
    return graph.add("Expand", x, graph.join(*dims))


def _slice_like(graph: Graph, call: MxnetCall, x: Value, other: Value) -> Converted:
    rank = x.rank if x.rank is not None else other.rank
    axes = call.integers("axes") or list(range(rank or 0))
    call.cannot_if(not axes, "the number of dims of its input is not known")
    ends = graph.join(*(graph.length(other, call.checked(a, other.rank)) for a in axes))
    return graph.add("Slice", x, graph.ints(*[0] * len(axes)), ends, graph.ints(*axes))


def _split_v2(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    """Convert split_v2: at indices along an axis, or into equal sections."""
    sections = call.integer("sections")
    axis, places = call.axis(x.rank, 0), call.integers("indices")
    call.refuse_if(not 0 <= sections <= 4096 or len(places) > 4096, f"sections is {sections}")
    call.refuse_if(not sections and not places, "it has neither sections nor indices")
    squeezes = call.flag("squeeze_axis")
    if sections:
        return _equal_parts(graph, x, axis, sections, squeezes=squeezes)
    bounds = zip(places, [*places[1:], END], strict=True)
    parts = [graph.slice(x, axis, low, high) for low, high in bounds]
    return tuple(graph.squeeze(part, axis) if squeezes else part for part in parts)


def _moments(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    axes = _axes_of(call, x, "axes")
    call.cannot_if(not axes, "it has no axes")
    pair = formulas.moments(x, axes, keep=call.flag("keepdims"))
    return tuple(_no_scalar(graph, one) for one in pair)


def _running_sum(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    if call.has("dtype"):
        x = graph.cast(x, call.element_type())
    if not call.has("axis"):
        flat = graph.reshape(x, graph.ints(-1))
        return graph.add("CumSum", flat, graph.whole(0))
    return graph.add("CumSum", x, graph.whole(call.axis(x.rank, 0)))


OPERATORS: dict[str, Converter] = {
    **dict.fromkeys(("Reshape", "reshape"), _reshape),
    **dict.fromkeys(("Flatten", "flatten"), lambda graph, call, x: graph.flatten(x, 1)),
    "transpose": _transpose,
    **dict.fromkeys(("SwapAxis", "swapaxes"), _swap_axes),
    "expand_dims": lambda graph, call, x: graph.unsqueeze(x, (call.integer("axis"),)),
    "squeeze": _squeeze,
    "shape_array": lambda graph, call, x: graph.shape(x),
    **dict.fromkeys(("Concat", "concat"), _concat),
    "stack": _stack,
    **dict.fromkeys(("SliceChannel", "split"), _split),
    **dict.fromkeys(("slice", "crop"), _slice),
    "slice_axis": _slice_axis,
    "tile": _tile,
    **dict.fromkeys(("reverse", "flip"), _reverse),
    **dict.fromkeys(("Pad", "pad"), _pad),
    "broadcast_to": _broadcast_to,
    "reshape_like": lambda graph, call, x, y: graph.reshape(x, graph.shape(y), y.rank),
    "take": _take,
    "one_hot": _one_hot,
    **dict.fromkeys(("argmax", "argmin"), _arg),
    "argmax_channel": lambda graph, call, x: graph.add(
        "CastLike", formulas.place_of_extreme(graph, "ArgMax", x, 1), x
    ),
    **dict.fromkeys(("sum", "sum_axis"), _reduce("ReduceSum")),
    "mean": _reduce("ReduceMean"),
    **dict.fromkeys(("max", "max_axis"), _reduce("ReduceMax")),
    **dict.fromkeys(("min", "min_axis"), _reduce("ReduceMin")),
    "prod": _reduce("ReduceProd"),
    "norm": _norm,
    **dict.fromkeys(("pick", "choose_element_0index"), _pick),
    "batch_take": lambda graph, call: _picked(call, 1, keep=False),
    "gather_nd": _gather_nd,
    "topk": _top_k,
    "sort": lambda graph, call: _sorted(call, 0, ascending=call.flag("is_ascend", default=True))[0],
    "argsort": _argsort,
    "repeat": _repeat,
    **dict.fromkeys(("broadcast_axis", "broadcast_axes"), _broadcast_axis),
    "broadcast_like": _broadcast_like,
    "slice_like": _slice_like,
    "_split_v2": _split_v2,
    "size_array": lambda graph, call, x: graph.reshape(graph.add("Size", x, rank=0), graph.ints(1)),
    "nansum": lambda graph, call, x: _reduced(call, "ReduceSum", formulas.without_nan(x, 0.0)),
    "nanprod": lambda graph, call, x: _reduced(call, "ReduceProd", formulas.without_nan(x, 1.0)),
    "moments": _moments,
    "cumsum": _running_sum,
}
