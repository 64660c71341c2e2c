import pytest

from inferd.backends.tensorflow.backend import TensorflowBackend
from inferd.backends.tensorflow.files import read_graph, read_saved_model
from inferd.backends.tensorflow.graph import reaches_outside
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.interfaces import ModelFiles
from inferd.errors import InvalidConfig
from inferd.tensor.dtype import DataType

CONFIG = ModelConfig("m")
OUT = ModelConfig("m", output=(ModelOutput("y", DataType.FP32, (3,)),))


@pytest.fixture
def folder(tmp_path, write):
    """folder(content, **signatures) writes a SavedModel whose graph is x -> y."""

    def make(tag="serve", **signatures):
        graph = write.graph_def(write.placeholder("in"), write.node("call", "Relu", "in"))
        content = write.saved_model(graph, tag, **signatures)
        (tmp_path / "saved_model.pb").write_bytes(content)
        return tmp_path

    return make


@pytest.fixture
def relu(write):
    return write.signature({"x": write.tensor("in:0")}, {"y": write.tensor("call:0", 9, (-1,))})


def test_a_signature_tells_names_types_shapes_and_tensors(folder, relu):
    known = read_saved_model(folder(serving_default=relu), CONFIG, "m")
    x, y = known.signature.inputs["x"], known.signature.outputs["y"]
    assert (x.datatype, x.shape) == (DataType.FP32, (-1, 3))
    assert (y.datatype, y.shape) == (DataType.INT64, (-1,))
    assert (known.feeds, known.fetches) == ({"x": "in:0"}, {"y": "call:0"})
    assert known.tags == ("serve",)
    assert {node.name for node in known.nodes} == {"in", "call"}


@pytest.mark.parametrize("parameters", [{}, {"TF_SIGNATURE_DEF": "other"}])
def test_a_signature_is_chosen_by_parameter_or_because_it_is_the_only_one(folder, relu, parameters):
    config = ModelConfig("m", parameters=parameters)
    assert read_saved_model(folder(other=relu, __saved_model_init_op=b""), config, "m").feeds


def more(write, place):
    """Return the field of a MetaGraphDef that has TensorFlow run node `evil` as it loads it."""
    if place == "saver":
        return 3, write.encoded((3, "both"))
    names = write.encoded((1, write.encoded((1, "evil"))))
    return 4, write.encoded((1, place), (2, names))


@pytest.mark.parametrize("place", ["saved_model_main_op", "legacy_init_op", "saver"])
def test_what_runs_as_the_model_is_loaded_is_looked_at(tmp_path, write, relu, place):
    node = write.node
    graph = write.graph_def(
        write.placeholder("in"),
        node("call", "Relu", "in"),
        node("evil", "WriteFile"),
        node("restore", "RestoreV2"),
        node("both", "NoOp", "^restore", "^evil"),
    )
    content = write.saved_model(graph, "serve", (more(write, place),), serving_default=relu)
    (tmp_path / "saved_model.pb").write_bytes(content)
    nodes = read_saved_model(tmp_path, CONFIG, "m").nodes
    assert reaches_outside(nodes).name == "evil"


def test_a_model_may_restore_its_variables(tmp_path, write, relu):
    graph = write.graph_def(write.placeholder("in"), write.node("both", "RestoreV2"))
    content = write.saved_model(graph, "serve", (more(write, "saver"),), serving_default=relu)
    (tmp_path / "saved_model.pb").write_bytes(content)
    assert reaches_outside(read_saved_model(tmp_path, CONFIG, "m").nodes) is None


def test_what_is_not_there_is_named_with_what_is(folder, relu):
    with pytest.raises(InvalidConfig, match=r"no signature 'serving_default'; it has 'a', 'b'"):
        read_saved_model(folder(a=relu, b=relu), CONFIG, "m")
    with pytest.raises(InvalidConfig, match="no graph tagged 'serve'; it has train"):
        read_saved_model(folder("train", a=relu), CONFIG, "m")
    config = ModelConfig("m", parameters={"TF_GRAPH_TAG": "gpu"})
    with pytest.raises(InvalidConfig, match="no graph tagged 'gpu'"):
        read_saved_model(folder(a=relu), config, "m")


def test_a_sparse_input_is_refused(folder, write):
    sparse = write.signature({"x": write.encoded((2, 1))}, {})
    with pytest.raises(InvalidConfig, match="'x' is a sparse or composite tensor"):
        read_saved_model(folder(serving_default=sparse), CONFIG, "m")


def test_a_folder_without_a_saved_model_is_refused(tmp_path):
    with pytest.raises(InvalidConfig, match="is no SavedModel"):
        read_saved_model(tmp_path, CONFIG, "m")
    (tmp_path / "saved_model.pbtxt").touch()
    with pytest.raises(InvalidConfig, match="has only the text form"):
        read_saved_model(tmp_path, CONFIG, "m")


@pytest.mark.parametrize("content", [b"\x80\x02}q", b"PK\x03\x04 a zip file", b"\x12\xff\xff\x03"])
def test_another_file_is_refused(tmp_path, content):
    (tmp_path / "saved_model.pb").write_bytes(content)
    with pytest.raises(InvalidConfig, match="not what TensorFlow writes"):
        read_saved_model(tmp_path, CONFIG, "m")
    with pytest.raises(InvalidConfig, match="not what TensorFlow writes"):
        read_graph(tmp_path / "saved_model.pb", CONFIG, "m")


def test_a_graph_tells_its_placeholders_and_asks_for_outputs(tmp_path, write):
    file = tmp_path / "model.graphdef"
    unused = write.placeholder("unused")
    nodes = write.placeholder("x"), unused, write.node("y", "Relu", "x")
    file.write_bytes(write.graph_def(*nodes))
    known = read_graph(file, OUT, "m")
    assert (known.feeds, known.fetches) == ({"x": "x:0"}, {"y": "y:0"})
    with pytest.raises(InvalidConfig, match=r"config\.pbtxt has to, maybe 'y'"):
        read_graph(file, CONFIG, "m")
    file.write_bytes(write.graph_def(unused))
    with pytest.raises(InvalidConfig, match="has no node 'y'"):
        read_graph(file, OUT, "m")
    file.write_bytes(b"")
    with pytest.raises(InvalidConfig, match="has no nodes: it is no GraphDef"):
        read_graph(file, OUT, "m")


LEFT_OUT = {"dtype": b"\x30\x01"}
NO_DIMS = {**LEFT_OUT, "shape": b"\x3a\x00"}


@pytest.mark.parametrize(
    ("attributes", "producer", "is_unranked"),
    [(LEFT_OUT, 1000, True), (NO_DIMS, 21, True), (NO_DIMS, 22, False)],
)
def test_a_placeholder_without_a_shape_may_have_any(
    tmp_path, write, attributes, producer, is_unranked
):
    versions = write.encoded((4, write.encoded((1, producer))))
    nodes = write.node("x", "Placeholder", **attributes), write.node("y", "Relu", "x")
    file = tmp_path / "model.graphdef"
    file.write_bytes(write.graph_def(*nodes) + versions)
    x = read_graph(file, OUT, "m").signature.inputs["x"]
    assert (x.shape, x.is_unranked) == ((), is_unranked)


def test_a_graph_batches_although_it_does_not_tell_the_shapes_of_outputs(tmp_path, write):
    file = tmp_path / "model.graphdef"
    file.write_bytes(write.graph_def(write.placeholder("x"), write.node("y", "Relu", "x")))
    files = ModelFiles(tmp_path, 1, tmp_path, file)
    config = ModelConfig("m", max_batch_size=8, output=OUT.output)
    completed = TensorflowBackend().complete(files, config)
    assert completed.input == (ModelInput("x", DataType.FP32, (3,)),)
    assert completed.max_batch_size == 8


def test_without_tensorflow_everything_that_does_not_fit_is_reported(folder, relu):
    place = folder(serving_default=relu)
    files = ModelFiles(place, 1, place, place)
    report = TensorflowBackend().read_offline(files, CONFIG)
    assert report.is_complete
    assert [one.name for one in report.config.input] == ["x"]
    assert report.complaints == []
    wrong = ModelConfig(
        "m",
        input=(ModelInput("x", DataType.FP64, (-1, 4)),),
        output=(ModelOutput("z", DataType.INT64, (-1,)),),
    )
    found = TensorflowBackend().read_offline(files, wrong).complaints
    assert [one.path for one in found] == [
        ("input", 0, "data_type"),
        ("input", 0, "dims"),
        ("output", 0, "name"),
    ]
    assert found[0].text == "input 'x': the file has FP32, the configuration says FP64"
