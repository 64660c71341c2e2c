"""Rules of ATen operators that change, repeat, rearrange or pick dims."""

from collections.abc import Callable
from typing import Any

from inferd.backends.pytorch.rows.call import AtenCall, Handle, as_rows, lengths
from inferd.rows.value import ONE, RowTensor, Size, at, times

Rule = Callable[[AtenCall], Any]
"""Returns what an operator makes of its arguments: RowTensors, lists of them, or numbers."""

# What PyTorch's exporters write for an open end of a slice.
_END = (1 << 63) - 1

# Each part is a tensor to be followed, and real models split into a few.
_MOST_PARTS = 1000


def constant(*numbers: int) -> RowTensor:
    """Return a tensor of known integers."""
    return lengths(numbers)


def being(op: str, *names: str, axis: str = "") -> Rule:
    """Return the rule of what does as an operator of ONNX does with these tensors.

    The argument `axis` is the dim along which it works.
    """

    def rule(call: AtenCall) -> RowTensor:
        along = {"axis": call.integer(axis)} if axis else {}
        return call.one(op, *(call.rows(name) for name in names), **along)

    return rule


def _view(call: AtenCall) -> RowTensor:
    name = "size" if "size" in call.arguments else "shape"
    # allowzero: PyTorch's view takes a 0 as a length, ONNX by default as "keep this dim".
    return call.one("Reshape", call.rows(), call.sizes(name), allowzero=1)


def _view_as(call: AtenCall) -> RowTensor:
    other = call.rows("other")
    return call.one("Reshape", call.rows(), call.one("Shape", other), allowzero=1)


def _flatten(call: AtenCall) -> RowTensor:
    value = call.rows()
    start = at(call.integer("start_dim", 0), value.rank)
    end = at(call.integer("end_dim", -1), value.rank)
    dims = (*value.dims[:start], times(*value.dims[start : end + 1]), *value.dims[end + 1 :])
    return call.one("Reshape", value, RowTensor((Size(len(dims)),), numbers=dims), allowzero=1)


def _unflatten(call: AtenCall) -> RowTensor:
    value = call.rows()
    dim = at(call.integer("dim"), value.rank)
    into = call.sizes("sizes").numbers or ()
    numbers = (*value.dims[:dim], *into, *value.dims[dim + 1 :])
    made = RowTensor((Size(len(numbers)),), numbers=numbers)
    return call.one("Reshape", value, made, allowzero=1)


def _permute(call: AtenCall) -> RowTensor:
    value = call.rows()
    order = [at(dim, value.rank) for dim in call.integers("dims") or []]
    return call.one("Transpose", value, perm=order)


def swapped(call: AtenCall, value: RowTensor, one: int, other: int) -> RowTensor:
    """Return `value` with two dims exchanged."""
    order = list(range(value.rank))
    one, other = at(one, value.rank), at(other, value.rank)
    order[one], order[other] = order[other], order[one]
    return call.one("Transpose", value, perm=order)


def _transpose(call: AtenCall) -> RowTensor:
    names = ("axis0", "axis1") if "axis0" in call.arguments else ("dim0", "dim1")
    one, other = (call.integer(name) for name in names)
    return swapped(call, call.rows(), one, other)


def _t(call: AtenCall) -> RowTensor:
    value = call.rows()
    return swapped(call, value, 0, 1) if value.rank == 2 else value


def _movedim(call: AtenCall) -> RowTensor:
    value = call.rows()
    sources = [at(one, value.rank) for one in call.integers("source") or []]
    targets = [at(one, value.rank) for one in call.integers("destination") or []]
    rest = iter([n for n in range(value.rank) if n not in sources])
    place = dict(zip(targets, sources, strict=True))
    order = [place[n] if n in place else next(rest) for n in range(value.rank)]
    return call.one("Transpose", value, perm=order)


def _squeeze(call: AtenCall) -> RowTensor:
    value, dims = call.rows(), call.integers("dim")
    chosen = range(value.rank) if dims is None else [at(dim, value.rank) for dim in dims]
    gone = []
    for dim in chosen:
        size = value.dims[dim]
        if dim == value.axis:
            call.mixes("takes the batch dim away from a single row")
        if size.letters:
            call.unclear(f"it is not known whether dim {dim} is 1")
        if size == ONE:
            gone.append(dim)
    return call.one("Squeeze", value, constant(*gone)) if gone else value


def _unsqueeze(call: AtenCall) -> RowTensor:
    return call.one("Unsqueeze", call.rows(), constant(call.integer("dim")))


def _expand(call: AtenCall) -> RowTensor:
    value, wanted = call.rows(), call.sizes("size")
    numbers = list(wanted.numbers or [None] * len(call.raw("size")))
    first = len(numbers) - value.rank
    for place, number in enumerate(numbers):
        # -1 keeps a dim (torch.Tensor.expand), which ONNX's Expand does not know.
        if number == Size(-1) and place >= first:
            numbers[place] = value.dims[place - first]
    if value.axis is not None and numbers[first + value.axis] == ONE:
        call.mixes("makes one row of any number of them")
    made = RowTensor(wanted.shape, wanted.axis, numbers=tuple(numbers), counts=wanted.counts)
    return call.one("Expand", value, made)


def _expand_as(call: AtenCall) -> RowTensor:
    return call.one("Expand", call.rows(), call.one("Shape", call.rows("other")))


def _repeat(call: AtenCall) -> RowTensor:
    value, repeats = call.rows(), call.sizes("repeats")
    # ONNX's Tile wants as many repeats as dims; PyTorch adds dims in front.
    more = len(call.raw("repeats")) - value.rank
    wide = call.one("Unsqueeze", value, constant(*range(more))) if more > 0 else value
    return call.one("Tile", wide, repeats)


def _cat(call: AtenCall) -> RowTensor:
    values = [as_rows(one) for one in call.raw("tensors", [])]
    return call.one("Concat", *values, axis=call.integer("dim", 0))


def _stack(call: AtenCall) -> RowTensor:
    dim = call.integer("dim", 0)
    values = [as_rows(one) for one in call.raw("tensors", [])]
    wide = [call.one("Unsqueeze", value, constant(dim)) for value in values]
    return call.one("Concat", *wide, axis=dim)


def _split(call: AtenCall) -> list[RowTensor]:
    """Split, split_with_sizes and chunk."""
    value = call.rows()
    dim = at(call.integer("dim", 0), value.rank)
    whole = value.dims[dim]
    call.along(value, [dim])
    sizes = call.integers("split_sizes" if "split_sizes" in call.arguments else "split_size")
    if sizes is None or len(sizes) < 2:
        if whole.letters:
            call.unclear("the number of its parts is not known")
        if not isinstance(call.raw("split_sizes"), list | tuple):
            sizes = _even_parts(call, whole.number, sizes)
    return [value.resized(dim, Size(one)) for one in sizes or ()]


def _even_parts(call: AtenCall, whole: int, size: list[int] | None) -> list[int]:
    # chunk(n) rounds the length of its parts up, so it may make fewer than n of them.
    each = size[0] if size else -(-whole // max(call.integer("chunks"), 1))
    if each < 1 or whole // each > _MOST_PARTS:
        call.unclear(f"it makes {_MOST_PARTS} parts or more, or empty ones")
    return [min(each, whole - start) for start in range(0, whole, each)]


def _unbind(call: AtenCall) -> list[RowTensor]:
    value, dim = call.rows(), call.integer("dim", 0)
    dim = at(dim, value.rank)
    call.along(value, [dim])
    if value.dims[dim].letters or value.dims[dim].number > _MOST_PARTS:
        call.unclear("the number of its parts is not known")
    places = range(value.dims[dim].number)
    return [call.one("Gather", value, as_rows(place), axis=dim) for place in places]


def _slice(call: AtenCall) -> RowTensor:
    bounds = lengths([call.raw("start", 0)]), lengths([call.raw("end", _END)])
    axis, step = constant(call.integer("dim", 0)), constant(call.integer("step", 1))
    return call.one("Slice", call.rows(), *bounds, axis, step)


def _narrow(call: AtenCall) -> RowTensor:
    value, dim = call.rows(), call.integer("dim")
    call.along(value, [at(dim, value.rank)])
    length = call.rows("length")
    if not length.is_plain or not call.rows("start").is_plain:
        call.mixes("takes a piece that the rows say")
    known = length.numbers[0] if length.numbers else None
    size = known if isinstance(known, Size) else call.flow.letter()
    return value.resized(at(dim, value.rank), size)


def _advanced(call: AtenCall) -> RowTensor:
    """x[i], x[:, i]: one tensor of places along one dim."""
    value, given = call.rows(), list(call.raw("indices", []))
    places = [n for n, one in enumerate(given) if one is not None]
    if not all(isinstance(one, Handle) and one.is_integer for one in given if one is not None):
        call.unclear("it is not known whether it looks up places or picks by a mask")
    if places == [0, 1]:
        return _of_own_rows(call, value, *(as_rows(one) for one in given[:2]))
    if len(places) != 1:
        call.unclear("it looks up places along several dims")
    return call.one("Gather", value, as_rows(given[places[0]]), axis=places[0])


def _of_own_rows(
    call: AtenCall, value: RowTensor, places: RowTensor, others: RowTensor
) -> RowTensor:
    """x[arange(len(x)), i]: in each row, the place that i says."""
    if not places.is_place or others.axis != 0 or others.rank != 1 or places.rank != 1:
        call.unclear("it looks up places along several dims")
    last = constant(-1)
    both = [call.one("Unsqueeze", one, last) for one in (places, others)]
    return call.one("GatherND", value, call.one("Concat", *both, axis=1))


def _flip(call: AtenCall) -> RowTensor:
    value = call.rows()
    call.along(value, [at(dim, value.rank) for dim in call.integers("dims") or []])
    return value.same()


def _roll(call: AtenCall) -> RowTensor:
    value, dims = call.rows(), call.integers("dims")
    # Without dims, roll shifts the flattened tensor, so across all of them.
    call.along(value, [at(dim, value.rank) for dim in dims] if dims else range(value.rank))
    return value.same()


def _pad(call: AtenCall) -> RowTensor:
    value, listed = call.rows(), call.integers("pad" if "pad" in call.arguments else "padding")
    if listed is None or len(listed) % 2 or len(listed) > 2 * value.rank:
        call.unclear("how much it fills is not known")
    begins, ends = [0] * value.rank, [0] * value.rank
    # PyTorch lists pads in pairs, from the last dim backwards.
    for n in range(len(listed) // 2):
        begins[-1 - n], ends[-1 - n] = listed[2 * n], listed[2 * n + 1]
    return call.one("Pad", value, pads=[*begins, *ends])


def _pixel_shuffle(call: AtenCall) -> RowTensor:
    value = call.rows()
    call.along(value, range(value.rank - 3, value.rank))
    return value.shaped((*value.dims[:-3], *call.flow.letters(3)), value.axis)


def _arange(call: AtenCall) -> RowTensor:
    start, step = as_rows(call.raw("start", 0)), as_rows(call.raw("step", 1))
    return call.one("Range", start, call.rows("end"), step)


def _filled(call: AtenCall) -> RowTensor:
    call.raw("self")  # it says but the datatype
    _check_filling(call)
    return call.one("ConstantOfShape", call.sizes("size")).same()  # zeros are in ONNX's


def _check_filling(call: AtenCall) -> None:
    if not as_rows(call.raw("fill_value", 0)).is_plain:
        call.mixes("fills a tensor with what rows, or their number, say")


def _like(call: AtenCall) -> RowTensor:
    _check_filling(call)
    return call.rows().same()


def _size(call: AtenCall) -> Any:
    value = call.rows()
    if call.raw("dim") is None:
        return [_length(value, dim) for dim in range(value.rank)]
    return _length(value, at(call.integer("dim"), value.rank))


def _length(value: RowTensor, dim: int) -> object:
    size = value.dims[dim]
    if not size.letters:
        return size.number
    known = None if value.counts else size
    counts = size.has_batch or value.counts
    return Handle(RowTensor((), numbers=(known,), counts=counts))


_SELECT = being("Gather", "self", "index", axis="dim")

RULES: dict[str, Rule] = {
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "view_copy"), _view),
    **dict.fromkeys(("view_as", "reshape_as"), _view_as),
    **dict.fromkeys(("transpose", "swapaxes", "swapdims", "transpose_copy"), _transpose),
    **dict.fromkeys(("permute", "permute_copy"), _permute),
    **dict.fromkeys(("movedim", "moveaxis"), _movedim),
    **dict.fromkeys(("expand", "broadcast_to", "expand_copy"), _expand),
    **dict.fromkeys(("squeeze", "squeeze_copy"), _squeeze),
    **dict.fromkeys(("unsqueeze", "unsqueeze_copy"), _unsqueeze),
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat),
    **dict.fromkeys(("split", "split_with_sizes", "chunk", "split_copy"), _split),
    **dict.fromkeys(("slice", "slice_copy"), _slice),
    **dict.fromkeys(("select", "select_copy", "index_select"), _SELECT),
    **dict.fromkeys(("constant_pad_nd", "pad", "reflection_pad1d", "reflection_pad2d"), _pad),
    **dict.fromkeys(("replication_pad1d", "replication_pad2d", "replication_pad3d"), _pad),
    **dict.fromkeys(("zeros", "ones", "full", "new_zeros", "new_ones", "new_full"), _filled),
    **dict.fromkeys(("zeros_like", "ones_like", "full_like"), _like),
    **dict.fromkeys(
        ("tril", "triu"),
        lambda call: call.one("Trilu", call.rows(), as_rows(call.raw("diagonal", 0))),
    ),
    **dict.fromkeys(("size", "sym_size"), _size),
    **dict.fromkeys(("numel", "sym_numel"), being("Size", "self")),
    **dict.fromkeys(("adjoint", "mT"), lambda call: swapped(call, call.rows(), -2, -1)),
    "arange": _arange,
    "dim": lambda call: call.rows().rank,
    "embedding": being("Gather", "weight", "indices"),
    "expand_as": _expand_as,
    "flatten": _flatten,
    "flip": _flip,
    "gather": being("GatherElements", "self", "index", axis="dim"),
    "index": _advanced,
    "len": lambda call: _length(call.rows("t"), 0),
    "narrow": _narrow,
    "numpy_T": being("Transpose", "self"),
    "pixel_shuffle": _pixel_shuffle,
    "pixel_unshuffle": _pixel_shuffle,
    "repeat": _repeat,
    "roll": _roll,
    "stack": _stack,
    "t": _t,
    "unbind": _unbind,
    "unflatten": _unflatten,
}
