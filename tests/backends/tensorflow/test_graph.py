import pytest

from inferd.backends.tensorflow.graph import TfGraph, declared, has_loops, reaches_outside
from inferd.formats.protobuf import Malformed
from inferd.tensor.dtype import DataType


@pytest.fixture
def graph(write):
    def build(*nodes, functions=()):
        return TfGraph(memoryview(write.graph_def(*nodes, functions=functions)))

    return build


def test_placeholders_have_type_and_shape(graph, write):
    found = graph(write.placeholder("x", 9, (-1, 3)), write.node("y", "Identity", "x"))
    assert found.placeholders()["x"].datatype is DataType.INT64
    assert found.placeholders()["x"].shape == (-1, 3)
    assert found.unread() == ["y"]


def test_only_what_an_output_depends_on_is_reached(graph, write):
    node = write.node
    found = graph(
        write.placeholder("x"),
        node("a", "Relu", "x:0", "^guard"),
        node("guard", "NoOp"),
        node("save", "SaveV2", "x"),
    )
    assert {one.name for one in found.reached(["a:0"])} == {"x", "a", "guard"}
    assert reaches_outside(found.reached(["a"])) is None
    assert reaches_outside(found.reached(["save"])).op == "SaveV2"


def test_a_graph_that_comes_in_parts_is_all_of_them(write):
    parts = (
        write.graph_def(write.node("read", "ReadFile")),
        write.graph_def(
            write.node("y", "NoOp", "^call"),
            write.node("call", "f"),
            functions=[("f", [write.node("n", "WriteFile")]), ("f", [write.node("n", "NoOp")])],
        ),
    )
    found = TfGraph(memoryview(b"".join(parts))).reached(["y"])
    assert reaches_outside(found).op == "WriteFile"


def test_functions_are_looked_into_however_they_are_called(graph, write):
    node, encoded = write.node, write.encoded
    by_attribute = node("a", "PartitionedCall", f=encoded((10, encoded((1, "outer")))))
    by_list = node("b", "Case", branches=encoded((1, encoded((9, encoded((1, "inner")))))))
    by_name = node("c", "inner")
    functions = [
        ("outer", [node("call", "inner")]),
        ("inner", [node("read", "ReadFile"), node("again", "outer")]),
    ]
    for one in (by_attribute, by_list, by_name):
        found = graph(one, functions=functions)
        assert reaches_outside(found.reached(["abc"[[by_attribute, by_list, by_name].index(one)]]))


@pytest.mark.parametrize(
    "op",
    [
        *("WriteFile", "EagerPyFunc", "TFRecordDatasetV2", "TextLineReaderV2", "ImmutableConst"),
        *("CSVDatasetV2", "MatchingFilesDataset", "DatasetToTFRecord", "RpcClient", "RestoreV2"),
    ],
)
def test_operations_on_files_and_python_are_seen(graph, write, op):
    assert reaches_outside(graph(write.node("n", op)).reached(["n"])).name == "n"


@pytest.mark.parametrize(("stream", "outside"), [("stderr", False), ("file:///etc/x", True)])
def test_printing_to_a_file_is_seen(graph, write, stream, outside):
    node = write.node("n", "PrintV2", output_stream=write.encoded((2, stream)))
    assert (reaches_outside(graph(node).reached(["n"])) is not None) == outside


def test_loops_of_tensorflow_1_are_seen(graph, write):
    assert has_loops(graph(write.node("n", "Enter")).reached(["n"]))
    assert not has_loops(graph(write.node("n", "While")).reached(["n"]))


def test_circles_end(graph, write):
    found = graph(write.node("a", "NextIteration", "b"), write.node("b", "Merge", "a"))
    assert len(found.reached(["a"])) == 2


def test_an_unknown_rank_is_no_scalar(write):
    unknown = declared("x", 1, memoryview(write.encoded((3, 1))))
    assert unknown.is_unranked
    assert not declared("x", 1, memoryview(b"")).is_unranked
    with pytest.raises(Malformed, match="below -1"):
        declared("x", 1, memoryview(write.shape(-2)))
