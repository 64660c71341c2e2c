"""Export: whether the rows of a torch.export program's batch are independent.

Its graph says the shapes of inputs: a dim that is no number was exported as a variable one.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from inferd.backends.pytorch.export import Export
from inferd.backends.pytorch.rows.call import Handle, handles_in
from inferd.backends.pytorch.rows.follow import TorchFlow, fixed, has_statistics, item_of
from inferd.core.rows import Verdict
from inferd.formats.onnx_graph import GraphInput
from inferd.rows.flow import RowFlow
from inferd.rows.value import LostTensor, give_up
from inferd.rows.verdict import Followed, given_rows, verdict_by

# Large transformers have a few thousand; this bounds the time of a load.
_MOST_NODES = 50_000


def verdict_on_export(export: Export) -> Verdict:
    """Return whether the rows of `export` are independent. Never raises."""
    return verdict_by(partial(_followed, export), odd=(Exception,))


def _followed(export: Export, flow: RowFlow) -> Followed:
    torch_flow, values = TorchFlow(flow), {}
    ports: list[GraphInput] = []
    results: list[Any] = []
    declared = iter(export.interface.inputs.values())
    fixed_ones = iter(export.fixed)
    if len(export.graph.graph.nodes) > _MOST_NODES:
        give_up(f"it has more than {_MOST_NODES} operators")
    # Assertions on shapes, which exporters add, depend on rows and compute nothing.
    needed = _needed(export.graph.graph)
    for node in export.graph.graph.nodes:
        if node.op == "call_function" and node not in needed:
            continue
        if node.op == "placeholder":
            tensor = next(fixed_ones)
            if tensor is None:
                port = GraphInput(node.name, next(declared).shape)
                ports.append(port)
                is_integer = _is_integer(node)
                values[node] = Handle(given_rows(flow, port), is_integer=is_integer)
            else:
                values[node] = fixed(tensor)
        elif node.op == "get_attr":
            values[node] = _attribute(export.graph, node.target)
        elif node.op == "call_function":
            values[node] = _called(torch_flow, node, values)
        elif node.op == "output":
            results = [_given(one, values) for one in node.args[0]]
    found = list(handles_in(results[export.skipped :]))
    return ports, {f"output {n}": one.value for n, one in enumerate(found)}


def _needed(graph: Any) -> set[object]:
    """Return the nodes that the outputs depend on, and those that write to what they are given."""
    found: set[object] = set()
    # Backwards, so that whoever uses a node has been looked at before it.
    for node in reversed(graph.nodes):
        schema = getattr(node.target, "_schema", None)
        writes = schema is not None and (schema.is_mutable or has_statistics(schema))
        if node.op == "output" or writes or any(user in found for user in node.users):
            found.add(node)
    return found


def _attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return fixed(module) if hasattr(module, "untyped_storage") else module


def _given(value: Any, values: Mapping[Any, Any]) -> Any:
    """Return an argument with nodes replaced by what they gave."""
    if isinstance(value, list | tuple):
        return [_given(one, values) for one in value]
    return values[value] if hasattr(value, "all_input_nodes") else value


def _called(flow: TorchFlow, node: Any, values: Mapping[Any, Any]) -> Any:
    arguments = [_given(one, values) for one in node.args]
    named = {key: _given(one, values) for key, one in node.kwargs.items()}
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        made = flow.call(schema, arguments, named)
        if isinstance(made, Handle):
            made.is_integer = made.is_integer or _is_integer(node)
        return made
    name = getattr(node.target, "__name__", "")
    if name == "getitem":
        listed, place = arguments
        return item_of(listed) if isinstance(listed, Handle) else listed[place]
    if all(not isinstance(one, list | tuple) for one in arguments) and not named:
        return flow.scalar(name.removeprefix("sym_"), arguments)
    return Handle(LostTensor(f"{name or node.target} is not followed"))


def _is_integer(node: Any) -> bool:
    """Return whether a node gives a tensor of places; UINT8 and bools are masks."""
    return str(getattr(node.meta.get("val"), "dtype", "")) in ("torch.int64", "torch.int32")
