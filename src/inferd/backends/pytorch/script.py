"""Script: a TorchScript model (.pt), whose file has names, but no datatypes or shapes."""

import re
from pathlib import Path
from types import ModuleType
from typing import Any

from inferd.backends.pytorch.archive import check_script
from inferd.backends.pytorch.naming import Binding, binding, outputs_in_order
from inferd.backends.pytorch.runtime import DATATYPES, failure
from inferd.backends.pytorch.structure import TENSOR, TEXTS, TorchArgument, leaves
from inferd.config.model import ModelConfig
from inferd.errors import InvalidConfig


class Script:
    """A loaded module and its metadata."""

    def __init__(self, torch: ModuleType, module: Any, device: Any) -> None:
        self.torch = torch
        self.module = module
        self.call = module._c._get_method("forward")  # what calling the module does in the end
        self.device = device
        schema = module.forward.schema
        self.arguments = [
            TorchArgument(each.name, str(each.type), each.has_default_value())
            for each in schema.arguments[1:]
        ]
        graph = module.inlined_graph
        self.dtypes = frozenset(getattr(torch, name) for name in DATATYPES if hasattr(torch, name))
        # A model that writes to its arguments must not write to a request's own bytes.
        self.writes = "_(%" in str(graph) or _has_outputs(graph)
        # To tell outputs that are the module's own memory, which must be copied.
        self.state = frozenset(each.untyped_storage().data_ptr() for each in module.buffers())
        # What is in plain attributes, or replaced by a run, is not among these.
        self.has_hidden_state = self.writes and _has_hidden_state(graph, _stored_names(module))


def _stored_names(module: Any) -> frozenset[str]:
    named = [*module.named_buffers(), *module.named_parameters()]
    return frozenset(name.rpartition(".")[2] for name, _ in named)


_HOLDING_TENSORS = frozenset(("TensorType", "ListType", "DictType", "TupleType", "OptionalType"))


def _has_hidden_state(block: Any, stored: frozenset[str]) -> bool:
    """Return whether `block` uses tensors of the module that are not `stored` under their names."""
    for node in block.nodes():
        if node.kind() == "prim::SetAttr" and _holds_tensors([*node.inputs()][1]):
            return True
        if (
            node.kind() == "prim::GetAttr"
            and node.s("name") not in stored
            and _holds_tensors(node.output())
        ):
            return True
        if any(_has_hidden_state(inner, stored) for inner in node.blocks()):
            return True
    return False


def _holds_tensors(value: Any) -> bool:
    kind = value.type()
    return kind.kind() in _HOLDING_TENSORS and "Tensor" in str(kind)


_WRITTEN = re.compile(r"Tensor\([^)]*!")


def _has_outputs(block: Any) -> bool:
    """Return whether an operator in `block` writes to an argument, which its name may not say."""
    return any(
        _WRITTEN.search(node.schema()) or any(_has_outputs(inner) for inner in node.blocks())
        for node in block.nodes()
    )


def load_script(torch: ModuleType, file: Path, config: ModelConfig, device: object) -> Script:
    """Return the model in `file`. Raises InvalidConfig (see check_script), BackendFailed."""
    check_script(file, f"model '{config.name}', '{file.name}'")
    try:
        # eval(): a module saved while training would draw dropouts and change its running means.
        module = torch.jit.load(str(file), map_location=device).eval()
        return Script(torch, module, device)
    except (RuntimeError, ValueError, AttributeError) as error:
        raise failure(config, "load it", error) from error


def check_arguments(script: Script, config: ModelConfig) -> None:
    """Check that `config` names inputs and outputs for the model. Raises InvalidConfig."""
    check_listed(script, config)
    _check_kinds(config, binding(config, script.arguments))
    outputs_in_order(config)


def check_listed(script: Script, config: ModelConfig) -> None:
    """Check that `config` has inputs and outputs, whatever they are. Raises InvalidConfig."""
    if config.input and config.output:
        return
    takes = ", ".join(f"'{each.name}' ({each.kind})" for each in script.arguments)
    raise InvalidConfig(
        f"model '{config.name}': TorchScript tells no datatypes and shapes, so config.pbtxt has to "
        f"list input and output; forward takes {takes or 'nothing'}"
    )


def _check_kinds(config: ModelConfig, bound: Binding) -> None:
    datatypes = {tensor.name: tensor.datatype for tensor in config.input}
    may_lack = {tensor.name for tensor in config.input if tensor.optional}
    made_of = [(leaf, bound.names.get(leaf.name)) for leaf in leaves(bound.arguments)]
    made_of += [(TorchArgument(name, TENSOR), name) for name in bound.rest]
    for leaf, name in made_of:
        if name is None:
            continue
        if name in may_lack and name not in bound.rest and not leaf.optional:
            raise InvalidConfig(
                f"model '{config.name}': the configuration calls input '{name}' optional, but "
                f"argument '{leaf.name}' of forward has no default"
            )
        kind = leaf.plain_kind
        if datatypes[name] not in leaf.datatypes:
            raise InvalidConfig(
                f"model '{config.name}': input '{name}' is {datatypes[name].value}, but the "
                f"argument it is for is {leaf.kind}"
            )
        if config.max_batch_size > 0 and kind not in (TENSOR, TEXTS):
            raise InvalidConfig(
                f"model '{config.name}': input '{name}' is for an argument of type {leaf.kind}, "
                f"which has no batch, so max_batch_size has to be 0"
            )


def possible_scalars(config: ModelConfig) -> frozenset[str]:
    """Return the outputs that may be scalars in the model, declared as [1] in `config`."""
    if config.max_batch_size > 0:
        return frozenset()
    inputs = {tensor.name for tensor in config.input}
    return frozenset(
        tensor.name
        for tensor in config.output
        if tensor.dims == (1,) and tensor.reshape is None and tensor.name not in inputs
    )
