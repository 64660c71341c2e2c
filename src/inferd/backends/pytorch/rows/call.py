"""AtenCall: one call of an ATen operator while rows are followed, in terms of ONNX's operators.

PyTorch's graphs hand around tensors, numbers, lists and tuples. Here a tensor is a Handle, and so
is a number that is computed from sizes; all others are themselves.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from inferd.formats.onnx_graph import RowNode
from inferd.rows.flow import FollowedCall, RowFlow
from inferd.rows.value import LostTensor, RowTensor, Size, Unclear, give_up

OF_ELEMENTS = frozenset((
    "W_prepack", "align_corners", "allow_tf32", "alpha", "approximate", "benchmark", "beta",
    "bidirectional", "copy", "correction", "count_include_pad", "cudnn_enable", "cudnn_enabled",
    "decimals", "descending", "deterministic", "device", "divisor_override", "downscale_factor",
    "dropout", "dtype", "embed_dim", "eps", "exponent", "group", "groups", "half_to_float",
    "has_biases", "implicit", "input_scale", "lambd", "largest", "layout", "lower", "mask_type",
    "max", "max_val", "memory_format", "min", "min_val", "mode", "momentum", "nan",
    "negative_slope", "neginf", "non_blocking", "norm_first", "num_groups", "num_head", "num_heads",
    "num_layers", "ord", "other", "out_dtype", "output_padding", "p", "padding_idx", "path",
    "pin_memory", "posinf", "reduce_range", "requires_grad", "rounding_mode", "scale",
    "scale_grad_by_freq", "shifts", "sorted", "sparse", "sparse_grad", "stable", "threshold",
    "unbiased", "upper", "upscale_factor", "use_gelu", "use_input_stats", "value", "weight",
))  # fmt: skip
"""Arguments that no rule has to look at: they say what elements become, and not where rows go."""


class Handle:
    """A tensor of a PyTorch graph, or a computed number.

    `views` are all tensors over the same memory, as far as operators may have made them so.
    `is_integer`: its elements are known to be integers, and no bools.
    """

    def __init__(
        self,
        value: RowTensor | LostTensor,
        views: "list[Handle] | None" = None,
        *,
        is_integer: bool = False,
    ) -> None:
        self.value = value
        self.views = [] if views is None else views
        # The list is one object for all of them: who is noted as a view later is seen by each.
        self.views.append(self)
        self.is_integer = is_integer


def handles_in(value: object) -> Iterator[Handle]:
    """Yield the handles in `value`, also those in lists, tuples and dicts."""
    if isinstance(value, Handle):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from handles_in(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from handles_in(one)


def as_rows(value: object) -> RowTensor:
    """Return a handle's value, or a number as one. Raises Unclear for what is neither."""
    if isinstance(value, Handle):
        if isinstance(value.value, LostTensor):
            raise Unclear(value.value.reason)
        return value.value
    # Numbers become tensors without dims, as ATen itself treats them in arithmetic.
    if isinstance(value, bool | int):
        return RowTensor((), numbers=(Size(int(value)),))
    if isinstance(value, float):
        return RowTensor((), numbers=(value,))
    give_up(f"{type(value).__name__} is no tensor")


class AtenCall(FollowedCall):
    """An operator's `name`, without its overload, and its arguments by name."""

    def __init__(self, flow: RowFlow, name: str, arguments: Mapping[str, object]) -> None:
        super().__init__(flow, RowNode(name, "", "", [], [], {}))
        self.name = name
        self.arguments = arguments
        self._read: set[str] = set()

    def check_read(self) -> None:
        """Raise Unclear if an argument that may change with the rows was not looked at.

        So does one that may say where rows go.
        """
        for name in self.arguments.keys() - self._read:
            if any(not as_rows(one).is_plain for one in handles_in(self.arguments[name])):
                self.unclear(f"its {name} depends on the rows, or on their number")
            if name not in OF_ELEMENTS:
                self.unclear(f"it is not known what its {name} does")

    def apply(self, op: str, *values: RowTensor | None, **attributes: object) -> list[RowTensor]:
        """Return what an operator of ONNX makes of `values`. Raises Mixed, Unclear."""
        outputs = [f"{self.name}_{number}" for number in range(2 if op == "TopK" else 1)]
        # An empty name is ONNX's way to leave out an optional input (onnx.proto, NodeProto.input).
        names = ["" if one is None else str(number) for number, one in enumerate(values)]
        node = RowNode(op, "", self.name, names, outputs, attributes)
        return list(self.flow.apply(node, values))

    def one(self, op: str, *values: RowTensor | None, **attributes: Any) -> RowTensor:
        """Return the first output of an operator of ONNX. Raises Mixed, Unclear."""
        return self.apply(op, *values, **attributes)[0]

    def unclear(self, why: str) -> NoReturn:
        """Raise Unclear, with the name of the operator."""
        super().unclear(f"{self.name}: {why}")

    def raw(self, name: str, default: Any = None) -> Any:
        """Return an argument as it is, `default` if it was left out or is None."""
        self._read.add(name)
        # ATen's defaults are often None for what is left out, so both mean the same.
        value = self.arguments.get(name)
        return default if value is None else value

    def known(self, name: str, default: Any = None) -> Any:
        """Return an argument that is no tensor and not computed. Raises Unclear if it is."""
        value = self.raw(name, default)
        if any(handles_in(value)):
            self.unclear(f"its {name} is not known")
        return value

    def rows(self, name: str = "self") -> RowTensor:
        """Return an argument that is a tensor. Raises Unclear."""
        return as_rows(self.raw(name))

    def main(self) -> RowTensor:
        """Return the tensor that is computed with, called self or input. Raises Unclear."""
        return self.rows("self" if "self" in self.arguments else "input")

    def weights(self, *names: str) -> None:
        """Raise Mixed unless these arguments, or those of them that are given, are plain."""
        self.plain([self.maybe(name) for name in names], "weights")

    def maybe(self, name: str) -> RowTensor | None:
        """Return an optional tensor. Raises Unclear."""
        return None if self.raw(name) is None else self.rows(name)

    def tensors(self) -> list[RowTensor]:
        """Return all arguments that are tensors. Raises Unclear if one is lost."""
        found = {name: list(handles_in(value)) for name, value in self.arguments.items()}
        self._read.update(name for name, handles in found.items() if handles)
        return [as_rows(one) for handles in found.values() for one in handles]

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an argument that is a known integer. Raises Unclear."""
        value = self.raw(name, default)
        if not isinstance(value, int):
            self.unclear(f"its {name} is not known")
        return value

    def integers(self, name: str) -> list[int] | None:
        """Return an argument that is a list of known integers, None if left out. Raises Unclear."""
        value = self.raw(name)
        if value is None:
            return None
        listed = list(value) if isinstance(value, list | tuple) else [value]
        if not all(isinstance(one, int) for one in listed):
            self.unclear(f"its {name} is not known")
        return listed

    def sizes(self, name: str) -> RowTensor:
        """Return an argument that lists lengths, as a tensor of them. Raises Unclear."""
        value = self.raw(name)
        return lengths(value if isinstance(value, list | tuple) else [value])


def lengths(values: Sequence[object]) -> RowTensor:
    """Return numbers, some of which may be computed, as a tensor. Raises Unclear."""
    numbers: list[Size | float | None] = []
    counts = False
    for value in values:
        one = as_rows(value)
        if one.axis is not None:
            return RowTensor((Size(len(values)),), 0)  # lengths that the rows say
        counts = counts or one.counts
        numbers.append(one.numbers[0] if one.numbers else None)
    return RowTensor((Size(len(values)),), numbers=tuple(numbers), counts=counts)
