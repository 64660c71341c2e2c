"""Verdict: whether the rows of a PyTorch model's batch are independent.

Graphs are run with what is known of tensors in place of tensors. That of a torch.export program
says the shapes of inputs: a dim that is no number was exported as a variable one. A TorchScript
model's is inlined first; the configuration says how many dims inputs have, since the file does not.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from inferd.backends.pytorch.export import Export
from inferd.backends.pytorch.naming import binding
from inferd.backends.pytorch.rows.call import Handle, as_rows, handles_in
from inferd.backends.pytorch.rows.follow import TorchFlow, fixed, has_statistics, is_truth, item_of
from inferd.backends.pytorch.script import Script
from inferd.backends.pytorch.structure import TENSOR
from inferd.config.model import ModelConfig
from inferd.core.rows import OPEN, Verdict
from inferd.formats.onnx_graph import GraphInput
from inferd.rows.flow import RowFlow
from inferd.rows.value import LostTensor, Mixed, give_up
from inferd.rows.verdict import Followed, given_rows, verdict_by
from inferd.tensor.dtype import DataType

_MOST_STEPS = 50_000

_TAKING_LISTS = ("len", "__contains__", "__is__", "__isnot__", "zeros", "ones", "full")

_UNKNOWN = object()
"""A device, a layout or the like, which no rule looks at."""


def verdict_on_script(script: Script, config: ModelConfig) -> Verdict:
    """Return whether the rows of `script`, served with `config`, are independent. Never raises."""
    if config.max_batch_size < 1:
        return Verdict(OPEN, "it does not batch")
    return verdict_by(partial(_followed_script, script, config), odd=(Exception,))


def _followed_script(script: Script, config: ModelConfig, flow: RowFlow) -> Followed:
    bound = binding(config, script.arguments)
    kinds = {argument.plain_kind for argument in bound.arguments if argument.name in bound.names}
    if bound.many is not None or kinds - {TENSOR} or any(one.optional for one in config.input):
        give_up("its inputs are more than tensors, or may be left out")
    inputs = {tensor.name: tensor for tensor in config.input}
    ports, given = [], {}
    for argument, name in bound.names.items():
        tensor = inputs[name]
        shape = tensor.dims if tensor.reshape is None else tensor.reshape
        ports.append(GraphInput(name, (-1, *shape)))
        is_integer = tensor.datatype in (DataType.INT64, DataType.INT32)
        given[argument] = Handle(given_rows(flow, ports[-1]), is_integer=is_integer)
    graph, schema = script.module.inlined_graph, script.module.forward.schema
    names = [one.debugName() for one in graph.inputs()]
    values = [script.module]
    # The first argument is self, the module.
    values += [given.get(one.name, one.default_value) for one in schema.arguments[1:]]
    walk = _Walk(TorchFlow(flow), dict(zip(names, values, strict=True)))
    walk.block(graph)
    results = [walk.value(one) for one in graph.outputs()]
    found = list(handles_in(results))
    return ports, {f"output {n}": one.value for n, one in enumerate(found)}


class _Walk:
    """Runs blocks of a graph. `values` are by name: handles, numbers, lists, modules."""

    def __init__(self, torch_flow: TorchFlow, values: dict[str, Any]) -> None:
        self._flow = torch_flow
        self._values = values
        self._fixed: dict[int, Handle] = {}
        self._steps = 0

    def value(self, name: Any) -> Any:
        return self._values[name.debugName()]

    def block(self, block: Any) -> None:
        """Run the nodes of `block`. Raises Mixed, Unclear."""
        for node in block.nodes():
            self._step()
            outputs = list(node.outputs())
            made = self._made(node)
            if not outputs:
                continue
            if len(outputs) == 1:
                made = (made,)
            elif isinstance(made, Handle):  # lost
                made = [Handle(made.value, made.views) for _ in outputs]
            for output, one in zip(outputs, made, strict=True):
                self._values[output.debugName()] = one

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            give_up(f"it has more than {_MOST_STEPS} operators")

    def _made(self, node: Any) -> Any:
        kind = node.kind()
        values = [self.value(one) for one in node.inputs()]
        if kind == "prim::If":
            return self._branch(node, values[0])
        if kind == "prim::Loop":
            return self._loop(node, values)
        if list(node.blocks()) or kind in ("prim::SetAttr", "prim::RaiseException"):
            give_up(f"{kind} is not followed")
        if kind == "prim::GetAttr":
            return self._known(getattr(values[0], node.s("name")))
        if kind == "prim::Constant":
            return self._known(next(node.outputs()).toIValue())
        if kind.startswith("prim::"):
            return _primitive(kind.removeprefix("prim::"), values)
        return self._operator(node, kind, values)

    def _known(self, value: Any) -> Any:
        if hasattr(value, "untyped_storage"):
            if id(value) not in self._fixed:
                # One handle for a weight wherever it is named, so that a write to it is seen
                # everywhere. The module keeps the tensors alive, so ids stay theirs.
                self._fixed[id(value)] = fixed(value)
            return self._fixed[id(value)]
        if isinstance(value, list | tuple):
            return tuple(self._known(one) for one in value)  # nothing may be added to it
        if isinstance(value, dict):
            return {key: self._known(one) for key, one in value.items()}
        return value

    def _branch(self, node: Any, condition: Any) -> Any:
        if isinstance(condition, Handle) and not as_rows(condition).is_plain:
            raise Mixed("prim::If runs one branch or the other for all rows together")
        then, other = node.blocks()
        block = then if is_truth(condition) else other
        self.block(block)
        made = [self.value(one) for one in block.outputs()]
        return made[0] if len(made) == 1 else made

    def _loop(self, node: Any, values: Sequence[Any]) -> Any:
        """Run each round; how many there are has to be known."""
        [body] = node.blocks()
        count, goes_on, *carried = values
        if isinstance(count, Handle) and not as_rows(count).is_plain:
            raise Mixed("prim::Loop runs as many rounds as there are rows, or as they say")
        if not isinstance(count, int):
            give_up("prim::Loop: the number of its rounds is not known")
        inputs, outputs = list(body.inputs()), list(body.outputs())
        for index in range(count):
            self._step()
            if not is_truth(goes_on):
                break
            for name, one in zip(inputs, [index, *carried], strict=True):
                self._values[name.debugName()] = one
            self.block(body)
            goes_on, *carried = [self.value(one) for one in outputs]
        return carried[0] if len(carried) == 1 else carried

    def _operator(self, node: Any, kind: str, values: Sequence[Any]) -> Any:
        name = kind.rpartition("::")[2]
        is_list = name in ("slice", "add", "list") and isinstance(values[0], list | tuple)
        if is_list or name in ("__getitem__", "append", "format", "warn"):
            return _on_list(name, values)
        schema = _schema(node)
        if name == "size" and len(values) == 1:
            return self._flow.call(schema, values, {})
        # Arithmetic on numbers, lists and texts, which TorchScript has as operators, too.
        if not any("Tensor" in str(one.type) for one in schema.arguments):
            lists = any(isinstance(one, list | tuple) for one in values)
            if lists and name not in _TAKING_LISTS:
                give_up(f"{name} of a list is not followed")
            if any(str(one.type) == "Tensor" for one in schema.returns):
                return self._flow.call(schema, values, {})
            return self._flow.scalar(name, values)
        if name in ("Int", "IntImplicit", "Float", "Bool", "item", "ScalarImplicit"):
            return self._flow.scalar("Int" if name == "IntImplicit" else name, values)
        return self._flow.call(schema, values, {})


def _schema(node: Any) -> Any:
    import torch  # loaded long since: this is its graph

    return torch._C.parse_schema(node.schema())


_PASSING_ON = ("TupleUnpack", "ListUnpack", "unchecked_cast", "unchecked_unwrap_optional", "data")


def _primitive(kind: str, values: Sequence[Any]) -> Any:
    if kind in ("ListConstruct", "TupleConstruct"):
        return list(values)
    if kind in _PASSING_ON:
        return values[0]
    if kind == "TupleIndex":
        return values[0][values[1]]
    if kind == "NumToTensor":
        value = values[0]
        is_integer = value.is_integer if isinstance(value, Handle) else isinstance(value, int)
        return Handle(as_rows(value), is_integer=is_integer)
    if kind == "DictConstruct":
        if not all(isinstance(one, bool | int | float | str) for one in values[::2]):
            give_up("a key of a dict is not known")
        return dict(zip(values[::2], values[1::2], strict=True))
    if kind == "is_nested":
        return False
    if kind in ("device", "dtype", "layout", "is_cuda", "requires_grad", "Uninitialized"):
        return _UNKNOWN
    give_up(f"prim::{kind} is not followed")


def _on_list(name: str, values: Sequence[Any]) -> Any:
    if name == "__getitem__":
        listed, place = values
        if isinstance(listed, Handle):
            return item_of(listed)
        if isinstance(listed, dict) or (isinstance(listed, list | tuple) and type(place) is int):
            return listed[place]
        give_up("an item of a list is not known")
    if name == "slice":
        listed, start, end, step = values
        return listed[start:end:step]
    if name == "list":
        return list(values[0])
    if name == "add":
        return [*values[0], *values[1]]
    if name == "append":
        if isinstance(values[0], tuple):
            give_up("it adds to a list of the model")
        if isinstance(values[0], list):
            values[0].append(values[1])
        return values[0]
    return _UNKNOWN  # a text


# Large transformers have a few thousand; this bounds the time of a load.
_MOST_NODES = 50_000


def verdict_on_export(export: Export) -> Verdict:
    """Return whether the rows of `export` are independent. Never raises."""
    return verdict_by(partial(_followed_export, export), odd=(Exception,))


def _followed_export(export: Export, flow: RowFlow) -> Followed:
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
