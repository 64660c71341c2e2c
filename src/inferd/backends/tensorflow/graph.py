"""TfGraph: a GraphDef's nodes, and those that a run reaches; read without TensorFlow.

Fields of messages are read by their numbers. Only requested fields are parsed, and nothing is
copied, so even a model of gigabytes takes only as long as its list of nodes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from inferd.core.signature import Declared
from inferd.formats.protobuf import Malformed, fields, signed
from inferd.tensor.dtype import DataType


def messages(message: memoryview, number: int) -> Iterator[memoryview]:
    """Yield the fields `number` of `message` that are messages or texts. Raises Malformed."""
    for found, _, value in fields(message):
        if found == number and isinstance(value, memoryview):
            yield value


def merged(message: memoryview, number: int) -> memoryview:
    """Return the message in field `number`, empty if absent. Raises Malformed.

    Repeated occurrences are merged, as protobuf specifies.
    """
    found = list(messages(message, number))
    return found[0] if len(found) == 1 else memoryview(b"".join(found))


def text(message: memoryview, number: int) -> str:
    """Return field `number` as text, the last if repeated, "" if absent. Raises Malformed."""
    value = memoryview(b"")
    for each in messages(message, number):
        value = each
    return decoded(value)


def decoded(value: memoryview) -> str:
    """Return `value` as text. Raises Malformed."""
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError as error:
        raise Malformed("a text is not UTF-8") from error


def integer(message: memoryview, number: int) -> int:
    """Return field `number` as int64, 0 if absent. Raises Malformed."""
    found = 0
    for each, _, value in fields(message):
        if each == number and isinstance(value, int):
            found = signed(value)
    return found


DATATYPES = {
    1: DataType.FP32, 2: DataType.FP64, 3: DataType.INT32, 4: DataType.UINT8, 5: DataType.INT16,
    6: DataType.INT8, 7: DataType.BYTES, 9: DataType.INT64, 10: DataType.BOOL, 14: DataType.BF16,
    17: DataType.UINT16, 19: DataType.FP16, 22: DataType.UINT32, 23: DataType.UINT64,
}  # fmt: skip
"""TensorFlow's DataType -> datatype."""

_FUNCTION_ATTR, _LIST_ATTR = 10, 1

RESTORING = ("Restore", "RestoreV2", "RestoreSlice")
"""Operations that read the variables of a model from files beside it."""

# Operations that read or write files, or call other machines or Python. Every SavedModel has
# savers, but no output depends on them.
_OUTSIDE = frozenset(
    (
        "ReadFile", "WriteFile", "MatchingFiles", "MatchingFilesDataset", "ImmutableConst",
        "PyFunc", "PyFuncStateless", "EagerPyFunc", "Save", "SaveV2", "SaveSlices",
        "DistributedSave", *RESTORING, "DTensorRestoreV2", "MergeV2Checkpoints",
        "LoadAndRemapMatrix", "GenerateVocabRemapping", "FixedUnigramCandidateSampler",
        "Skipgram", "RecordInput",
        "SqlDataset", "LMDBDataset", "CSVDataset", "CSVDatasetV2", "ExperimentalCSVDataset",
        "ExperimentalLMDBDataset", "ExperimentalSqlDataset", "ExperimentalMatchingFilesDataset",
        "LoadDataset", "SaveDataset", "SaveDatasetV2", "CacheDataset", "CacheDatasetV2",
        "DatasetToTFRecord", "ExperimentalDatasetToTFRecord", "ListSnapshotChunksDataset",
        "TryRpc", "RemoteFusedGraphExecute", "CollectiveGather", "Send", "Recv", "LMDBReader",
        "DumpTensor", "CalibrationStatisticsSaver", "ImportEvent", "FileSystemSetConfiguration",
        "Copy", "CopyHost",
    )
)  # fmt: skip
_OUTSIDE_STARTS = (
    "TFRecord", "TextLine", "FixedLengthRecord", "WholeFileReader", "DebugIdentity", "DebugN",
    "DataServiceDataset", "RegisterDataset", "DecodeProto", "EncodeProto", "Write",
    "CreateSummary", "SnapshotDataset", "SnapshotChunk", "SnapshotNested", "Rpc",
)  # fmt: skip

_FIRST_WITH_SCALARS = 22
"""The version of graphs (TF_GRAPH_DEF_VERSION) in which a placeholder without dims is a scalar."""

_LOOPS = frozenset(("Enter", "RefEnter", "Switch", "RefSwitch", "Merge", "Exit", "NextIteration"))


@dataclass(frozen=True, slots=True)
class TfNode:
    """One operation: `inputs` are tensor names, `calls` function names."""

    name: str
    op: str
    inputs: tuple[str, ...]
    calls: tuple[str, ...]
    attributes: dict[str, memoryview]


class TfGraph:
    """The nodes of a GraphDef by name, and those of its functions. Raises Malformed."""

    def __init__(self, graph_def: memoryview) -> None:
        self.nodes = {node.name: node for node in map(_node, messages(graph_def, 1))}
        self._producer = integer(merged(graph_def, 4), 1)
        self._functions: dict[str, list[TfNode]] = {}
        self._arguments: dict[str, list[str]] = {}
        for function in messages(merged(graph_def, 2), 1):
            declaration = merged(function, 1)
            name = text(declaration, 1)
            # A file may define a function twice: what is searched has the
            # nodes of both, whichever runs.
            inside = self._functions.setdefault(name, [])
            inside += map(_node, messages(function, 3))
            arguments = self._arguments.setdefault(name, [])
            arguments += [text(each, 1) for each in messages(declaration, 2)]

    def placeholders(self) -> dict[str, Declared]:
        """Return the placeholders, by node name."""
        return {
            name: self._placeholder(name, node)
            for name, node in self.nodes.items()
            if node.op == "Placeholder"
        }

    def _placeholder(self, name: str, node: TfNode) -> Declared:
        shape = merged(node.attributes.get("shape", NOTHING), 7)
        found = declared(name, integer(node.attributes.get("dtype", NOTHING), 6), shape)
        # The attribute's default is unknown, and no dims at all meant the same before.
        is_left_out = "shape" not in node.attributes or self._producer < _FIRST_WITH_SCALARS
        return replace(found, is_unranked=True) if is_left_out and not found.shape else found

    def unread(self) -> list[str]:
        """Return the nodes that no other node reads: the outputs are among them."""
        read = {_node_name(tensor) for node in self.nodes.values() for tensor in node.inputs}
        return [
            name
            for name, node in self.nodes.items()
            if name not in read and node.op not in ("NoOp", "Placeholder", "Const")
        ]

    def reached(self, tensors: Iterable[str]) -> list[TfNode]:
        """Return the nodes that must run for `tensors`, including those in functions."""
        outside = {name: [node] for name, node in self.nodes.items()}
        found = _followed(outside, map(_node_name, tensors), _read_by)
        called = [name for node in found for name in _called_by(node)]
        return found + _followed(self._functions, called, _called_by)

    def scoped(self) -> Iterator[tuple[str, TfNode]]:
        """Yield every node with its function, "" for those outside functions."""
        for node in self.nodes.values():
            yield "", node
        for name, inside in self._functions.items():
            for node in inside:
                yield name, node

    def node(self, function: str, name: str) -> TfNode | None:
        """Return a node of `function` ("": outside functions); None unless there is exactly one."""
        if not function:
            return self.nodes.get(name)
        found = [node for node in self._functions.get(function, ()) if node.name == name]
        return found[0] if len(found) == 1 else None

    def arguments(self, function: str) -> list[str]:
        """Return the names of a function's arguments in order."""
        return self._arguments.get(function, [])


NOTHING = memoryview(b"")


def reaches_outside(nodes: Iterable[TfNode]) -> TfNode | None:
    """Return the first of `nodes` that would touch files, the network or Python."""
    for node in nodes:
        # Beginnings, as these come in many versions: TFRecordDataset, TFRecordDatasetV2, and so on.
        if node.op in _OUTSIDE or node.op.startswith(_OUTSIDE_STARTS):
            return node
        stream = text(node.attributes.get("output_stream", NOTHING), 2)
        if node.op == "PrintV2" and stream.startswith("file:"):
            return node
    return None


def has_loops(nodes: Iterable[TfNode]) -> bool:
    """Return whether `nodes` have TensorFlow 1 control flow, which one executor refuses."""
    return any(node.op in _LOOPS for node in nodes)


def declared(name: str, kind: int, shape: memoryview) -> Declared:
    """Return a tensor of TensorFlow's type `kind` and a TensorShapeProto. Raises Malformed.

    A shape of unknown rank is ().
    """
    is_unranked = bool(integer(shape, 3))
    dims = () if is_unranked else tuple(integer(dim, 1) for dim in messages(shape, 2))
    if any(dim < -1 for dim in dims):
        raise Malformed(f"tensor '{name}' has a dim below -1")
    return Declared(name, f"type {kind}", dims, DATATYPES.get(kind), is_unranked=is_unranked)


def _node(message: memoryview) -> TfNode:
    name = op = ""
    inputs, attributes, calls = [], {}, []
    for number, _, value in fields(message):
        if not isinstance(value, memoryview):
            continue
        if number == 1:
            name = decoded(value)
        elif number == 2:
            op = decoded(value)
        elif number == 3:
            inputs.append(decoded(value))
        elif number == 5:
            key, attribute = text(value, 1), merged(value, 2)
            # Others are not kept: the values of constants may be most of the file.
            if key in ("dtype", "shape", "output_stream"):
                attributes[key] = attribute
            calls += _called(attribute)
    return TfNode(name, op, tuple(inputs), tuple(calls), attributes)


def _called(attribute: memoryview) -> list[str]:
    """Return the functions that an AttrValue names, alone or in a list (field 9)."""
    found = []
    for number, _, value in fields(attribute):
        if number == _FUNCTION_ATTR and isinstance(value, memoryview):
            found.append(text(value, 1))
        elif number == _LIST_ATTR and isinstance(value, memoryview):
            found += [text(each, 1) for each in messages(value, 9)]
    return found


def _followed(
    nodes: Mapping[str, list[TfNode]], names: Iterable[str], named_by: Callable[[TfNode], list[str]]
) -> list[TfNode]:
    """Return the `nodes` of these names, and those of the names that they name in turn."""
    waiting = list(names)
    seen: set[str] = set()
    found: list[TfNode] = []
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            found += nodes.get(name, [])
            waiting += [each for node in nodes.get(name, []) for each in named_by(node)]
    return found


def _read_by(node: TfNode) -> list[str]:
    return [_node_name(tensor) for tensor in node.inputs]


def _called_by(node: TfNode) -> list[str]:
    # A function may be called by its name as an operation, without a call operation (tf.function).
    return [node.op, *node.calls]


def _node_name(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]
