"""Script: a TorchScript model (.pt), whose file tells names, but no datatypes or shapes."""

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

from inferd.backends.pytorch.archive import check_script
from inferd.backends.pytorch.naming import Binding, binding, outputs_in_order
from inferd.backends.pytorch.runtime import (
    DATATYPES,
    Context,
    failure,
    thread_count,
    to_array,
    to_tensor,
)
from inferd.backends.pytorch.structure import (
    BY_NAME,
    TENSOR,
    TEXTS,
    Argument,
    Convert,
    assembled,
    flattened,
    leaves,
    plain_array,
    texts,
)
from inferd.config.model import ModelConfig
from inferd.config.parameter import is_on
from inferd.core.arrays import Array, Run
from inferd.errors import BackendFailed, InvalidConfig
from inferd.tensor.dtype import DataType

_PLAIN = frozenset(DataType) - {DataType.BYTES, DataType.BF16}
"""Datatypes whose arrays are tensors as they are."""


class Script:
    """A loaded module and what it says of itself."""

    def __init__(self, torch: ModuleType, module: Any, device: Any) -> None:
        self.torch = torch
        self.module = module
        self.call = module._c._get_method("forward")  # what calling the module comes to
        self.device = device
        schema = module.forward.schema
        self.arguments = [
            Argument(each.name, str(each.type), each.has_default_value())
            for each in schema.arguments[1:]
        ]
        graph = str(module.inlined_graph)
        self.dtypes = frozenset(getattr(torch, name) for name in DATATYPES if hasattr(torch, name))
        # What writes into its arguments must not write into a request's own bytes.
        self.writes = "_(%" in graph
        tensors = chain(module.buffers(), ())
        self.state = frozenset(tensor.untyped_storage().data_ptr() for tensor in tensors)


def load_script(torch: ModuleType, file: Path, config: ModelConfig, device: Any) -> Script:
    """Return the model in `file`. Raises InvalidConfig for what no TorchScript file is."""
    check_script(file, f"model '{config.name}', '{file.name}'")
    try:
        module = torch.jit.load(str(file), map_location=device).eval()
        return Script(torch, module, device)
    except (RuntimeError, ValueError, AttributeError) as error:
        raise failure(config, "load it", error) from error


def check_arguments(script: Script, config: ModelConfig) -> None:
    """Check that `config` names inputs and outputs for the model. Raises InvalidConfig."""
    if config.input and config.output:
        _check_kinds(config, binding(config, script.arguments))
        outputs_in_order(config)
        return
    takes = ", ".join(f"'{each.name}' ({each.kind})" for each in script.arguments)
    msg = (
        f"model '{config.name}': TorchScript tells no datatypes and shapes, so config.pbtxt has to "
        f"list input and output; forward takes {takes or 'nothing'}"
    )
    raise InvalidConfig(msg)


def _check_kinds(config: ModelConfig, bound: Binding) -> None:
    datatypes = {tensor.name: tensor.datatype for tensor in config.input}
    made_of = [(leaf, bound.names.get(leaf.name)) for leaf in leaves(bound.arguments)]
    made_of += [(Argument(name, TENSOR), name) for name in bound.rest]
    for leaf, name in made_of:
        if name is None:
            continue
        kind = leaf.plain_kind
        if datatypes[name] not in leaf.datatypes:
            msg = (
                f"model '{config.name}': input '{name}' is {datatypes[name].value}, but the "
                f"argument it is for is {leaf.kind}"
            )
            raise InvalidConfig(msg)
        if config.max_batch_size > 0 and kind not in (TENSOR, TEXTS):
            msg = (
                f"model '{config.name}': input '{name}' is for an argument of type {leaf.kind}, "
                f"which has no batch, so max_batch_size has to be 0"
            )
            raise InvalidConfig(msg)


def possible_scalars(config: ModelConfig) -> frozenset[str]:
    """Return the outputs that may have no dims in the model, which a configuration has as [1]."""
    if config.max_batch_size > 0:
        return frozenset()
    inputs = {tensor.name for tensor in config.input}
    return frozenset(
        tensor.name
        for tensor in config.output
        if tensor.dims == (1,) and tensor.reshape is None and tensor.name not in inputs
    )


def script_run(script: Script, config: ModelConfig) -> Run:
    """Return how one request runs through `script`."""
    torch, device = script.torch, script.device
    context = _context(torch, config)
    call = _caller(script, config)
    outputs = outputs_in_order(config)
    guard = torch._C._InferenceMode  # the public one costs five times as much
    infers = is_on(config, "INFERENCE_MODE", default=True)
    optimises = not is_on(config, "DISABLE_OPTIMIZED_EXECUTION")
    if not infers:
        guard = torch.set_grad_enabled

    def run(feed: dict[str, Array], names: Sequence[str]) -> Sequence[Array]:
        context()
        try:
            with guard(infers):
                if optimises:
                    result = call(feed)
                else:
                    with torch.jit.optimized_execution(False):
                        result = call(feed)
                if device.type == "cuda":
                    torch.cuda.current_stream(device).synchronize()
                return _picked(script, config, result, outputs, names)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise failure(config, "run it", error) from error

    return run


def _context(torch: ModuleType, config: ModelConfig) -> Callable[[], object]:
    local = Context(torch, thread_count(config))
    return lambda: local.__dict__


def _caller(script: Script, config: ModelConfig) -> Callable[[dict[str, Array]], Any]:
    """Return what calls the module with a request's arrays."""
    torch, module = script.torch, script.call
    datatypes = {tensor.name: tensor.datatype for tensor in config.input}
    bound = binding(config, script.arguments)
    moves, copies = script.device.type != "cpu", script.writes

    def tensor_of(name: str, array: Array) -> Any:
        tensor = to_tensor(torch, array, datatypes[name])
        if moves:
            return tensor.to(script.device)
        return tensor.clone() if copies else tensor

    def value(name: str, array: Array) -> Any:
        return texts(name, array) if datatypes[name] is DataType.BYTES else tensor_of(name, array)

    kinds = {argument.plain_kind for argument in bound.arguments}
    if bound.many is not None or not kinds <= {TENSOR, TEXTS}:
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


def _arguments(bound: Binding, feed: dict[str, Array], convert: Convert) -> dict[str, Any]:
    """Return what forward is called with, where that is more than tensors and texts."""
    given: dict[str, Any] = {}
    for argument in bound.arguments:
        if argument is bound.many:
            many = {name: convert(name, feed[name]) for name in bound.rest if name in feed}
            given[argument.name] = many if argument.plain_kind == BY_NAME else list(many.values())
            continue
        value = assembled(argument, bound.names, feed, convert)
        if value is not None:
            given[argument.name] = value
    return given


def _picked(
    script: Script, config: ModelConfig, result: Any, outputs: Sequence[str], names: Sequence[str]
) -> list[Array]:
    """Return the arrays of the outputs `names` in what the model gave. Raises BackendFailed."""
    tensor = script.torch.Tensor
    if type(result) is tensor:
        values = {outputs[0]: result}
    elif isinstance(result, dict) and all(type(one) is tensor for one in result.values()):
        values = result
    elif isinstance(result, tuple) and all(type(one) is tensor for one in result):
        values = dict(zip(outputs, result, strict=False))
    else:
        values = _named(flattened(result), outputs)
    arrays = []
    for name in names:
        if name not in values:
            gave = sorted(values) if isinstance(result, dict) else _count(result)
            msg = f"model '{config.name}' gave no output '{name}', it gave {gave}"
            raise BackendFailed(msg)
        arrays.append(_array(script, config, name, values[name]))
    return arrays


def _named(found: Sequence[tuple[str, Any]], outputs: Sequence[str]) -> dict[str, Any]:
    """Return what a nested result holds, by the keys it has in a dict, or else in order."""
    by_key = dict(found)
    if len(by_key) == len(found) and not by_key.keys().isdisjoint(outputs):
        return by_key
    return dict(zip(outputs, (value for _, value in found), strict=False))


def _count(result: Any) -> str:
    return f"{len(flattened(result))} of type {type(result).__name__}"


def _array(script: Script, config: ModelConfig, name: str, value: Any) -> Array:
    torch = script.torch
    # A tensor is asked for its type by `is`: isinstance of it is a call of Python.
    if type(value) is not torch.Tensor:
        plain = plain_array(value, _datatype(config, name))
        if plain is not None:
            return plain
        msg = f"model '{config.name}' gave output '{name}' as {type(value).__name__}, not a tensor"
        raise BackendFailed(msg)
    if value.dtype not in script.dtypes or value.layout is not torch.strided:
        msg = f"model '{config.name}' gave output '{name}' as {value.dtype}, {value.layout}"
        raise BackendFailed(msg)
    array = to_array(torch, value)
    if script.state and value.untyped_storage().data_ptr() in script.state:
        return array.copy()  # a later run may change what the module keeps
    return array


def _datatype(config: ModelConfig, name: str) -> DataType:
    return next(tensor.datatype for tensor in config.output if tensor.name == name)
