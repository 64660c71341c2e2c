"""How a request runs through a TorchScript model: the per-request path."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from inferd.backends.pytorch.naming import Binding, binding, outputs_in_order
from inferd.backends.pytorch.runtime import Context, failure, to_array, to_tensor
from inferd.backends.pytorch.script import Script
from inferd.backends.pytorch.structure import (
    BY_NAME,
    TENSOR,
    TEXTS,
    Convert,
    assembled,
    flattened,
    plain_array,
    texts,
)
from inferd.config.model import ModelConfig
from inferd.config.parameter import is_on
from inferd.core.arrays import Run
from inferd.errors import BackendFailed
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType

_PLAIN = frozenset(DataType) - {DataType.BYTES, DataType.BF16}
"""Datatypes whose arrays convert to tensors directly."""


def script_run(script: Script, config: ModelConfig) -> Run:
    """Return the function that runs one request through `script`."""
    torch, device = script.torch, script.device
    local = Context(torch, config)
    call = _caller(script, config)
    outputs = _Outputs(script, config)
    guard = torch._C._InferenceMode  # the public one costs five times as much
    infers = is_on(config, "INFERENCE_MODE", default=True)
    optimises = not is_on(config, "DISABLE_OPTIMIZED_EXECUTION")
    is_cuda = device.type == "cuda"
    if not infers:
        guard = torch.set_grad_enabled

    def run(feed: dict[str, Array], names: Sequence[str]) -> Sequence[Array]:
        local.__dict__  # noqa: B018  a thread's first access initializes it
        try:
            with guard(infers):
                if optimises:
                    result = call(feed)
                else:
                    with torch.jit.optimized_execution(False):
                        result = call(feed)
                if is_cuda:
                    # Kernels run asynchronously, and the time of
                    # computing would end before they do.
                    torch.cuda.current_stream(device).synchronize()
                return outputs.picked(result, names)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise failure(config, "run it", error) from error

    return run


def _caller(script: Script, config: ModelConfig) -> Callable[[dict[str, Array]], Any]:
    """Return a function that calls the module with a request's arrays."""
    torch, module = script.torch, script.call
    datatypes = {tensor.name: tensor.datatype for tensor in config.input}
    bound = binding(config, script.arguments)
    moves, copies = script.device.type != "cpu", script.writes

    def tensor_of(name: str, array: Array) -> object:
        tensor = to_tensor(torch, array, datatypes[name])
        if moves:
            return tensor.to(script.device)
        return tensor.clone() if copies else tensor

    def value(name: str, array: Array) -> Any:
        return texts(name, array) if datatypes[name] is DataType.BYTES else tensor_of(name, array)

    kinds = {argument.plain_kind for argument in bound.arguments}
    may_lack = any(tensor.optional for tensor in config.input)
    if bound.many is not None or may_lack or not kinds <= {TENSOR, TEXTS}:
        return lambda feed: module(**_arguments(bound, feed, tensor_of))
    places = [
        (one.name, bound.names[one.name]) for one in bound.arguments if one.name in bound.names
    ]
    order = [name for _, name in places]
    first = script.arguments[: len(places)]
    if [to for to, _ in places] != [argument.name for argument in first]:
        return lambda feed: module(**{to: value(name, feed[name]) for to, name in places})
    is_plain = not moves and not copies and _PLAIN.issuperset(datatypes.values())
    if is_plain:  # the usual model: nothing to decide for each tensor
        wrap = torch.from_numpy
        return lambda feed: module(*[wrap(feed[name]) for name in order])
    return lambda feed: module(*[value(name, feed[name]) for name in order])


def _arguments(bound: Binding, feed: dict[str, Array], convert: Convert) -> dict[str, object]:
    """Return the arguments of forward, if they are more than tensors and texts."""
    given: dict[str, object] = {}
    for argument in bound.arguments:
        if argument is bound.many:
            many = {name: convert(name, feed[name]) for name in bound.rest if name in feed}
            given[argument.name] = many if argument.plain_kind == BY_NAME else list(many.values())
            continue
        value = assembled(argument, bound.names, feed, convert)
        if value is not None:
            given[argument.name] = value
    return given


class _Outputs:
    """Converts a model's results to the arrays of its outputs."""

    def __init__(self, script: Script, config: ModelConfig) -> None:
        torch = script.torch
        self._torch = torch
        self._tensor, self._strided = torch.Tensor, torch.strided
        self._plain = script.dtypes - {torch.bfloat16}
        self._dtypes, self._state = script.dtypes, script.state
        self._copies = script.has_hidden_state
        self._model = config.name
        self._order = outputs_in_order(config)
        self._datatypes = {tensor.name: tensor.datatype for tensor in config.output}

    def picked(self, result: object, names: Sequence[str]) -> list[Array]:
        """Return the arrays of the outputs `names` in the model's `result`.

        Raises BackendFailed for an output that is missing, or of a type that no output can have.
        """
        order = self._order
        # The usual results first, as this runs for each request.
        if type(result) is self._tensor:
            values = {order[0]: result}
        elif isinstance(result, dict) and self._are_tensors(result.values()):
            values = result
        elif isinstance(result, tuple) and self._are_tensors(result):
            values = dict(zip(order, result, strict=False))
        else:
            values = _named(flattened(result), order)
        arrays = []
        for name in names:
            if name not in values:
                gave = sorted(values) if isinstance(result, dict) else _count(result)
                msg = f"model '{self._model}' gave no output '{name}', it gave {gave}"
                raise BackendFailed(msg)
            arrays.append(self._array(name, values[name]))
        return arrays

    def _are_tensors(self, values: Iterable[object]) -> bool:
        tensor = self._tensor
        for one in values:  # noqa: SIM110  a generator is slower
            # By `is`, as isinstance of a tensor calls Python code.
            if type(one) is not tensor:
                return False
        return True

    def _array(self, name: str, value: Any) -> Array:
        if type(value) is not self._tensor:
            plain = plain_array(value, self._datatypes[name])
            if plain is not None:
                return plain
            kind = type(value).__name__
            msg = f"model '{self._model}' gave output '{name}' as {kind}, not a tensor"
            raise BackendFailed(msg)
        dtype = value.dtype
        # Sparse and quantised tensors have no memory that an array could show.
        if dtype not in self._dtypes or value.layout is not self._strided:
            msg = f"model '{self._model}' gave output '{name}' as {dtype}, {value.layout}"
            raise BackendFailed(msg)
        is_plain = dtype in self._plain
        array: Array = value.numpy(force=True) if is_plain else to_array(self._torch, value)
        is_state = self._state and value.untyped_storage().data_ptr() in self._state
        if is_state or self._copies:
            return array.copy()  # a later run may change the module's state
        return array


def _named(found: Sequence[tuple[str, Any]], outputs: Sequence[str]) -> dict[str, Any]:
    """Return the values of a nested result, by their dict keys, or else in order."""
    by_key = dict(found)
    if len(by_key) == len(found) and not by_key.keys().isdisjoint(outputs):
        return by_key
    return dict(zip(outputs, (value for _, value in found), strict=False))


def _count(result: Any) -> str:
    return f"{len(flattened(result))} of type {type(result).__name__}"
