"""Operators that end ONNX Runtime's process: as inputs, computed, in subgraphs, with good values.

A door that is open again ends the tests themselves.
"""

import json
from contextlib import ExitStack
from http.client import HTTPConnection

import numpy as np
import onnxruntime
import pytest
from onnx import NodeProto, TensorProto, helper, load_from_string, numpy_helper

from inferd import Server
from inferd.backends.onnx.backend import OnnxBackend
from inferd.backends.onnx.doors.guard import guarded
from inferd.backends.onnx.guarded import GuardedInstance
from inferd.config.model import ModelConfig
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.request import InferRequest
from inferd.errors import BackendFailed, InferdError, InvalidConfig, InvalidRequest
from inferd.tensor.dtype import datatype_of
from inferd.tensor.tensor import Tensor

FLOAT, INT32, INT64, BOOL = (
    TensorProto.FLOAT,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.BOOL,
)
TYPES = {"float32": FLOAT, "int32": INT32, "int64": INT64}


def floats(*shape):
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def numbers(dtype, *values):
    return np.array(values, dtype)


class Door:
    """An operator, inputs it takes, and inputs that it ends the process for.

    The first input is `x`; `constants` are others, which the file holds. `more` are the opset, and
    the ranks of the outputs where no ONNX Runtime can tell them.
    """

    def __init__(self, node, good, bad, words, constants=None, **more):
        self.node, self.good, self.bad, self.words = node, good, bad, words
        self.constants = constants or {}
        self.opset = more.get("opset", 17)
        self._outputs = [
            helper.make_tensor_value_info(name, TYPES[good["x"].dtype.name], [None] * rank)
            for name, rank in zip(node.output, more.get("ranks", ()), strict=False)
        ]

    def graph_inputs(self):
        return [
            helper.make_tensor_value_info(name, TYPES[array.dtype.name], [None] * array.ndim)
            for name, array in self.good.items()
        ]

    def outputs(self):
        """The outputs, whose ranks are those that ONNX Runtime gives."""
        if not self._outputs:
            kind, names = TYPES[self.good["x"].dtype.name], self.node.output
            self._outputs = [helper.make_tensor_value_info(name, kind, None) for name in names]
            arrays = bare(direct(self), self.good)
            self._outputs = [
                helper.make_tensor_value_info(name, kind, [None] * array.ndim)
                for name, array in zip(names, arrays, strict=True)
            ]
        return self._outputs

    def initializers(self):
        return [numpy_helper.from_array(one, name) for name, one in self.constants.items()]


RNN = {"w": floats(1, 12, 2), "r": floats(1, 12, 3)}
DOORS = {
    "gru time": Door(
        helper.make_node("GRU", ["x", "w", "r"], ["y", "z"], hidden_size=3),
        {"x": floats(4, 1, 2)},
        {"x": floats(0, 1, 2)},
        "input 'x' has shape [0, 1, 2]; GRU 'y' takes no dim 0 of 0",
        {"w": floats(1, 9, 2), "r": floats(1, 9, 3)},
    ),
    "gru batch": Door(
        helper.make_node("GRU", ["x", "w", "r"], ["y", "z"], hidden_size=3),
        {"x": floats(4, 2, 2)},
        {"x": floats(4, 0, 2)},
        "input 'x' has shape [4, 0, 2]; GRU 'y' takes no dim 1 of 0",
        {"w": floats(1, 9, 2), "r": floats(1, 9, 3)},
    ),
    "lstm batch": Door(
        helper.make_node("LSTM", ["x", "w", "r"], ["y", "z"], hidden_size=3),
        {"x": floats(4, 2, 2)},
        {"x": floats(4, 0, 2)},
        "input 'x' has shape [4, 0, 2]; LSTM 'y' takes no dim 1 of 0",
        RNN,
    ),
    "convolution": Door(
        helper.make_node("Conv", ["z", "x"], ["y"]),
        {"x": floats(3, 1, 2, 2), "z": floats(1, 1, 4, 4)},
        {"x": floats(3, 1, 0, 2), "z": floats(1, 1, 4, 4)},
        "input 'x' has shape [3, 1, 0, 2]; Conv 'y' takes no dim 2 of 0",
    ),
    "transposed convolution": Door(
        helper.make_node("ConvTranspose", ["x", "w"], ["y"]),
        {"x": floats(1, 1, 3, 4, 5)},
        {"x": floats(1, 1, 0, 4, 5)},
        "input 'x' has shape [1, 1, 0, 4, 5]; ConvTranspose 'y' takes no dim 2 of 0",
        {"w": floats(1, 2, 3, 3, 3)},
    ),
    "vectors of features": Door(
        helper.make_node(
            "FeatureVectorizer", ["x"], ["y"], inputdimensions=[2], domain="ai.onnx.ml"
        ),
        {"x": floats(3, 2)},
        {"x": floats(0, 2)},
        "input 'x' has shape [0, 2]; FeatureVectorizer 'y' takes no dim 0 of 0",
    ),
    "einsum": Door(
        helper.make_node("Einsum", ["x", "z"], ["y"], equation="ab,cb->ac"),
        {"x": floats(3, 2), "z": floats(4, 2)},
        {"x": floats(3, 0), "z": floats(4, 0)},
        "input 'x' has shape [3, 0]; Einsum 'y' takes no dim 1 of 0",
    ),
    "unique": Door(
        helper.make_node("Unique", ["x"], ["y"], axis=0, sorted=1),
        {"x": floats(3, 2)},
        {"x": floats(3, 0)},
        "input 'x' has shape [3, 0]; Unique 'y' takes no dim 1 of 0",
    ),
    "reversed sequence": Door(
        helper.make_node("ReverseSequence", ["x", "l"], ["y"], batch_axis=1, time_axis=0),
        {"x": floats(2, 2)},
        {"x": floats(2)},
        "input 'x' has shape [2]; ReverseSequence 'y' takes at least 2 dims",
        {"l": numbers("int64", 2, 1)},
    ),
    "fourier": Door(
        helper.make_node("DFT", ["x"], ["y"], axis=1),
        {"x": floats(1, 4, 1)},
        {"x": floats()},
        "input 'x' has shape []; DFT 'y' takes at least 1 dims",
    ),
    "short fourier": Door(
        helper.make_node("STFT", ["x", "step", "window"], ["y"]),
        {"x": floats(1, 16, 1), "window": floats(4)},
        {"x": floats(1, 16, 1), "window": floats(0)},
        "input 'window' has shape [0]; STFT 'y' takes no dim 0 of 0",
        {"step": np.array(2)},
    ),
    "short fourier of a length": Door(
        helper.make_node("STFT", ["x", "step", "", "length"], ["y"]),
        {"x": floats(1, 16, 1), "length": np.array(4)},
        {"x": floats(1, 16, 1), "length": np.array(0)},
        "input 'length' is 0; STFT 'y' divides by it",
        {"step": np.array(2)},
    ),
    "attention": Door(
        helper.make_node("Attention", ["x", "k", "v", "", "p", "q"], ["y", "pk", "pv"]),
        {"x": floats(1, 1, 2, 4), "p": floats(1, 1, 3, 4), "q": floats(1, 1, 3, 4)},
        {"x": floats(1, 1, 2, 4), "p": floats(), "q": floats(1, 1, 3, 4)},
        "input 'p' has shape []; Attention 'y' takes at least 4 dims",
        {"k": floats(1, 1, 2, 4), "v": floats(1, 1, 2, 4)},
        opset=23,
    ),
    "division of int32": Door(
        helper.make_node("Div", ["x", "d"], ["y"]),
        {"x": numbers("int32", -(2**31), 7, 7), "d": numbers("int32", 2, -2, -1)},
        {"x": numbers("int32", 5, -(2**31), 7), "d": numbers("int32", 2, -1, -1)},
        "input 'x' at [1] is -2147483648; Div 'y' divides it by -1 (of input 'd' at [1])",
    ),
    "division of int64": Door(
        helper.make_node("Div", ["x", "d"], ["y"]),
        {"x": numbers("int64", -(2**63), 7), "d": np.array(3)},
        {"x": numbers("int64", 7, -(2**63)), "d": np.array(-1)},
        "input 'x' at [1] is -9223372036854775808; Div 'y' divides it by -1 (of input 'd')",
    ),
    "division by a constant": Door(
        helper.make_node("Div", ["x", "d"], ["y"]),
        {"x": numbers("int64", -(2**63) + 1, 7)},
        {"x": numbers("int64", -(2**63), 7)},
        "input 'x' at [0] is -9223372036854775808; Div 'y' divides it by -1 (of constant 'd'",
        {"d": numbers("int64", -1)},
    ),
}


def direct(door):
    """The inputs of the operator are those of the model."""
    graph = helper.make_graph(
        [door.node], "g", door.graph_inputs(), door.outputs(), door.initializers()
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", door.opset)], ir_version=10
    )


def computed(door):
    """The inputs of the operator are computed: reshaped as the request says."""
    graph = helper.make_graph(
        [*_reshapes(door), _renamed(door)],
        "g",
        _flat_inputs(door),
        door.outputs(),
        door.initializers(),
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", door.opset)], ir_version=10
    )


def in_a_branch(door):
    """The operator is in a branch that takes what is computed around it."""
    model = computed(door)
    node = model.graph.node.pop()
    one, other = (helper.make_graph([node], name, [], door.outputs()) for name in ("then", "else"))
    outputs = [value.name for value in door.outputs()]
    model.graph.node.append(
        helper.make_node("If", ["c"], outputs, then_branch=one, else_branch=other)
    )
    model.graph.input.append(helper.make_tensor_value_info("c", BOOL, []))
    return model


def _reshapes(door):
    return [
        helper.make_node("Reshape", [one, f"{one}_shape"], [f"{one}_"], allowzero=1)
        for one in door.good
    ]


def _renamed(door):
    node = NodeProto()
    node.CopyFrom(door.node)
    node.input[:] = [f"{one}_" if one in door.good else one for one in node.input]
    return node


def _flat_inputs(door):
    for name, array in door.good.items():
        yield helper.make_tensor_value_info(name, TYPES[array.dtype.name], [None])
        yield helper.make_tensor_value_info(f"{name}_shape", INT64, [None])


PLACES = {"computed": computed, "in a branch": in_a_branch}


def written(folder, model):
    version = folder / "1"
    version.mkdir(parents=True, exist_ok=True)
    (version / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "config.pbtxt").write_text("max_batch_size: 0")
    return ModelFiles(folder, 1, version, version / "model.onnx")


def opened(files):
    backend = OnnxBackend()
    config = ModelConfig("m", is_unbatched=True)
    return backend.open(files, backend.complete(files, config), Placement("m_0"))


def answer(instance, feed):
    inputs = [
        Tensor.from_numpy(name, array, datatype_of(array.dtype)) for name, array in feed.items()
    ]
    [given] = instance.execute([InferRequest("m", inputs=inputs)])
    return given


def bare(model, feed):
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, feed)


def given_to(model, feed):
    """Return `feed` as the model takes it."""
    names = {one.name for one in model.graph.input}
    given = {}
    for name, array in feed.items():
        if f"{name}_shape" in names:
            given[name] = array.reshape(-1)
            given[f"{name}_shape"] = np.array(array.shape, np.int64)
        else:
            given[name] = array
    return given | ({"c": np.array(True)} if "c" in names else {})


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_an_input_is_refused_before_it_runs(tmp_path, door):
    given = answer(opened(written(tmp_path, direct(door))), door.bad)
    assert isinstance(given, InvalidRequest)
    assert given.message.startswith(f"model 'm': {door.words}")


@pytest.mark.parametrize("axes", ["scan_input_axes", "scan_output_axes"])
def test_a_scan_along_another_dim_takes_no_empty_input(tmp_path, axes):
    body = helper.make_graph(
        [helper.make_node("Relu", ["step"], ["made"])],
        "each",
        [helper.make_tensor_value_info("step", FLOAT, None)],
        [helper.make_tensor_value_info("made", FLOAT, None)],
    )
    node = helper.make_node("Scan", ["x"], ["y"], body=body, num_scan_inputs=1, **{axes: [1]})
    door = Door(node, {"x": floats(3, 2)}, {"x": floats(3, 0)}, "")
    instance = opened(written(tmp_path, direct(door)))
    assert "Scan 'y' takes no dim 1 of 0" in answer(instance, door.bad).message
    assert not isinstance(answer(instance, door.good), InferdError)


SEQUENCE = helper.make_node("SequenceConstruct", ["r", "z"], ["s"])


@pytest.mark.parametrize(
    "nodes",
    [
        [helper.make_node("Concat", ["r", "z"], ["y"], axis=1)],
        [SEQUENCE, helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=1)],
        [SEQUENCE, helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0, new_axis=1)],
    ],
    ids=["concat", "sequence", "stack"],
)
@pytest.mark.parametrize("batch", [0, 4])
def test_what_is_empty_shows_no_memory(tmp_path, nodes, batch):
    relu = helper.make_node("Relu", ["x"], ["r"])
    inputs = [helper.make_tensor_value_info(name, FLOAT, ["n", 3]) for name in "xz"]
    outputs = [helper.make_tensor_value_info("y", FLOAT, None)]
    graph = helper.make_graph([relu, *nodes], "g", inputs, outputs)
    imports = [helper.make_opsetid("", 17)]
    files = written(tmp_path, helper.make_model(graph, opset_imports=imports, ir_version=8))
    backend = OnnxBackend()
    config = ModelConfig("m", max_batch_size=batch, is_unbatched=not batch)
    instance = backend.open(files, backend.complete(files, config), Placement("m_0"))
    # A batch has as many rows in each input: nothing is compared then.
    assert isinstance(instance, GuardedInstance) is (batch == 0)
    assert not isinstance(answer(instance, {"x": floats(2, 3), "z": floats(2, 3)}), InferdError)
    if not batch:
        given = answer(instance, {"x": floats(2, 3), "z": floats(0, 3)})
        assert "input 'z' has shape [0, 3], which does not fit" in given.message
        given = answer(instance, {"x": floats(0, 3), "z": floats(0, 3)})
        assert not isinstance(given, InferdError)


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_a_computed_operand_is_an_error_that_names_the_operator(tmp_path, door, place):
    model = place(door)
    given = answer(opened(written(tmp_path, model)), given_to(model, door.bad))
    # ONNX Runtime calls some of them invalid arguments.
    assert isinstance(given, BackendFailed | InvalidRequest)
    assert f"{door.node.op_type} 'y'" in given.message


@pytest.mark.parametrize("place", [direct, *PLACES.values()])
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_good_operands_give_the_same_bits(tmp_path, door, place):
    model = place(door)
    feed = given_to(model, door.good)
    given = answer(opened(written(tmp_path, model)), feed)
    assert not isinstance(given, InferdError), given
    for mine, theirs in zip(given.outputs, bare(model, feed), strict=True):
        assert mine.numpy().tobytes() == theirs.tobytes()
        assert mine.shape == theirs.shape


@pytest.mark.slow
def test_the_server_goes_on_after_each(tmp_path):
    models = {
        f"{name} {kind}".replace(" ", "_"): (place(door), door)
        for name, door in DOORS.items()
        for kind, place in {"direct": direct, **PLACES}.items()
    }
    for name, (model, _) in models.items():
        written(tmp_path / name, model)
    statuses = {}
    options = {"http_port": 0, "allow_grpc": False}
    with Server(model_repository=str(tmp_path), **options) as server, ExitStack() as stack:
        connection = HTTPConnection("127.0.0.1", server.http_port, timeout=30)
        stack.callback(connection.close)
        for name, (model, door) in models.items():
            for feed in (door.bad, door.good):
                body = json.dumps(document(given_to(model, feed)))
                connection.request("POST", f"/v2/models/{name}/infer", body)
                response = connection.getresponse()
                response.read()
                statuses.setdefault(name.rpartition("_")[2], []).append(response.status)
    assert statuses["direct"] == [400, 200] * len(DOORS)
    for kind in ("computed", "branch"):
        assert statuses[kind][1::2] == [200] * len(DOORS)
        assert set(statuses[kind][::2]) == {400, 500}


def document(feed):
    tensors = [
        Tensor.from_numpy(name, array, datatype_of(array.dtype)) for name, array in feed.items()
    ]
    return {
        "inputs": [
            {
                "name": one.name,
                "datatype": one.datatype.name,
                "shape": list(one.shape),
                "data": one.numpy().reshape(-1).tolist(),
            }
            for one in tensors
        ]
    }


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (numbers("int64", 1, -(2**63)), numbers("int64", -1)),
        (numbers("int32", -(2**31)), numbers("int32", 4, -1)),
    ],
)
def test_constants_whose_quotient_does_not_fit_are_refused_at_load(tmp_path, a, b):
    node = helper.make_node("Div", ["a", "b"], ["c"])
    graph = helper.make_graph(
        [node],
        "g",
        [],
        [helper.make_tensor_value_info("c", TYPES[a.dtype.name], [None])],
        [numpy_helper.from_array(one, name) for name, one in (("a", a), ("b", b))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(InvalidConfig, match=r"cannot run: constant 'a' at \[\d\] is -\d+; Div 'c'"):
        OnnxBackend().complete(written(tmp_path, model), ModelConfig("m"))


@pytest.mark.parametrize(("divisor", "element"), [([2, 4], INT64), ([-1], FLOAT), ([-1.5], FLOAT)])
def test_divisions_that_cannot_overflow_are_left_alone(tmp_path, divisor, element):
    dtype = "int64" if element == INT64 else "float32"
    node = helper.make_node("Div", ["x_", "d"], ["y"])
    door = Door(node, {"x": np.ones(1, dtype)}, {}, "", {"d": np.array(divisor, dtype)}, ranks=[1])
    model = direct(door)
    model.graph.node.insert(0, helper.make_node("Abs", ["x"], ["x_"]))
    files = written(tmp_path, model)
    instance = opened(files)
    assert type(instance).__name__ == "OnnxInstance"
    assert guarded(files.file)[:2] == (None, ())


@pytest.mark.parametrize("outputs", [["y", "z"], ["y", ""]])
def test_a_split_in_fewer_parts_than_it_gives_is_refused_at_load(tmp_path, outputs):
    node = helper.make_node("Split", ["x"], outputs, axis=1, num_outputs=1)
    shown = [helper.make_tensor_value_info("y", FLOAT, None)]
    x = helper.make_tensor_value_info("x", FLOAT, ["n", 4])
    opset = helper.make_opsetid("", 18)
    graph = helper.make_graph([node], "g", [x], shown)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    with pytest.raises(InvalidConfig, match="the Split that gives 'y' has num_outputs 1, and 2 o"):
        OnnxBackend().complete(written(tmp_path, model), ModelConfig("m"))


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"strides": [0, 1]}, r"has strides \[0, 1\], and each must be at least 1"),
        ({"kernel_shape": [3, 0]}, r"has kernel_shape \[3, 0\]"),
        ({"dilations": [-1, 1]}, r"has dilations \[-1, 1\]"),
    ],
)
def test_windows_without_a_size_are_refused_at_load(tmp_path, attributes, words):
    node = helper.make_node("MaxPool", ["x"], ["y"], **{"kernel_shape": [2, 2]} | attributes)
    door = Door(node, {"x": floats(1, 1, 4, 4)}, {}, "", ranks=[4])
    with pytest.raises(InvalidConfig, match=words):
        OnnxBackend().complete(written(tmp_path, direct(door)), ModelConfig("m"))


def test_vectors_of_negative_lengths_are_refused_at_load(tmp_path):
    node = helper.make_node("FeatureVectorizer", ["x", "x"], ["y"], domain="ai.onnx.ml")
    node.attribute.append(helper.make_attribute("inputdimensions", [3, -2]))
    door = Door(node, {"x": floats(2, 4)}, {}, "", ranks=[2])
    with pytest.raises(InvalidConfig, match=r"FeatureVectorizer 'y' has inputdimensions \[3, -2\]"):
        OnnxBackend().complete(written(tmp_path, direct(door)), ModelConfig("m"))


def test_older_opsets_have_a_guard_of_their_operators(tmp_path):
    door = DOORS["division of int32"]
    model = direct(door)
    model.graph.node[0].CopyFrom(_renamed(door))
    for name in door.good:
        model.graph.node.insert(0, helper.make_node("Identity", [name], [f"{name}_"]))
    model.opset_import[0].version = 8
    model.ir_version = 4
    files = written(tmp_path, load_from_string(model.SerializeToString()))
    assert isinstance(answer(opened(files), door.bad), BackendFailed)
    assert answer(opened(files), door.good).outputs[0].numpy().tolist() == [-(2**30), -3, -7]


def in_a_function(door):
    """Return `door`'s operator in a function of the file, where no types are declared."""
    opsets = [helper.make_opsetid("", 17)]
    body = [helper.make_node("Div", ["a", "b"], ["c"])]
    function = helper.make_function("own", "Halve", ["a", "b"], ["c"], body, opsets)
    graph = helper.make_graph(
        [helper.make_node("Halve", list(door.good), ["y"], domain="own")],
        "g",
        door.graph_inputs(),
        door.outputs(),
    )
    opsets.append(helper.make_opsetid("own", 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=[function])


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_divisions_in_a_function_are_guarded_without_their_types(tmp_path, dtype, caplog):
    lowest = np.iinfo(dtype).min
    a = numbers(dtype, lowest, lowest, 7, 0, lowest + 1, -1)
    b = numbers(dtype, 1, 2, -1, -1, -1, lowest)
    door = Door(helper.make_node("Div", ["x", "b"], ["y"]), {"x": a, "b": b}, {}, "", ranks=[1])
    instance = opened(written(tmp_path, in_a_function(door)))
    np.testing.assert_array_equal(
        answer(instance, door.good).outputs[0].numpy(),
        [lowest, lowest // 2, -7, 0, -(lowest + 1), 0],
    )
    bad = answer(instance, {"x": a, "b": numbers(dtype, -1)})
    assert isinstance(bad, BackendFailed) and "its quotient is too large" in bad.message
    assert caplog.text == ""


def test_divisions_of_floats_in_a_function_give_what_they_gave(tmp_path):
    a = np.float32([-(2.0**63), -(2.0**31), 0, -0.0, np.inf, np.nan, 1, 5, 1e-45])
    for divisor in (-1, 0, np.inf, np.nan, -0.0, 2, 1e-45):
        b = np.full_like(a, divisor)
        door = Door(helper.make_node("Div", ["x", "b"], ["y"]), {"x": a, "b": b}, {}, "", ranks=[1])
        instance = opened(written(tmp_path, in_a_function(door)))
        with np.errstate(all="ignore"):
            assert answer(instance, door.good).outputs[0].numpy().tobytes() == (a / b).tobytes()


@pytest.mark.parametrize(
    ("op", "inputs", "dims"),
    [
        ("ConstantOfShape", ["n"], [2]),
        ("Expand", ["x", "n"], [2]),
        ("Tile", ["x", "n"], [1]),
        ("OneHot", ["i", "depth", "v"], []),
        ("Range", ["zero", "depth", "step"], []),
    ],
)
def test_more_than_the_memory_is_refused_before_it_runs(tmp_path, op, inputs, dims):
    name = inputs[0] if op == "ConstantOfShape" else inputs[1]
    constants = {
        "x": floats(1),
        "i": np.array([0]),
        "v": np.array([0, 1], np.float32),
        "zero": np.array(0),
        "step": np.array(1),
    }
    graph = helper.make_graph(
        [helper.make_node(op, inputs, ["y"])],
        "g",
        [helper.make_tensor_value_info(name, INT64, dims)],
        [helper.make_tensor_value_info("y", INT64 if op == "Range" else FLOAT, None)],
        [numpy_helper.from_array(one, key) for key, one in constants.items() if key in inputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    instance = opened(written(tmp_path, model))
    given = answer(instance, {name: np.full(dims, 2**40, np.int64)})
    assert isinstance(given, InvalidRequest)
    assert f"{op} 'y' may make at most" in given.message
