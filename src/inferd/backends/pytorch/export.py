"""Export: a torch.export program (.pt2), whose file has names, datatypes and shapes."""

import io
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from inferd.backends.pytorch.archive import check_export, sample_inputs
from inferd.backends.pytorch.interface import Interface
from inferd.backends.pytorch.runtime import (
    DATATYPES,
    PASSING,
    Context,
    failure,
    to_array,
    to_tensor,
)
from inferd.config.model import ModelConfig
from inferd.core.arrays import Run
from inferd.core.signature import Declared
from inferd.errors import InferdError, InvalidConfig, InvalidRequest, Unsupported
from inferd.tensor.array import Array

_loading = threading.Lock()
"""Held while torch.export.load runs, whose state is the process's, whatever backend calls it."""


class Export:
    """A loaded program: its graph, the tensors it keeps, and what it declares.

    `limits` are the minimum and maximum of each dim that has them; `equal` are groups of dims that
    must agree.
    """

    def __init__(self, torch: ModuleType, program: Any, device: Any) -> None:
        self.torch = torch
        self.device = device
        signature = program.graph_signature
        self.graph = program.graph_module
        fixed = {**program.state_dict, **program.constants}
        self.fixed = [
            fixed[spec.target].to(device) if spec.target is not None else None
            for spec in signature.input_specs
        ]
        values = {node.name: node.meta.get("val") for node in program.graph.nodes}
        inputs = _declared([(name, values.get(name)) for name in signature.user_inputs])
        nodes = [str(name) for name in signature.user_outputs]
        names = _keys(program.call_spec.out_spec, len(nodes)) or _distinct(nodes)
        outputs = _declared(
            [(name, values.get(node)) for name, node in zip(names, nodes, strict=True)]
        )
        self.interface = Interface(inputs, outputs)
        # Effect tokens and the like come before the user's outputs
        # (torch.export.graph_signature).
        self.skipped = len(signature.output_specs) - len(signature.user_outputs)
        self.limits: list[tuple[str, int, int, int]] = []
        self.equal: list[list[tuple[str, int]]] = []
        self._learn_dims(program, values, signature.user_inputs)

    def _learn_dims(self, program: Any, values: dict[str, Any], names: Sequence[str]) -> None:
        places: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for name in names:
            for axis, size in enumerate(getattr(values.get(name), "shape", ())):
                if not isinstance(size, int):
                    # By their texts: the symbols are compared by torch
                    # with code that may add guards.
                    places[str(size)].append((name, axis))
        for symbol, limits in program.range_constraints.items():
            for name, axis in places.get(str(symbol), ()):
                # An open limit is sympy's int_oo, which is no number.
                low, high = _bound(limits.lower, 0), _bound(limits.upper, 2**63)
                # Tracing always excludes dims of 0 and 1, which says nothing about the graph.
                self.limits.append((name, axis, 0 if low <= 2 else low, high))
        self.equal = [group for group in places.values() if len(group) > 1]

    def check_shapes(self, feed: dict[str, Array]) -> None:
        """Raise InvalidRequest for a dim that the program was not exported for."""
        for name, axis, low, high in self.limits:
            size = feed[name].shape[axis]
            if not low <= size <= high:
                msg = f"input '{name}' has {size} in dim {axis}, the model takes {low} to {high}"
                raise InvalidRequest(msg)
        for (first, axis), *others in self.equal:
            size = feed[first].shape[axis]
            for name, other in others:
                if feed[name].shape[other] != size:
                    raise InvalidRequest(
                        f"input '{name}' has {feed[name].shape[other]} in dim {other}, input "
                        f"'{first}' has {size} in dim {axis}: the model needs them equal"
                    )


def load_export(torch: ModuleType, file: Path, config: ModelConfig, device: Any) -> Export:
    """Return the program in `file`. Raises InvalidConfig, or BackendFailed if torch refuses it.

    First its sample inputs are unpickled as plain tensors; anything else in them is refused here,
    where torch would fall back to running the pickle.
    """
    what = f"model '{config.name}', '{file.name}'"
    check_export(file, what)
    samples = sample_inputs(file, what)
    try:
        if samples:
            torch.load(io.BytesIO(samples), weights_only=True)
    except Exception as error:
        msg = f"{what}: its sample inputs are more than tensors, which can run any code"
        raise InvalidConfig(msg) from error
    try:
        with _loading:
            program = torch.export.load(str(file))
        # The weights serve all requests, and inputs are the clients'
        # own bytes, maybe shared memory.
        if _writes_what_it_was_given(program):
            raise Unsupported(f"{what} writes to its buffers or inputs, which is not supported")
        return Export(torch, program, device)
    except InferdError:
        raise
    except Exception as error:
        raise failure(config, "load it", error) from error


def export_run(export: Export, config: ModelConfig) -> Run:
    """Return the function that runs one request through `export`.

    It calls the graph itself. The module that PyTorch makes of it takes five times as long, as it
    repeats the checks made here.
    """
    torch, device = export.torch, export.device
    local = Context(torch, config)
    datatypes = {tensor.name: tensor.datatype for tensor in config.input}
    fixed, forward = export.fixed, export.graph.forward
    user_names = iter(export.interface.inputs)
    given = [(place, next(user_names)) for place, value in enumerate(fixed) if value is None]
    # Asked once: on the CPU, a .to() that changes nothing still costs a call per input.
    moves = device.type != "cpu"
    # The public class makes one of these in Python code, and costs five times as much.
    guard = torch._C._InferenceMode
    named = export.interface.signature(config).outputs
    places = {name: export.skipped + number for number, name in enumerate(named)}

    def run(feed: dict[str, Array], names: Sequence[str]) -> Sequence[Array]:
        local.__dict__  # noqa: B018  a thread's first access initializes it
        export.check_shapes(feed)
        # A list of its own for each run, as several may be under way.
        values = list(fixed)
        for place, name in given:
            tensor = to_tensor(torch, feed[name], datatypes[name])
            values[place] = tensor.to(device) if moves else tensor
        try:
            with guard(True):
                results = forward(*values)
                return [to_array(torch, results[places[name]]) for name in names]
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise failure(config, "run it", error) from error

    return run


def _writes_what_it_was_given(program: Any) -> bool:
    """Return whether a run would modify the program's own tensors, or a request's."""
    signature = program.graph_signature
    if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
        return True
    given: set[object] = set()  # and views of them
    # In the order of execution, so a view is found before what writes to it.
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op == "placeholder":
            given.add(node)
        elif schema is not None:
            passes = schema.name.removeprefix("aten::") in PASSING
            for argument, value in _by_argument(schema, node):
                alias = argument.alias_info
                if (alias is None and not passes) or given.isdisjoint(value):
                    continue
                if alias is not None and alias.is_write:
                    return True
                given.add(node)
        elif getattr(node.target, "__name__", "") == "getitem" and node.args[0] in given:
            given.add(node)
    return False


def _by_argument(schema: Any, node: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the arguments of an operator and what a call gives for each, which may be a list."""
    named = {one.name: one for one in schema.arguments}
    given = dict(zip(named, node.args, strict=False)) | dict(node.kwargs)
    for name, value in given.items():
        listed = value if isinstance(value, list | tuple) else [value]
        yield named[name], [one for one in listed if hasattr(one, "all_input_nodes")]


def _keys(spec: Any, count: int) -> list[str]:
    """Return the keys of a program that returns a dict of tensors, else []."""
    keys = spec.context if spec.type is dict else None
    # A value that is a list or dict itself would have several tensors under one key.
    is_flat = isinstance(keys, list) and len(keys) == count and len(spec.children()) == count
    return [str(key) for key in keys] if keys and is_flat else []


def _distinct(nodes: Sequence[str]) -> list[str]:
    """Return `nodes` with a number behind those that came before: a tensor returned again."""
    taken, names = set(nodes), []
    for place, node in enumerate(nodes):
        name = node
        if node in nodes[:place]:
            numbered = (f"{node}_{number}" for number in range(1, len(nodes) + 1))
            name = next(one for one in numbered if one not in taken)
            taken.add(name)
        names.append(name)
    return names


def _declared(tensors: Sequence[tuple[str, Any]]) -> dict[str, Declared]:
    return {
        name: Declared(
            name,
            _kind(value),
            tuple(size if isinstance(size, int) else -1 for size in getattr(value, "shape", ())),
            DATATYPES.get(_kind(value)),
        )
        for name, value in tensors
    }


def _kind(value: Any) -> str:
    return str(getattr(value, "dtype", type(value).__name__)).removeprefix("torch.")


def _bound(limit: Any, default: int) -> int:
    try:
        return int(limit)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return default
