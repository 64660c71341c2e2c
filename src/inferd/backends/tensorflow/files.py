"""Files: the interface of a SavedModel folder or GraphDef file, read without TensorFlow.

Only a SavedModel's own assets may fill its lookup tables. An operator fills a table from any file
whose name it is given. When TensorFlow loads a model, it supplies the paths of the model's own
assets by feeding the tensors that the SavedModel lists. So the name is traced back from each such
operator, and must come from one of these tensors: directly, through function arguments, or through
a variable, as TensorFlow 2 writes it.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from inferd.backends.tensorflow.graph import (
    NOTHING,
    RESTORING,
    TfGraph,
    TfNode,
    declared,
    decoded,
    integer,
    merged,
    messages,
    text,
)
from inferd.config.model import ModelConfig
from inferd.core.signature import Declared, Signature
from inferd.errors import InvalidConfig
from inferd.formats.protobuf import Malformed, fields

MAX_FILE_BYTES = (1 << 31) - 1
"""Protobuf's own limit for a message; a SavedModel's weights are in separate files."""

SERVING = "serving_default"
SERVE_TAG = "serve"
_INIT_KEY = "__saved_model_init_op"
_INIT_COLLECTIONS = ("saved_model_main_op", "legacy_init_op")  # of older files


@dataclass(frozen=True, slots=True)
class ServedSignature:
    """What is fed and fetched: the protocol's names -> TensorFlow's tensor names.

    `tags` are those of the chosen MetaGraph, none for a GraphDef. `nodes` are all nodes that run,
    at load or for a request.
    """

    signature: Signature
    feeds: dict[str, str]
    fetches: dict[str, str]
    tags: tuple[str, ...]
    nodes: list[TfNode]


def read_saved_model(folder: Path, config: ModelConfig, what: str) -> ServedSignature:
    """Return the interface of the SavedModel in `folder`, for the signature `config` chooses.

    Raises InvalidConfig, whose text begins with `what`.
    """
    file = folder / "saved_model.pb"
    if not file.is_file():
        has_text = (folder / "saved_model.pbtxt").is_file()
        why = "has only the text form of it" if has_text else "is no SavedModel"
        raise InvalidConfig(f"{what} {why}: there is no saved_model.pb in it")
    try:
        return _interface(memoryview(_content(file, what)), config, what)
    except Malformed as error:
        msg = f"{what}: saved_model.pb is not what TensorFlow writes, or cut off: {error}"
        raise InvalidConfig(msg) from error


def read_graph(file: Path, config: ModelConfig, what: str) -> ServedSignature:
    """Return the interface of the GraphDef `file`: its placeholders, and the outputs of `config`.

    The file has no datatypes of outputs, so they are taken from `config`. Raises InvalidConfig.
    """
    try:
        graph = TfGraph(memoryview(_content(file, what)))
        placeholders = graph.placeholders()
    except Malformed as error:
        raise InvalidConfig(f"{what} is not what TensorFlow writes, or cut off: {error}") from error
    if not graph.nodes:
        raise InvalidConfig(f"{what} has no nodes: it is no GraphDef")
    if not config.output:
        shown = ", ".join(f"'{name}'" for name in graph.unread()[-5:])
        msg = f"{what} does not say which nodes are outputs; config.pbtxt has to, maybe {shown}"
        raise InvalidConfig(msg)
    fetches = {output.name: _tensor(output.name) for output in config.output}
    for name, tensor in fetches.items():
        if tensor.partition(":")[0] not in graph.nodes:
            raise InvalidConfig(f"{what} has no node '{name}', which config.pbtxt has as output")
    outputs = {
        o.name: Declared(o.name, "", (), o.datatype, is_unranked=True) for o in config.output
    }
    nodes = graph.reached(fetches.values())
    _check_tables(fills_from_elsewhere(graph, frozenset(), [], nodes), what)
    used = {node.name for node in nodes}
    # Placeholders of training, such as a keep probability, are left over in frozen graphs.
    inputs = {name: each for name, each in placeholders.items() if name in used}
    feeds = {name: f"{name}:0" for name in inputs}
    return ServedSignature(Signature(inputs, {}, outputs), feeds, fetches, (), nodes)


def _interface(content: memoryview, config: ModelConfig, what: str) -> ServedSignature:
    meta_graph, tags = _meta_graph(content, config, what)
    signatures = {text(entry, 1): merged(entry, 2) for entry in messages(meta_graph, 5)}
    chosen = _chosen(signatures, config, what)
    inputs, feeds = _tensors(signatures[chosen], 1, what)
    outputs, fetches = _tensors(signatures[chosen], 2, what)
    graph = TfGraph(merged(meta_graph, 2))
    starts = _run_first(meta_graph)
    if _INIT_KEY in signatures:
        starts += _tensors(signatures[_INIT_KEY], 2, what)[1].values()
    loading = graph.reached(starts)
    fetched = graph.reached(fetches.values())
    # SaverDef.restore_op_name, which TensorFlow runs to read the variables.
    restored = graph.reached([text(merged(meta_graph, 3), 3)])
    others, assets = [*fetched, *restored], asset_tensors(meta_graph, what)
    _check_tables(fills_from_elsewhere(graph, assets, loading, others), what)
    # Restoring may read files, which are the model's own variables;
    # whatever else runs then may not.
    nodes = [*fetched, *loading, *(node for node in restored if node.op not in RESTORING)]
    return ServedSignature(Signature(inputs, {}, outputs), feeds, fetches, tags, nodes)


def _check_tables(foreign: TfNode | None, what: str) -> None:
    if foreign is not None:
        msg = f"{what}: node '{foreign.name}' fills a table from a file that is no asset of it"
        raise InvalidConfig(msg)


def _run_first(meta_graph: memoryview) -> list[str]:
    """Return the operations that TensorFlow runs after loading the graph, from collections."""
    found: list[str] = []
    for entry in messages(meta_graph, 4):
        if text(entry, 1) in _INIT_COLLECTIONS:
            found += map(decoded, messages(merged(merged(entry, 2), 1), 1))
    return found


def _meta_graph(
    content: memoryview, config: ModelConfig, what: str
) -> tuple[memoryview, tuple[str, ...]]:
    wanted = config.parameters.get("TF_GRAPH_TAG", SERVE_TAG)
    seen = []
    for meta_graph in messages(content, 2):
        tags = tuple(decoded(tag) for tag in messages(merged(meta_graph, 1), 4))
        if wanted in tags:
            return meta_graph, tags
        seen.append(", ".join(tags) or "none")
    msg = f"{what} has no graph tagged '{wanted}'; it has {' and '.join(seen) or 'no graphs'}"
    raise InvalidConfig(msg)


def _chosen(signatures: dict[str, memoryview], config: ModelConfig, what: str) -> str:
    # TensorFlow's own: it is run at load and gives nothing.
    known = [name for name in signatures if name != _INIT_KEY]
    usual = known[0] if len(known) == 1 else SERVING
    wanted = config.parameters.get("TF_SIGNATURE_DEF") or usual
    if wanted in known:
        return wanted
    shown = ", ".join(f"'{name}'" for name in known) or "none"
    msg = f"{what} has no signature '{wanted}'; it has {shown} (parameter TF_SIGNATURE_DEF chooses)"
    raise InvalidConfig(msg)


def _tensors(
    signature: memoryview, number: int, what: str
) -> tuple[dict[str, Declared], dict[str, str]]:
    tensors, names = {}, {}
    for entry in messages(signature, number):
        key, info = text(entry, 1), merged(entry, 2)
        names[key] = text(info, 1)
        # TensorInfo names a dense tensor; other encodings leave the name empty (meta_graph.proto).
        if not names[key] and number == 1:
            msg = f"{what}: '{key}' is a sparse or composite tensor, which cannot be served"
            raise InvalidConfig(msg)
        tensors[key] = declared(key, integer(info, 2), merged(info, 3))
    return tensors, names


def _tensor(name: str) -> str:
    return name if ":" in name else f"{name}:0"


def _content(file: Path, what: str) -> bytes:
    size = file.stat().st_size
    if size > MAX_FILE_BYTES:
        msg = f"{what}: {file.name} has {size} bytes, TensorFlow reads at most {MAX_FILE_BYTES}"
        raise InvalidConfig(msg)
    return file.read_bytes()


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
            raise InvalidConfig(f"{what}: its asset '{path}' is no path below its folder 'assets'")
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
