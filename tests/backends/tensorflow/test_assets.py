"""Tables may be filled from the assets of a SavedModel, and from no other file."""

import pytest

from inferd.backends.tensorflow.files import (
    MAX_DEPTH,
    asset_tensors,
    fills_from_elsewhere,
    read_graph,
    read_saved_model,
)
from inferd.backends.tensorflow.graph import TfGraph
from inferd.config.model import ModelConfig, ModelOutput
from inferd.errors import InvalidConfig
from inferd.tensor.dtype import DataType

FILL = "InitializeTableFromTextFileV2"
TEXT, NUMBER = 7, 1  # DataType


@pytest.fixture
def node(write):
    """node(name, op, *inputs): `dtype` is its attribute, `f` the function it calls."""

    def build(name, op, *inputs, dtype=None, f=None):
        attributes = {"dtype": write.encoded((6, dtype))} if dtype is not None else {}
        if f is not None:
            attributes["f"] = write.encoded((10, write.encoded((1, f))))
        return write.node(name, op, *inputs, **attributes)

    return build


@pytest.fixture
def foreign(write):
    """foreign(nodes, functions, assets) is the name of what fills a table from elsewhere.

    "init" is what runs while the assets are fed.
    """

    def find(*nodes, functions=(), assets=("asset:0",), start="init"):
        graph = TfGraph(memoryview(write.graph_def(*nodes, functions=functions)))
        loading, others = graph.reached(["init"]), graph.reached([start] if start != "init" else [])
        found = fills_from_elsewhere(graph, frozenset(assets), loading, others)
        return found and found.name

    return find


def function(write, name, arguments, *nodes):
    """Return what write.function gives for a function with arguments."""
    declared = [(2, write.encoded((1, argument))) for argument in arguments]
    signature = write.encoded((1, name), *declared)
    return write.encoded((1, signature), *((3, one) for one in nodes))


def test_the_path_of_an_asset_fills_a_table(node, foreign):
    fill = node("init", FILL, "table", "asset")
    assert foreign(node("asset", "Const"), fill) is None
    assert foreign(node("asset", "Const"), fill, assets=()) == "init"
    assert foreign(node("asset", "Const"), fill, assets=("asset:1",)) == "init"
    assert foreign(node("asset", "ReadFile"), fill) == "init"
    assert foreign(fill) == "init"
    assert foreign(node("init", FILL, "table", "^asset")) == "init"


def test_a_name_is_followed_through_copies(node, foreign):
    copies = [node(f"copy{n}", "Identity", f"copy{n + 1}") for n in range(MAX_DEPTH - 2)]
    last = node(f"copy{MAX_DEPTH - 2}", "Identity", "asset:0")
    fill = node("init", FILL, "table", "copy0")
    assert foreign(*copies, last, node("asset", "Const"), fill) is None
    more = node("init", FILL, "table", "copy")
    long = node("copy", "Identity", "copy0")
    assert foreign(*copies, last, long, node("asset", "Const"), more) == "init"
    assert foreign(node("a", "Identity", "b"), node("b", "Identity", "a"), fill) == "init"
    joined = node("copy0", "StringJoin", "asset", "evil")
    assert foreign(node("asset", "Const"), node("evil", "Const"), joined, fill) == "init"


def test_what_clients_ask_for_fills_no_table(node, foreign):
    asset, fill = node("asset", "Const"), node("fill", FILL, "table", "asset")
    answer = node("y", "LookupTableFindV2", "table", "x", "^fill")
    assert foreign(asset, fill, answer, node("init", "NoOp", "^fill")) is None
    assert foreign(asset, fill, answer, node("init", "NoOp", "^fill"), start="y") == "fill"


def library(write, node, value, *, calls="StatefulPartitionedCall", writes=()):
    """Return a graph as TensorFlow 2 writes it: a variable has the path, a function the table."""
    inside = function(write, "f", ["path", "table"], node("fill", FILL, "table", "path"))
    nodes = [
        node("asset", "Placeholder"),
        node("evil", "Const"),
        node("variable", "VarHandleOp", dtype=TEXT),
        node("assign", "AssignVariableOp", "variable", value, dtype=TEXT),
        node("read", "ReadVariableOp", "variable", "^assign", dtype=TEXT),
        node("call", calls, "read", "table", f="f"),
        node("init", "NoOp", "^call"),
        *writes,
    ]
    return TfGraph(
        memoryview(write.encoded(*((1, n) for n in nodes), (2, write.encoded((1, inside)))))
    )


@pytest.mark.parametrize(
    ("value", "calls", "write_to", "found"),
    [
        ("asset", "StatefulPartitionedCall", None, False),
        ("evil", "StatefulPartitionedCall", None, True),
        ("asset", "While", None, True),
        ("asset", "StatefulPartitionedCall", ("AssignVariableOp", TEXT, "evil"), True),
        ("asset", "StatefulPartitionedCall", ("AssignVariableOp", TEXT, "asset"), False),
        ("asset", "StatefulPartitionedCall", ("AssignVariableOp", NUMBER, "evil"), False),
        ("asset", "StatefulPartitionedCall", ("ResourceScatterUpdate", None, "evil"), True),
        ("asset", "StatefulPartitionedCall", ("StatefulPartitionedCall", None, "evil"), True),
    ],
)
def test_a_name_is_followed_through_functions_and_variables(
    write, node, value, calls, write_to, found
):
    more = []
    if write_to is not None:
        op, dtype, source = write_to
        place = (source, "table") if op == calls else ("handle", source)
        more = [node("more", op, *place, dtype=dtype, f="f" if op == calls else None)]
    graph = library(write, node, value, calls=calls, writes=more)
    elsewhere = fills_from_elsewhere(graph, frozenset(["asset:0"]), graph.reached(["init"]), [])
    assert (elsewhere is not None) == found


def test_many_ways_to_one_place_are_gone_once(write, node):
    """Two calls of each function by the next make 2^60 ways, and as many seconds."""
    functions = [function(write, "f0", ["path"], node("fill", FILL, "table", "path"))]
    for number in range(60):
        calls = [node(f"c{n}", "PartitionedCall", "path", f=f"f{number}") for n in (0, 1)]
        functions.append(function(write, f"f{number + 1}", ["path"], *calls))
    nodes = [node("asset", "Const"), node("init", "PartitionedCall", "asset", f="f60")]
    content = write.encoded(
        *((1, n) for n in nodes), (2, write.encoded(*((1, one) for one in functions)))
    )
    graph = TfGraph(memoryview(content))
    loading = graph.reached(["init"])
    assert fills_from_elsewhere(graph, frozenset(["asset:0"]), loading, []) is None


# --- what a SavedModel lists ---


def asset(write, name, file):
    return write.encoded((1, write.encoded((1, name))), (2, file))


def collection(write, *assets, number=5, more=()):
    """Return a MetaGraph's collection of assets, as TensorFlow 1 writes it."""
    anys = [(1, write.encoded((1, "type"), (2, one))) for one in assets]
    kept = write.encoded((number, write.encoded(*anys)), *more)
    return 4, write.encoded((1, "saved_model_assets"), (2, kept))


def test_assets_are_listed_in_one_of_two_places(write):
    one, other = asset(write, "a:0", "words.txt"), asset(write, "b:0", "sub/words.txt")
    read = lambda *fields: asset_tensors(memoryview(write.encoded(*fields)), "m")  # noqa: E731
    assert read() == frozenset()
    assert read((6, one), (6, other)) == {"a:0", "b:0"}
    assert read(collection(write, one, other)) == {"a:0", "b:0"}
    assert read((6, one), collection(write, other)) == {"a:0"}
    assert read(collection(write, one), collection(write, other)) == {"b:0"}
    assert read(collection(write, one, more=[(1, b"")])) == frozenset()


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "", "..", "a\\..\\b"])
def test_an_asset_outside_of_its_folder_is_refused(write, path):
    for fields in ((6, asset(write, "a:0", path)), collection(write, asset(write, "a:0", path))):
        with pytest.raises(InvalidConfig, match="is no path below its folder 'assets'"):
            asset_tensors(memoryview(write.encoded(fields)), "m")


def test_the_files_of_a_model_are_held_to_it(tmp_path, write, node):
    nodes = (
        write.placeholder("x"),
        node("path", "Const"),
        node("fill", FILL, "table", "path"),
        node("y", "Identity", "x", "^fill"),
    )
    file = tmp_path / "model.graphdef"
    file.write_bytes(write.graph_def(*nodes))
    config = ModelConfig("m", output=(ModelOutput("y", DataType.FP32, (-1,)),))
    with pytest.raises(InvalidConfig, match="'fill' fills a table from a file that is no asset"):
        read_graph(file, config, "m")
    folder = tmp_path / "model.savedmodel"
    folder.mkdir()
    serving = write.signature({"x": write.tensor("x:0")}, {"y": write.tensor("y:0")})
    init = write.signature({}, {"__saved_model_init_op": write.tensor("fill")})
    for listed, answer, refused in ((True, "x", False), (False, "x", True), (True, "y", True)):
        more = [(6, asset(write, "path:0", "words.txt"))] if listed else []
        signature = serving.replace(b"y:0", f"{answer}:0".encode())
        content = write.saved_model(
            write.graph_def(*nodes),
            more=more,
            serving_default=signature,
            __saved_model_init_op=init,
        )
        (folder / "saved_model.pb").write_bytes(content)
        if not refused:
            assert read_saved_model(folder, ModelConfig("m"), "m").feeds == {"x": "x:0"}
            continue
        with pytest.raises(InvalidConfig, match="fills a table from a file that is no asset"):
            read_saved_model(folder, ModelConfig("m"), "m")
