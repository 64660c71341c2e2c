"""Refusals: the errors for inputs that do not fit a model, which say what would.

How they begin is said in docs/decisions/0024-error-texts.md.
"""

from collections.abc import Iterable, Mapping, Sequence

from inferd.engine.serving.rule import TensorRule
from inferd.errors import InferdError, InvalidRequest
from inferd.tensor.tensor import Tensor, dims_text


class Refusals:
    """Words the errors for the inputs of one model, which has `rules` for them, by name.

    `required` names those that must be given. A batch has at most `most_rows`, of which
    `max_batch_size` run together.
    """

    def __init__(
        self,
        model: str,
        rules: Mapping[str, TensorRule],
        required: frozenset[str],
        most_rows: int,
        max_batch_size: int,
    ) -> None:
        self._model = model
        self._rules = rules
        self._required = required
        self._most_rows = most_rows
        self._max_batch_size = max_batch_size

    def names(self, inputs: Sequence[Tensor]) -> InferdError:
        """Return the error for inputs of which one is unknown, missing, or given twice."""
        names: set[str] = set()
        for tensor in inputs:
            if tensor.name in names:
                return InvalidRequest(
                    f"input '{tensor.name}' already exists in request, "
                    f"model '{self._model}' takes {quoted(self._rules)}, each once"
                )
            names.add(tensor.name)
        least, most, count = len(self._required), len(self._rules), len(names)
        unknown, missing = names - self._rules.keys(), self._required - names
        but = f", but missing required input(s) {_listed(missing)}" if missing else ""
        takes = "It takes"
        if not least <= count <= most:
            text = f"expected {most} inputs but got {count} inputs"
            if least < most:
                text = (
                    f"expected number of inputs between {least} and {most} but got {count} inputs"
                )
            if unknown:
                takes = f"It has no input {quoted(unknown)}, it takes"
        elif unknown:
            text = f"unexpected inference input {quoted(unknown)}"
        else:
            text, but = but.removeprefix(", but "), ""
        plea = " Please provide all required input(s)." if missing else ""
        return InvalidRequest(
            f"{text} for model '{self._model}'. Got input(s) {_listed(names)}{but}.{plea} "
            f"{takes} {quoted(self._rules)}"
        )

    def datatype(self, tensor: Tensor, rule: TensorRule) -> InferdError:
        """Return the error for an input of another datatype."""
        return InvalidRequest(
            f"inference input '{tensor.name}' data-type is '{tensor.datatype.value}', "
            f"but model '{self._model}' expects '{rule.datatype.value}'"
        )

    def shape(self, tensor: Tensor, rule: TensorRule) -> InferdError:
        """Return the error for an input of another shape, with a shape that would do."""
        text = (
            f"unexpected shape for input '{tensor.name}' for model '{self._model}'. "
            f"Expected {dims_text(rule.shape)}, got {dims_text(tensor.shape)}"
        )
        return InvalidRequest(text + self._hint(rule, tensor.shape))

    def _hint(self, rule: TensorRule, shape: tuple[int, ...]) -> str:
        """Return what to send instead of `shape`, "" unless a 1 more or less makes it fit."""
        if not rule.batch_dims:
            # A client that has put a batch of one in front of a model without batches.
            if shape[:1] != (1,) or not rule.fits(shape[1:]):
                return ""
            return f"; the model does not batch, leave out the 1 in front: {dims_text(shape[1:])}"
        if rule.fits((1, *shape)):
            return (
                f"; the first dim is the batch size, put a 1 before your shape for one item: "
                f"{dims_text((1, *shape))}"
            )
        # Rows of one value each, sent as a list: common with models of one column.
        behind = (*shape, 1)
        if rule.fits(behind) and 1 <= shape[0] <= self._most_rows:
            return (
                f"; the first dim is the batch size, put a 1 behind your shape for {shape[0]} "
                f"item(s): {dims_text(behind)}"
            )
        return ""

    def batch(self, tensor: Tensor, batch_size: int | None) -> InferdError:
        """Return the error for an input whose batch is too small, too large, or unlike others'.

        `batch_size` is that of the inputs before it, None if it is the first.
        """
        size = tensor.shape[0]
        if batch_size is not None:
            return InvalidRequest(
                f"input '{tensor.name}' batch size does not match other inputs for "
                f"'{self._model}': it is {size}, that of another is {batch_size}"
            )
        if size > self._most_rows:
            return InvalidRequest(
                f"inference request batch-size must be <= {self._most_rows} for "
                f"'{self._model}', that of input '{tensor.name}' is {size}"
            )
        return InvalidRequest(
            f"input '{tensor.name}' has batch size {size}, model '{self._model}' "
            f"takes 1 to {self._max_batch_size}"
        )


def _listed(names: Iterable[str]) -> str:
    return "[" + ",".join(f"'{name}'" for name in sorted(names)) + "]"


def quoted(names: Iterable[str]) -> str:
    """Return `names` as errors list them."""
    return ", ".join(f"'{name}'" for name in sorted(names)) or "none"
