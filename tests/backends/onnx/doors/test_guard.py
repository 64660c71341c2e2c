"""ONNX models whose operators ONNX Runtime would let read memory that is not there."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from inferd.backends.onnx.backend import OnnxBackend
from inferd.backends.onnx.doors.guard import guard, guarded
from inferd.config.model import ModelConfig
from inferd.core.interfaces import Placement
from inferd.core.request import InferRequest
from inferd.errors import BackendFailed, InferdError, InvalidConfig
from inferd.formats.onnx_graph import MAX_DEPTH
from inferd.formats.onnx_model import OnnxNode, OnnxPort, encode_model
from inferd.formats.protobuf import bytes_field
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

CONFIG = ModelConfig("m")
SCALES = {"S": np.array([2, 0.5], np.float32), "B": np.array([1, -1], np.float32)}
IMAGES = ("X", TensorProto.FLOAT, ["n", 2, "h", "w"]), ("Y", TensorProto.FLOAT, ["n", 2, "h", "w"])
INNER = helper.make_node("Abs", ["X"], ["A"])
NORMAL = helper.make_node("InstanceNormalization", ["A", "S", "B"], ["Y"], epsilon=0.01)


def run(files, x):
    backend = OnnxBackend()
    instance = backend.open(files, backend.complete(files, CONFIG), Placement("m_0"))
    [answer] = instance.execute(
        [InferRequest("m", inputs=[Tensor("X", DataType.FP32, x.shape, x)])]
    )
    if isinstance(answer, InferdError):
        raise answer
    return answer.outputs[0].numpy()


def expected(x):
    x = np.abs(x)
    mean, variance = x.mean((2, 3), keepdims=True), x.var((2, 3), keepdims=True)
    scale, shift = (one.reshape(2, 1, 1) for one in SCALES.values())
    return (x - mean) / np.sqrt(variance + 0.01) * scale + shift


def images(shape):
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def of_opset(files, version):
    model = onnx.load(files.file)
    model.opset_import[0].version = version
    model.ir_version = 3
    for name in SCALES:  # what weights had to be then
        model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]))
    onnx.save(model, files.file)
    return files


@pytest.fixture
def plain(make_model):
    return make_model(IMAGES[:1], IMAGES[1:], [INNER, NORMAL], SCALES)


def branching(make_model):
    """Return a model whose InstanceNormalization is in the branch of an If."""
    branches = [
        helper.make_graph(
            [helper.make_node(op, *names)],
            op,
            [],
            [helper.make_tensor_value_info(names[1][0], TensorProto.FLOAT, None)],
        )
        for op, names in {
            "InstanceNormalization": (["A", "S", "B"], ["then"]),
            "Neg": (["A"], ["else"]),
        }.items()
    ]
    branches[0].node[0].attribute.append(helper.make_attribute("epsilon", 0.01))
    choice = helper.make_node("If", ["C"], ["Y"], then_branch=branches[0], else_branch=branches[1])
    return make_model(IMAGES[:1], IMAGES[1:], [INNER, choice], SCALES | {"C": np.array(True)})


def in_a_function(make_model):
    """Return a model that has its InstanceNormalization in a function of its own."""
    files = make_model(
        IMAGES[:1],
        IMAGES[1:],
        [INNER, helper.make_node("Norm", ["A", "S", "B"], ["Y"], domain="own")],
        SCALES,
    )
    opset = helper.make_opsetid("", 21)
    own = helper.make_function("own", "Norm", ["A", "S", "B"], ["Y"], [NORMAL], [opset])
    model = onnx.load(files.file)
    model.functions.append(own)
    model.opset_import.append(helper.make_opsetid("own", 1))
    onnx.save(model, files.file)
    return files


def with_external_data(make_model):
    """Return a model with weights in a file beside it."""
    files = make_model(IMAGES[:1], IMAGES[1:], [INNER, NORMAL], SCALES)
    model = onnx.load(files.file)
    options = {"save_as_external_data": True, "size_threshold": 0, "location": "weights.bin"}
    onnx.save(model, files.file, **options)
    return files


@pytest.mark.parametrize("make", [branching, in_a_function, with_external_data])
def test_images_without_pixels_fail_wherever_the_operator_is(make_model, make):
    files = make(make_model)
    with pytest.raises(BackendFailed, match="Reshape"):
        run(files, images((2, 2, 0, 4)))
    x = images((2, 2, 3, 4))
    np.testing.assert_allclose(run(files, x), expected(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("opset", [7, 8, 9, 12, 13, 21])
def test_images_without_pixels_fail_in_every_opset(plain, opset):
    files = of_opset(plain, opset) if opset < 21 else plain
    with pytest.raises(BackendFailed, match="Reshape"):
        run(files, images((2, 2, 0, 4)))
    x = images((2, 2, 3, 4))
    np.testing.assert_allclose(run(files, x), expected(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 2, 1, 1), (0, 2, 3, 4), (3, 2, 5, 7)])
def test_other_images_give_what_they_gave(plain, shape):
    x = images(shape)
    given = run(plain, x)
    assert given.shape == shape
    np.testing.assert_allclose(given, expected(x), rtol=1e-5, atol=1e-5)


def test_models_without_the_operator_and_of_old_opsets_stay_as_they_are(add_sub, plain):
    assert guarded(add_sub.file).content is None
    assert guarded(of_opset(plain, 6).file).content is None
    add_sub.file.write_bytes(b"")
    assert guarded(add_sub.file).content is None


@pytest.mark.parametrize("bias", [[], [""], ["B"]])
def test_a_bias_that_an_empty_name_leaves_out_ends_no_process(make_model, bias):
    """ONNX Runtime 1.32 reads it all the same, as it loads the model."""
    ports = [(name, TensorProto.FLOAT, ["n", 2]) for name in ("X", "Y")]
    normal = helper.make_node("LayerNormalization", ["X", "S", *bias], ["Y"])
    files = make_model(ports[:1], ports[1:], [normal], SCALES)
    assert (guarded(files.file).content is not None) is (bias == [""])
    found = run(files, np.array([[1, 3], [5, 2]], np.float32))
    shift = SCALES["B"] if bias == ["B"] else 0
    np.testing.assert_allclose(found, SCALES["S"] * [[-1, 1], [1, -1]] + shift, rtol=1e-4)


def test_operators_of_that_name_that_are_others_stay_as_they_are(plain):
    model = onnx.load(plain.file)
    model.graph.node[1].domain = "own"
    onnx.save(model, plain.file)
    assert guarded(plain.file).content is None
    model.graph.node[1].domain = ""
    del model.graph.node[1].output[:]
    onnx.save(model, plain.file)
    assert guarded(plain.file).content is None


def test_what_cannot_be_read_is_refused(plain):
    content = plain.file.read_bytes()
    plain.file.write_bytes(content[:-20])
    with pytest.raises(
        InvalidConfig, match=r"'model.onnx' is no ONNX model: field \d+ says it has"
    ):
        OnnxBackend().complete(plain, CONFIG)


def test_names_that_are_no_text_are_refused(plain):
    plain.file.write_bytes(plain.file.read_bytes().replace(b"\x0a\x01A", b"\x0a\x01\xff"))
    with pytest.raises(InvalidConfig, match="a tensor in it has a name that is no UTF-8"):
        OnnxBackend().complete(plain, CONFIG)


def test_graphs_in_graphs_have_an_end(plain):
    inner = plain.file.read_bytes()
    for _ in range(MAX_DEPTH):
        inner = b"".join(bytes_field(1, *bytes_field(5, *bytes_field(6, inner))))
    plain.file.write_bytes(plain.file.read_bytes() + b"".join(bytes_field(7, inner)))
    with pytest.raises(InvalidConfig, match=f"graphs lie in graphs, deeper than {MAX_DEPTH}"):
        OnnxBackend().complete(plain, CONFIG)


def test_a_configured_model_is_guarded_too(plain):
    backend = OnnxBackend()
    completed = replace(backend.complete(plain, CONFIG), parameters={"intra_op_thread_count": "1"})
    instance = backend.open(plain, completed, Placement("m_0"))
    empty = Tensor("X", DataType.FP32, (1, 2, 0, 1), images((1, 2, 0, 1)))
    [answer] = instance.execute([InferRequest("m", inputs=[empty])])
    assert isinstance(answer, BackendFailed)


def test_what_a_converter_writes_is_guarded_too():
    """Our own encoder leaves out what is empty, unlike the onnx package."""
    nodes = [OnnxNode("Identity", (name,), (f"{name}_",), {}) for name in ("a", "b")] + [
        OnnxNode("Div", ("a_", "b_"), ("c",), {})
    ]
    ports = [OnnxPort(name, DataType.INT64, (-1,)) for name in "abc"]
    encoded = encode_model(nodes, {}, ports[:2], ports[2:])
    content = guard(memoryview(encoded), "m").content
    assert content is not None and b"becomes a division by zero" in content
