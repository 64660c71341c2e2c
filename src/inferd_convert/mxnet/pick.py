"""MXNet operators that pick, sort, repeat and count elements."""

from inferd.tensor.dtype import DataType
from inferd_convert.call import Converted, Converter
from inferd_convert.formulas import moments, without_nan
from inferd_convert.graph import END, Graph, Value
from inferd_convert.mxnet.call import MxnetCall
from inferd_convert.mxnet.shape import axes_of, bounded, equal_parts, no_scalar, reduced


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
    return no_scalar(graph, graph.squeeze(found, axis))


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
    squeezes = call.flag("squeeze_axis")
    if sections:
        return equal_parts(graph, x, axis, sections, squeezes=squeezes)
    bounds = zip(places, [*places[1:], END], strict=True)
    parts = [graph.slice(x, axis, low, high) for low, high in bounds]
    return tuple(graph.squeeze(part, axis) if squeezes else part for part in parts)


def _moments(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    axes = axes_of(call, x, "axes")
    call.cannot_if(not axes, "it has no axes")
    return tuple(no_scalar(graph, one) for one in moments(x, axes, keep=call.flag("keepdims")))


def _running_sum(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    if call.has("dtype"):
        x = graph.cast(x, call.element_type())
    if not call.has("axis"):
        flat = graph.reshape(x, graph.ints(-1))
        return graph.add("CumSum", flat, graph.whole(0))
    return graph.add("CumSum", x, graph.whole(call.axis(x.rank, 0)))


OPERATORS: dict[str, Converter] = {
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
    "nansum": lambda graph, call, x: reduced(call, "ReduceSum", without_nan(x, 0.0)),
    "nanprod": lambda graph, call, x: reduced(call, "ReduceProd", without_nan(x, 1.0)),
    "moments": _moments,
    "cumsum": _running_sum,
}
