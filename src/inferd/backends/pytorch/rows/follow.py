"""Follow: rows through the calls of a PyTorch graph, with tensors that operators write to."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from inferd.backends.pytorch.rows import compute, dims
from inferd.backends.pytorch.rows.call import AtenCall, Handle, as_rows, handles_in
from inferd.backends.pytorch.runtime import PASSING
from inferd.rows.flow import RowFlow
from inferd.rows.value import LostTensor, RowTensor, Size, Unclear, give_up

RULES: dict[str, dims.Rule] = {**dims.RULES, **compute.RULES}

# Operators of another namespace than ATen's of which there are rules.
_FOREIGN = ("quantized::linear_dynamic", "quantized::linear_relu_dynamic")

_FINDING = (
    "arange", "view", "reshape", "_unsafe_view", "flatten", "squeeze", "unsqueeze", "expand",
    "contiguous", "clone", "detach", "alias", "to", "_to_copy", "index", "index_select",
    "embedding", "size", "sym_size", "dim", "numel", "sym_numel",
)  # fmt: skip
"""Operators whose rules know what to do with the places of rows, or make them."""

_WHOLE = ("3", "4", "torch.int32", "torch.int64", "None")
"""Datatypes that hold the place of any row: those of TorchScript are numbers."""

_INTEGERS = ("arange", "argmax", "argmin", "argsort")

_KEEPING = ("to", "detach", "alias", "contiguous", "clone", "lift_fresh_copy", "add", "sub", "mul")
"""Operators that keep integers what they are; with a dtype, if that is 4, int64."""

_FEW = 64


def fixed(tensor: Any) -> Handle:
    """Return a tensor of the model, which is the same for all requests, and not to be written to.

    The numbers in it are read if they are few and INT64: they may be places of others.
    """
    is_integer = str(tensor.dtype) == "torch.int64"
    numbers = None
    # A meta tensor has no elements, and copying large ones from a GPU takes time.
    if is_integer and tensor.numel() <= _FEW and not tensor.is_meta:
        numbers = tuple(Size(int(one)) for one in tensor.detach().cpu().flatten().tolist())
    shape = tuple(Size(size) for size in tensor.shape)
    handle = Handle(RowTensor(shape, numbers=numbers), is_integer=is_integer)
    Handle(handle.value, handle.views)  # another view, for ever: nothing may write to it
    return handle


def is_truth(value: Any) -> bool:
    """Return a condition. Raises Unclear if it is not known, Mixed never."""
    if isinstance(value, Handle):
        known = as_rows(value).numbers
        if known is not None and len(known) == 1 and _is_number(known[0]):
            return known != (Size(0),)
    elif isinstance(value, bool | int | float):
        return bool(value)
    give_up("a condition is not known")


def item_of(listed: Handle) -> Handle:
    """Return an item of a list of which not even that is known."""
    is_lost = isinstance(listed.value, LostTensor)
    return listed if is_lost else Handle(LostTensor("an item of a list is not known"))


def _is_number(value: Any) -> bool:
    return isinstance(value, Size) and not value.letters


class TorchFlow:
    """Follows calls by the schemas of their operators (torch.FunctionSchema)."""

    def __init__(self, flow: RowFlow) -> None:
        self.flow = flow

    def call(self, schema: Any, values: Sequence[object], named: Mapping[str, object]) -> Any:
        """Return what an ATen operator makes of `values` and of `named` arguments.

        Raises Mixed, and Unclear if what it writes to cannot be followed.
        """
        # In the schema's order, which zip() below relies on.
        arguments = {one.name: one.default_value for one in schema.arguments}
        arguments.update(zip(arguments, values, strict=False))
        arguments.update(named)
        name = str(schema.name).rpartition("::")[2]
        written = [
            arguments[one.name]
            for one in schema.arguments
            if one.alias_info is not None and one.alias_info.is_write
        ]
        for handle in handles_in(written):
            # Through which of them a write shows depends on strides, which are not followed.
            if len(handle.views) > 1:
                give_up(f"{name} writes to a tensor of which there are other views")
        if written:
            # ATen's convention: add_ writes to its first argument what add would return.
            name = name.removesuffix("_")
        rule = RULES.get(name) if _is_known_namespace(schema) else None
        outputs = {one.name for one in schema.arguments if one.is_out}  # become as large as it says
        taken = {key: one for key, one in arguments.items() if key not in outputs}
        made = self._made(name, rule, taken, schema)
        _check_statistics(name, arguments)
        for handle in handles_in(written):
            [first, *_] = [*handles_in(made), Handle(LostTensor(f"{name} writes to a tensor"))]
            handle.value = _as_written(name, handle.value, first.value)
        if rule is None or name in PASSING or (written and len(schema.returns) > 1):
            _note_views(list(arguments.values()), [*written, made])
        elif not written and any(one.alias_info is not None for one in schema.returns):
            aliased = [one.name for one in schema.arguments if one.alias_info is not None]
            _note_views([arguments[one] for one in aliased], made)
        return written[0] if written and len(schema.returns) == 1 else made

    def _made(
        self, name: str, rule: dims.Rule | None, arguments: Mapping[str, object], schema: Any
    ) -> Any:
        taken = list(handles_in(dict(arguments)))
        lost = next((one.value for one in taken if isinstance(one.value, LostTensor)), None)
        if lost is not None:
            return _each(schema, lost)
        values = [as_rows(one) for one in taken]
        is_plain = all(value.is_plain for value in values)
        call = AtenCall(self.flow, name, arguments)
        try:
            if rule is None:
                is_plain = is_plain and _is_fixed(call, schema)
                give_up(f"operator {name} is not known")
            made = rule(call)
            call.check_read()
            _check_places(name, arguments, [*values, *_row_tensors(made)])
        # Not the whole model is unclear: perhaps no output depends on this one.
        except Unclear as error:
            return _each(schema, RowTensor(None) if is_plain else LostTensor(error.reason))
        is_whole = str(arguments.get("dtype")) in _WHOLE
        passes_on = is_whole and (name in dims.RULES or name in _KEEPING)
        is_integer = name in _INTEGERS or (
            passes_on and bool(taken) and all(one.is_integer for one in taken)
        )
        return _wrapped(made, schema, is_integer=is_integer)

    def scalar(self, name: str, values: Sequence[object]) -> Any:
        """Return what an operator on numbers, some of which are computed, makes of `values`."""
        if name in ("__is__", "__isnot__") and None in values:
            return (values[0] is values[1]) == (name == "__is__")
        if not any(isinstance(one, Handle) for one in values):
            compute_it = _ON_NUMBERS.get(name)
            has_handles = name != "len" and any(handles_in(list(values)))
            is_known = all(_is_known(one) for one in values) and not has_handles
            made = compute_it(*values) if compute_it is not None and is_known else None
            is_large = isinstance(made, int) and not -_END <= made < _END
            rounds = name in _ROUNDING and any(isinstance(one, float) for one in values)
            if made is None or is_large or rounds:
                give_up(f"operator {name} on numbers is not known")
            return made
        call = AtenCall(self.flow, name, {})
        rows = [as_rows(one) for one in values]
        counts = any(not one.is_plain for one in rows)
        op = _ON_LENGTHS.get(name)
        if name == "floordiv" and not (isinstance(values[1], int) and values[1] > 0):
            op = None  # which way it rounds is not known
        if op is None or any(one.axis is not None for one in rows):
            return Handle(RowTensor((), counts=counts))
        made = call.one(op, *rows)
        if name == "ne":
            made = call.one("Equal", made, as_rows(0))
        if made.numbers and _is_number(made.numbers[0]):
            number = made.numbers[0]
            return number.number if isinstance(number, Size) else number
        return Handle(made)


def _is_known_namespace(schema: Any) -> bool:
    return schema.name.startswith("aten::") or schema.name in _FOREIGN


def _is_known(value: Any) -> bool:
    """Return whether a value is known as it is in the model, with all that is in it."""
    if isinstance(value, list | tuple):
        return all(isinstance(one, Handle) or _is_known(one) for one in value)
    if isinstance(value, dict):
        return all(isinstance(one, bool | int | float | str) for one in value)
    return isinstance(value, _KNOWN)


_STATISTICS, _TRAINS = ("running_mean", "running_var"), ("training", "train", "use_input_stats")

_READING = ("no_training", "no_update")
"""How operators are called that do no more with running means than their schema says."""


def has_statistics(schema: Any) -> bool:
    """Return whether an operator may write to running means, which its schema does not say."""
    return any(one.name in _STATISTICS for one in schema.arguments)


def _check_statistics(name: str, arguments: Mapping[str, object]) -> None:
    """Raise Unclear for an operator that changes running means."""
    trains = [arguments[one] for one in _TRAINS if one in arguments]
    means = [arguments.get(one) for one in _STATISTICS]
    if any(handles_in(means)) and trains != [False] and not name.endswith(_READING):
        give_up(f"{name} writes to its running means")


def _is_fixed(call: AtenCall, schema: Any) -> bool:
    """Return whether an operator without a rule is known to make the same of the same tensors.

    Raises Mixed if it draws random numbers: rows that run together would share them.
    """
    import torch  # loaded long since: this is its graph

    space, _, name = schema.name.partition("::")
    overloads = getattr(torch.ops.aten, name, None)
    overload = getattr(overloads, schema.overload_name or "default", None)
    if space != "aten" or overload is None:
        return False
    if torch.Tag.nondeterministic_seeded in overload.tags:
        call.mixes("draws random numbers")
    return True


def _as_written(
    name: str, old: RowTensor | LostTensor, new: RowTensor | LostTensor
) -> RowTensor | LostTensor:
    """Return what a tensor is that `new` was written to: as large as it was."""
    is_plain = isinstance(old, RowTensor) and old.axis is None
    if is_plain and isinstance(new, RowTensor) and new.axis is not None:
        return LostTensor(f"{name} writes rows to a tensor that is the same for all")
    return new


def _check_places(name: str, arguments: Mapping[str, object], values: Sequence[RowTensor]) -> None:
    """Raise Unclear for an operator that may do other than find rows by their places."""
    if any(value.is_place for value in values):
        dtype = str(arguments.get("dtype"))
        if name not in _FINDING or dtype not in _WHOLE or "other" in arguments:
            give_up(f"{name} computes with the places of rows in the batch")


def _row_tensors(made: Any) -> list[RowTensor]:
    several = made if isinstance(made, list) else [made]
    return [one for one in several if isinstance(one, RowTensor)]


def _note_views(sources: Any, results: Any) -> None:
    """Note that each of `results` may be a view of each of `sources`."""
    for source in handles_in(sources):
        for result in handles_in(results):
            source.views += [one for one in result.views if one not in source.views]
            result.views = source.views


def _each(schema: Any, value: RowTensor | LostTensor) -> Any:
    """Return `value` for each result of an operator."""
    kinds = [str(one.type) for one in schema.returns]
    if len(kinds) == 1:
        return Handle(value if kinds[0] == "Tensor" or isinstance(value, LostTensor) else _LIST)
    return tuple(Handle(value) for _ in kinds)


_LIST = LostTensor("the number of tensors in a list is not known")


def _wrapped(made: Any, schema: Any, *, is_integer: bool) -> Any:
    if isinstance(made, RowTensor):
        return Handle(made, is_integer=is_integer)
    if isinstance(made, list):
        wrapped = [
            Handle(one, is_integer=is_integer) if isinstance(one, RowTensor) else one
            for one in made
        ]
        returns = len(schema.returns)
        return tuple(wrapped[:returns]) if returns > 1 else wrapped
    return made


_KNOWN = (bool, int, float, str, type(None))

_END = 1 << 63
"""Integers of TorchScript are smaller: others go round."""

_ROUNDING = ("floordiv", "remainder", "mod")
"""Operators that round floats in another way than Python."""

_ON_NUMBERS: dict[str, Callable[..., object]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg,
    "floordiv": operator.floordiv, "div": operator.truediv, "truediv": operator.truediv,
    "remainder": operator.mod, "mod": operator.mod, "eq": operator.eq, "ne": operator.ne,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "__not__": operator.not_, "not": operator.not_, "__and__": operator.and_,
    "__or__": operator.or_, "Int": int, "Float": float, "Bool": bool,
    "__range_length": lambda *bounds: len(range(*bounds)),
    "__derive_index": lambda index, start, step: start + index * step,
    "len": len, "abs": abs, "min": min, "max": max, "__contains__": operator.contains,
}  # fmt: skip
_ON_LENGTHS = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "floordiv": "Div", "eq": "Equal", "ne": "Equal",
    "Int": "Identity", "IntImplicit": "Identity", "min": "Min", "max": "Max",
    "ScalarImplicit": "Identity", "NumToTensor": "Identity",
}  # fmt: skip
