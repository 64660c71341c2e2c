"""Assets: checks that only a SavedModel's own assets fill its lookup tables.

An operator fills a table from any file whose name it is given. When TensorFlow loads a model, it
supplies the paths of the model's own assets by feeding the tensors that the SavedModel lists. So
the name is traced back from each such operator, and must come from one of these tensors: directly,
through function arguments, or through a variable, as TensorFlow 2 writes it.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from pathlib import PurePosixPath

from inferd.backends.tensorflow.fields import integer, merged, messages, text
from inferd.backends.tensorflow.graph import NOTHING, TfGraph, TfNode
from inferd.errors import InvalidConfig
from inferd.formats.protobuf import fields

_FILLS = ("InitializeTableFromTextFile", "InitializeTableFromTextFileV2")
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_WRITES = ("AssignVariable", "ResourceScatter", "ResourceStridedSliceAssign")
_LISTED, _COLLECTIONS, _COLLECTION = 6, 4, "saved_model_assets"
_ANY_LIST = 5
_STRING = 7  # DataType

MAX_DEPTH = 64
"""The most steps a name is traced back."""


def asset_tensors(meta_graph: memoryview, what: str) -> frozenset[str]:
    """Return the tensors that TensorFlow feeds with the paths of assets when it loads the model.

    Raises InvalidConfig, whose text begins with `what`, for a path that leaves the folder of
    assets; Malformed.
    """
    # asset_file_def; older files have a collection instead.
    listed = list(messages(meta_graph, _LISTED))
    if not listed:
        collections = {text(one, 1): merged(one, 2) for one in messages(meta_graph, _COLLECTIONS)}
        collection = collections.get(_COLLECTION, NOTHING)
        # If a collection has lists of different kinds, TensorFlow uses only the last.
        if all(number == _ANY_LIST for number, _, _ in fields(collection)):
            listed = [merged(one, 2) for one in messages(merged(collection, _ANY_LIST), 1)]
    for asset in listed:
        path = PurePosixPath(text(asset, 2))
        # TensorFlow joins it to the folder "assets" without looking.
        if path.is_absolute() or not path.parts or ".." in path.parts or "\\" in str(path):
            msg = f"{what}: its asset '{path}' is no path below its folder 'assets'"
            raise InvalidConfig(msg)
    return frozenset(text(merged(asset, 1), 1) for asset in listed)


def fills_from_elsewhere(
    graph: TfGraph,
    assets: frozenset[str],
    loading: Sequence[TfNode],
    others: Sequence[TfNode],
) -> TfNode | None:
    """Return the first node that fills a table from a file that is not known to be an asset.

    `loading` are the nodes that run while assets are fed; none of `others` may fill a table.
    """
    for node in others:
        if node.op in _FILLS:
            return node
    fed = {id(node) for node in loading}
    trail = _Trail(graph, assets)
    for scope, node in graph.scoped():
        if id(node) in fed and node.op in _FILLS and not trail.leads_to_asset(scope, node, 1):
            return node
    return None


class _Trail:
    """Traces a text through a graph back to its origin. Scope "" is outside functions.

    A text whose origin is not certain leads to no asset.
    """

    def __init__(self, graph: TfGraph, assets: frozenset[str]) -> None:
        self._graph = graph
        self._assets = assets
        self._known: dict[tuple[str, str], bool] = {}
        self._depth = 0

    def leads_to_asset(self, scope: str, node: TfNode, place: int) -> bool:
        """Return whether input `place` of `node` is always the path of an asset."""
        # "^name" is a control dependency, which carries no value (NodeDef.input).
        data = [tensor for tensor in node.inputs if not tensor.startswith("^")]
        if place >= len(data) or self._depth >= MAX_DEPTH:
            return False
        key = scope, data[place]
        if key not in self._known:
            self._known[key] = False  # a cycle leads nowhere
            self._depth += 1
            self._known[key] = self._is_asset(*key)
            self._depth -= 1
        return self._known[key]

    def _is_asset(self, scope: str, tensor: str) -> bool:
        name, _, rest = tensor.partition(":")
        arguments = self._graph.arguments(scope)
        if scope and not rest and name in arguments:
            return self._is_argument_asset(scope, arguments.index(name))
        node = self._graph.node(scope, name)
        if node is None:
            return False
        if not scope and f"{name}:{rest or '0'}" in self._assets:
            # Only an output that TensorFlow replaces by feeding it; another
            # operation of that name would compute its own.
            return node.op in ("Placeholder", "Const")
        if node.op == "Identity":
            return self.leads_to_asset(scope, node, 0)
        is_read = node.op == "ReadVariableOp" and bool(self._writes)
        return is_read and all(self.leads_to_asset(*write, 1) for write in self._writes)

    def _is_argument_asset(self, function: str, place: int) -> bool:
        callers = self._callers[function]
        return bool(callers) and all(
            (node.op == function or (node.op in _CALLS and node.calls == (function,)))
            and self.leads_to_asset(scope, node, place)
            for scope, node in callers
        )

    @cached_property
    def _callers(self) -> defaultdict[str, list[tuple[str, TfNode]]]:
        found = defaultdict(list)
        for scope, node in self._graph.scoped():
            for function in {node.op, *node.calls}:
                found[function].append((scope, node))
        return found

    @cached_property
    def _writes(self) -> list[tuple[str, TfNode]]:
        """Nodes that may write texts to a variable: which one is unknown, as it has many names."""
        return [
            (scope, node)
            for scope, node in self._graph.scoped()
            if node.op.startswith(_WRITES)
            and integer(node.attributes.get("dtype", NOTHING), 6) in (_STRING, 0)
        ]
