"""MXNet operators that pick, sort, repeat and count elements."""

from collections.abc import Callable

from inferd.convert.graph import Graph, Value
from inferd.convert.mxnet.call import Call, Converted
from inferd.convert.mxnet.shape import axes_of, no_scalar, reduced
from inferd.tensor.dtype import DataType

_END = 2**63 - 1

# --- picked ---


def _pick(call: Call) -> Converted:
    """Convert pick: one element along an axis; indices out of range are clipped or wrapped."""
    if call.is_none("axis"):
        call.cannot("pick without an axis cannot be converted")
    return _picked(call, call.integer("axis", -1), keep=call.flag("keepdims"))


def _batch_take(call: Call) -> Converted:
    return _picked(call, 1, keep=False)


def _picked(call: Call, axis: int, *, keep: bool) -> Value:
    graph, x, index = call.graph, call.input(0), call.input(1)
    if x.rank is None or index.rank is None:
        call.cannot("the number of dims of its inputs is not known")
    axis = call.checked(axis, x.rank)
    numbers = graph.cast(index, DataType.INT64)
    if index.rank < x.rank:
        numbers = graph.unsqueeze(numbers, (axis,))
    length = graph.shape(x, axis, axis + 1)
    if call.word("mode", "clip") == "wrap":
        numbers = graph.add("Mod", numbers, length, rank=x.rank)
    else:
        last = graph.add("Sub", length, graph.ints(1))
        numbers = graph.add("Min", numbers, last, rank=x.rank)
        numbers = graph.add("Max", numbers, graph.ints(0), rank=x.rank)
    found = graph.add("GatherElements", x, numbers, axis=axis)
    if keep:
        return found
    return no_scalar(graph, graph.add("Squeeze", found, graph.ints(axis), rank=x.rank - 1))


def _gather_nd(call: Call) -> Converted:
    graph, x, index = call.graph, call.input(0), call.input(1)
    if index.rank is None:
        call.cannot("the number of dims of its indices is not known")
    numbers = graph.cast(index, DataType.INT64)
    numbers = graph.transpose(numbers, (*range(1, index.rank), 0))
    return graph.add("GatherND", x, numbers, rank=None)


# --- sorted ---


def _sorted(call: Call, k: int, *, ascending: bool) -> tuple[Value, Value]:
    """Return the first `k` values in order and their indices; all of them if `k` is 0."""
    graph, x = call.graph, call.input(0)
    axis = -1
    if call.is_none("axis"):
        x = graph.reshape(x, graph.ints(-1))
    else:
        axis = call.axis(x.rank, -1)
    length = graph.shape(x, axis, axis + 1 if axis != -1 else None)
    count = graph.add("Min", graph.ints(k), length, rank=1) if k else length
    values, places = graph.add_several(
        2, "TopK", x, count, axis=axis, largest=0 if ascending else 1
    )
    return values, places


def _top_k(call: Call) -> Converted:
    k, kind = call.integer("k", 1), call.word("ret_typ", "indices")
    if k < 0 or kind not in ("indices", "value", "both"):
        call.cannot(f"k {k} with ret_typ '{kind[:100]}' cannot be converted")
    values, places = _sorted(call, k, ascending=call.flag("is_ascend"))
    if kind == "value":
        return values
    found = call.graph.cast(places, _index_type(call))
    return found if kind == "indices" else (values, found)


def _index_type(call: Call) -> DataType:
    return call.element_type() if call.has("dtype") else DataType.FP32


def _sort(call: Call) -> Converted:
    return _sorted(call, 0, ascending=call.flag("is_ascend", default=True))[0]


def _argsort(call: Call) -> Converted:
    places = _sorted(call, 0, ascending=call.flag("is_ascend", default=True))[1]
    return call.graph.cast(places, _index_type(call))


# --- repeated, and shaped like others ---


def _repeat(call: Call) -> Converted:
    graph, x, count = call.graph, call.input(0), call.integer("repeats", 1)
    if count < 1:
        call.refuse(f"repeats is {count}")
    axis = 0
    if not call.has("axis"):
        x = graph.reshape(x, graph.ints(-1))
    elif x.rank is None:
        call.cannot("the number of dims of its input is not known")
    else:
        axis = call.axis(x.rank, 0)
    rank = x.rank or 1
    times = [1] * (rank + 1)
    times[axis + 1] = count
    spread = graph.add("Tile", graph.unsqueeze(x, (axis + 1,)), graph.ints(*times))
    size = graph.add("Mul", graph.shape(x, axis, axis + 1), graph.ints(count), rank=1)
    parts = [graph.shape(x, 0, axis)] * (axis > 0) + [size]
    parts += [graph.shape(x, axis + 1)] * (axis + 1 < rank)
    return graph.reshape(spread, graph.join(*parts), rank)


def _broadcast_axis(call: Call) -> Converted:
    graph, x = call.graph, call.input(0)
    axes, sizes = call.integers("axis"), call.integers("size")
    if x.rank is None:
        call.cannot("the number of dims of its input is not known")
    if len(axes) != len(sizes) or min(sizes, default=1) < 1:
        call.refuse(f"its axes {axes} and sizes {sizes} do not fit")
    dims = [1] * x.rank
    for axis, size in zip(axes, sizes, strict=True):
        dims[call.checked(axis, x.rank)] = size
    return graph.add("Expand", x, graph.ints(*dims))


def _broadcast_like(call: Call) -> Converted:
    graph, x, other = call.graph, call.input(0), call.input(1)
    axes, others = call.integers("lhs_axes"), call.integers("rhs_axes")
    if not axes and not others:
        return graph.add("Expand", x, graph.shape(other), rank=other.rank)
    if x.rank is None or len(axes) != len(others):
        call.cannot("its axes are not of one number, or the dims of its input not known")
    dims = [graph.ints(1)] * x.rank
    for axis, source in zip(axes, others, strict=True):
        place = call.checked(source, other.rank)
        dims[call.checked(axis, x.rank)] = _length(graph, other, place)
    return graph.add("Expand", x, graph.join(*dims))


def _length(graph: Graph, x: Value, axis: int) -> Value:
    return graph.shape(x, axis, axis + 1 if axis != -1 else None)


def _slice_like(call: Call) -> Converted:
    graph, x, other = call.graph, call.input(0), call.input(1)
    rank = x.rank if x.rank is not None else other.rank
    axes = call.integers("axes") or list(range(rank or 0))
    if not axes:
        call.cannot("the number of dims of its input is not known")
    ends = graph.join(*(_length(graph, other, call.checked(a, other.rank)) for a in axes))
    return graph.add("Slice", x, graph.ints(*[0] * len(axes)), ends, graph.ints(*axes))


def _split_v2(call: Call) -> Converted:
    """Convert split_v2: at indices along an axis, or into equal sections."""
    graph, x, sections = call.graph, call.input(0), call.integer("sections")
    axis, places = call.axis(x.rank, 0), call.integers("indices")
    if not 0 <= sections <= 4096 or len(places) > 4096:
        call.refuse(f"sections is {sections}")
    if sections:
        parts = graph.add_several(sections, "Split", x, axis=axis, num_outputs=sections)
    else:
        bounds = zip(places, [*places[1:], _END], strict=True)
        parts = tuple(
            graph.add("Slice", x, graph.ints(low), graph.ints(high), graph.ints(axis))
            for low, high in bounds
        )
    if not call.flag("squeeze_axis"):
        return parts
    rank = None if x.rank is None else x.rank - 1
    return tuple(graph.add("Squeeze", part, graph.ints(axis), rank=rank) for part in parts)


# --- counted and reduced ---


def _size_array(call: Call) -> Converted:
    return call.graph.reshape(call.graph.add("Size", call.input(0), rank=0), call.graph.ints(1))


def _without_nan(op: str, number: float) -> Callable[[Call], Converted]:
    def convert(call: Call) -> Converted:
        graph, x = call.graph, call.input(0)
        there = graph.add("Where", graph.add("IsNaN", x), call.like(x, number), x, rank=x.rank)
        return reduced(call, op, there)

    return convert


def _moments(call: Call) -> Converted:
    graph, x = call.graph, call.input(0)
    axes = axes_of(call, x, "axes")
    if not axes:
        call.cannot("it has no axes")
    chosen = graph.ints(*axes)
    off = graph.add("Sub", x, graph.add("ReduceMean", x, chosen, keepdims=1))
    squares = graph.add("Mul", off, off)
    return tuple(reduced(call, "ReduceMean", one, "axes") for one in (x, squares))


def _running_sum(call: Call) -> Converted:
    graph, x = call.graph, call.input(0)
    if call.has("dtype"):
        x = graph.cast(x, call.element_type())
    if not call.has("axis"):
        flat = graph.reshape(x, graph.ints(-1))
        return graph.add("CumSum", flat, graph.whole(0))
    return graph.add("CumSum", x, graph.whole(call.axis(x.rank, 0)))


OPERATORS: dict[str, Callable[[Call], Converted]] = {
    **dict.fromkeys(("pick", "choose_element_0index"), _pick),
    "batch_take": _batch_take,
    "gather_nd": _gather_nd,
    "topk": _top_k,
    "sort": _sort,
    "argsort": _argsort,
    "repeat": _repeat,
    **dict.fromkeys(("broadcast_axis", "broadcast_axes"), _broadcast_axis),
    "broadcast_like": _broadcast_like,
    "slice_like": _slice_like,
    "_split_v2": _split_v2,
    "size_array": _size_array,
    "nansum": _without_nan("ReduceSum", 0.0),
    "nanprod": _without_nan("ReduceProd", 1.0),
    "moments": _moments,
    "cumsum": _running_sum,
}
