"""Follow: rows through the calls of a PyTorch graph, with tensors that operators write to."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from inferd.backends.pytorch.rows import compute, dims
from inferd.backends.pytorch.rows.call import AtenCall, Handle, as_rows, handles_in
from inferd.rows.flow import RowFlow
from inferd.rows.size import Size
from inferd.rows.value import LostTensor, RowTensor, Unclear

RULES: dict[str, dims.Rule] = {**dims.RULES, **compute.RULES}

# Operators that may return their argument itself, which their schema does not say.
_PASSING = ("dropout", "feature_dropout", "alpha_dropout", "type_as", "float", "double", "half")

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
        if known is None or len(known) != 1 or not _is_number(known[0]):
            msg = "a condition is not known"
            raise Unclear(msg)
        return known[0] != Size(0)
    if not isinstance(value, bool | int | float):
        msg = "a condition is not known"
        raise Unclear(msg)
    return bool(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, Size) and not value.letters


class TorchFlow:
    """Follows calls by the schemas of their operators (torch.FunctionSchema)."""

    def __init__(self, flow: RowFlow) -> None:
        self.flow = flow

    def call(self, schema: Any, values: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Return what an ATen operator makes of `values` and of `named` arguments.

        Raises Mixed, and Unclear if what it writes to cannot be followed.
        """
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
            if len(handle.views) > 1:
                msg = f"{name} writes to a tensor of which there are other views"
                raise Unclear(msg)
        if written:
            name = name.removesuffix("_")
        made = self._made(name, arguments, schema)
        for handle in handles_in(written):
            [first, *_] = [*handles_in(made), Handle(LostTensor(f"{name} writes to a tensor"))]
            handle.value = first.value
        if written and len(schema.returns) == 1:
            return written[0]
        self._note_views(name, arguments, schema, made)
        return made

    def _made(self, name: str, arguments: Mapping[str, Any], schema: Any) -> Any:
        taken = list(handles_in(dict(arguments)))
        lost = next((one.value for one in taken if isinstance(one.value, LostTensor)), None)
        if lost is not None:
            return _each(schema, lost)
        values = [as_rows(one) for one in taken]
        rule = RULES.get(name)
        is_plain = all(value.is_plain for value in values)
        try:
            if rule is None:
                msg = f"operator {name} is not known"
                raise Unclear(msg)
            made = rule(AtenCall(self.flow, name, arguments))
        except Unclear as error:
            return _each(schema, RowTensor(None) if is_plain else LostTensor(error.reason))
        passes_on = name in dims.RULES or (name in _KEEPING and arguments.get("dtype") in (None, 4))
        is_integer = name in _INTEGERS or (
            passes_on and bool(taken) and all(one.is_integer for one in taken)
        )
        return _wrapped(made, schema, is_integer=is_integer)

    def _note_views(self, name: str, arguments: Mapping[str, Any], schema: Any, made: Any) -> None:
        """Note which results may be views of arguments."""
        if name not in _PASSING and all(one.alias_info is None for one in schema.returns):
            return
        sources = [
            arguments[one.name]
            for one in schema.arguments
            if one.alias_info is not None or name in _PASSING
        ]
        for source in handles_in(sources):
            for result in handles_in(made):
                source.views += [one for one in result.views if one not in source.views]
                result.views = source.views

    def scalar(self, name: str, values: Sequence[Any]) -> Any:
        """Return what an operator on numbers, some of which are computed, makes of `values`."""
        if name in ("__is__", "__isnot__") and None in values:
            return (values[0] is values[1]) == (name == "__is__")
        if not any(isinstance(one, Handle) for one in values):
            compute_it = _ON_NUMBERS.get(name)
            if compute_it is None or not all(isinstance(one, _KNOWN) for one in values):
                msg = f"operator {name} on numbers is not known"
                raise Unclear(msg)
            return compute_it(*values)
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


_KNOWN = (bool, int, float, str, list, tuple, dict, type(None))

_ON_NUMBERS: dict[str, Callable[..., Any]] = {
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
