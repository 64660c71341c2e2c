"""Files: the interface of a SavedModel folder or GraphDef file, read without TensorFlow."""

from dataclasses import dataclass
from pathlib import Path

from inferd.backends.tensorflow.assets import asset_tensors, fills_from_elsewhere
from inferd.backends.tensorflow.fields import (
    decoded,
    integer,
    merged,
    messages,
    text,
)
from inferd.backends.tensorflow.graph import RESTORING, TfGraph, TfNode, declared
from inferd.config.model import ModelConfig
from inferd.core.signature import Declared, Signature
from inferd.errors import InvalidConfig
from inferd.formats.protobuf import Malformed

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
        msg = f"{what} {why}: there is no saved_model.pb in it"
        raise InvalidConfig(msg)
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
        msg = f"{what} is not what TensorFlow writes, or cut off: {error}"
        raise InvalidConfig(msg) from error
    if not graph.nodes:
        msg = f"{what} has no nodes: it is no GraphDef"
        raise InvalidConfig(msg)
    if not config.output:
        shown = ", ".join(f"'{name}'" for name in graph.unread()[-5:])
        msg = f"{what} does not say which nodes are outputs; config.pbtxt has to, maybe {shown}"
        raise InvalidConfig(msg)
    fetches = {output.name: _tensor(output.name) for output in config.output}
    for name, tensor in fetches.items():
        if tensor.partition(":")[0] not in graph.nodes:
            msg = f"{what} has no node '{name}', which config.pbtxt has as output"
            raise InvalidConfig(msg)
    outputs = {o.name: Declared(o.name, "", (), o.datatype) for o in config.output}
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
