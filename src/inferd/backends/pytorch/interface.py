"""Interface: the inputs and outputs of a torch.export program (.pt2), read without PyTorch.

Its graph is JSON, which names inputs, outputs and their tensors. Programs that this module does
not understand are left to PyTorch, which can tell more.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from inferd.backends.pytorch.archive import check_export
from inferd.backends.pytorch.naming import outputs_in_order
from inferd.backends.pytorch.runtime import DATATYPES
from inferd.config.model import ModelConfig
from inferd.core.signature import Declared, Signature

_TYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32",
    8: "float64", 12: "bool", 13: "bfloat16", 28: "uint16",
}  # fmt: skip
"""Element type numbers in torch.export's JSON -> PyTorch's names."""

_STORED = ("parameter", "buffer", "tensor_constant")
"""The kinds of inputs whose values are in the file itself."""


class Interface(msgspec.Struct):
    """The inputs and outputs of a program, in their order, by name."""

    inputs: dict[str, Declared]
    outputs: dict[str, Declared]

    def signature(self, config: ModelConfig) -> Signature:
        """Return what the file declares, with the output names of `config`.

        Unless a program returns a dict, its outputs have only the names of operations. So a
        configuration may use these, <anything>__<index>, or names of its own in the right order.
        """
        names = outputs_in_order(config)
        # Too many names are left as they are, so that the check of the configuration reports them.
        if set(names) <= set(self.outputs) or len(names) > len(self.outputs):
            return Signature(self.inputs, {}, self.outputs)
        declared = self.outputs.values()
        renamed = {
            name: replace(one, name=name) for name, one in zip(names, declared, strict=False)
        }
        return Signature(self.inputs, {}, renamed)


def read_interface(file: Path, what: str) -> Interface | None:
    """Return the interface of the program in `file`, None if it cannot be determined here.

    Raises InvalidConfig, whose text begins with `what`, for a file that would not be loaded.
    """
    content = check_export(file, what)
    try:
        return _interface(content["graph_module"])
    # The JSON's schema changes with PyTorch's releases; PyTorch itself reads older ones.
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return None


def _interface(module: Any) -> Interface:
    tensors, specs = module["graph"]["tensor_values"], module["signature"]
    inputs = _names(specs["input_specs"], "user_input")
    nodes = _names(specs["output_specs"], "user_output")
    outputs = _keys(module["module_call_graph"][0]["signature"]["out_spec"], len(nodes)) or nodes
    return Interface(
        {name: _declared(name, tensors[name]) for name in inputs},
        {name: _declared(name, tensors[node]) for name, node in zip(outputs, nodes, strict=True)},
    )


def _names(specs: Sequence[Any], kind: str) -> list[str]:
    given = [spec[kind]["arg"]["as_tensor"]["name"] for spec in specs if kind in spec]
    if len(set(given)) != len(given) or set().union(*specs) - {kind, *_STORED}:
        raise ValueError("a name is there twice, or something that is no tensor of a request")
    return given


def _keys(out_spec: str, count: int) -> list[str]:
    """Return the keys of a program that returns a dict of tensors, else []."""
    # torch.utils._pytree.treespec_dumps: the protocol's number, then the structure.
    _version, spec = json.loads(out_spec)
    if spec["type"] != "builtins.dict":
        return []
    keys = [str(key) for key in json.loads(spec["context"])]
    return keys if len(keys) == len(spec["children_spec"]) == count else []


def _declared(name: str, tensor: Any) -> Declared:
    kind = _TYPES[tensor["dtype"]]
    dims = tuple(size.get("as_int", -1) for size in tensor["sizes"])
    return Declared(name, kind, dims, DATATYPES[kind])
