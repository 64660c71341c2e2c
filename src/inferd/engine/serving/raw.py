"""Raw binary requests: a body without JSON is the data of a model's one input."""

from collections.abc import Sequence
from math import prod

from inferd.engine.serving.rule import TensorRule
from inferd.errors import InferdError, InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import MAX_ELEMENT_BYTES
from inferd.tensor.tensor import Tensor, dims_text


def raw_input(data: memoryview, model: str, rules: Sequence[TensorRule]) -> Tensor:
    """Return the one input that the body of a raw binary request is (Binary Tensor Data extension).

    `rules` are those of all inputs of `model`. Raises InvalidRequest unless they leave one meaning.
    """
    if len(rules) != 1:
        raise InvalidRequest(
            f"Raw request must only have 1 input (found 1) to be deduced but got {len(rules)} "
            f"inputs in '{model}' model configuration: a body without JSON is the data of "
            f"a model's only input"
        )
    [rule] = rules
    # One item: the body says nothing of a batch (Triton, binary tensor data extension).
    batch = (1,) * rule.batch_dims
    if rule.datatype is DataType.BYTES:
        if -1 in rule.dims or prod(rule.dims) != 1:
            raise _not_deducible(model, rule, "BYTES need dims [1], one element")
        inner = rule.dims
        if len(data) > MAX_ELEMENT_BYTES:
            raise _not_deducible(model, rule, "one element has at most 2^32 - 1 bytes")
        # The length that V2 puts before each element of BYTES.
        prefix = len(data).to_bytes(4, "little")
        return Tensor(rule.name, rule.datatype, batch + inner, b"".join((prefix, data)))
    if rule.dims.count(-1) > 1:
        raise InvalidRequest(
            f"The shape of the raw input '{rule.name}' can not be deduced because there are "
            f"more than one variable-sized dimension: model '{model}' expects "
            f"{dims_text(rule.shape)}"
        )
    size_bytes = rule.datatype.size_bytes * prod(dim for dim in rule.dims if dim != -1)
    variable, rest = divmod(len(data), size_bytes)
    if rest or (rule.fixed_dims is not None and variable != 1):
        raise _not_deducible(model, rule, f"{len(data)} bytes do not fill it")
    inner = tuple(variable if dim == -1 else dim for dim in rule.dims)
    return Tensor(rule.name, rule.datatype, batch + inner, data)


def _not_deducible(model: str, rule: TensorRule, why: str) -> InferdError:
    return InvalidRequest(
        f"a raw binary request cannot be made into input '{rule.name}' of model "
        f"'{model}', {rule.datatype.value} {list(rule.shape)}: {why}"
    )
