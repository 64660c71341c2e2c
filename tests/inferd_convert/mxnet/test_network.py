import json
from pathlib import Path

import numpy as np
import pytest

from inferd.errors import InvalidConfig, Unsupported
from inferd.formats.onnx_model import OnnxPort
from inferd.tensor.dtype import DataType, datatype_of
from inferd_convert.mxnet.network import MxnetNetwork
from inferd_convert.mxnet.params import read_params
from inferd_convert.mxnet.symbol import read_symbol

DATA = Path(__file__).parents[2] / "data" / "mxnet"
FILES = ("operators", "more_operators", "last_operators", "further_operators")
CASES = [
    (file, number, case)
    for file in FILES
    for number, case in enumerate(json.loads((DATA / f"{file}.json").read_text()))
]
X = OnnxPort("x", DataType.FP32, (-1, 3))


def load(name):
    symbol = read_symbol((DATA / f"{name}-symbol.json").read_bytes(), "symbol")
    return MxnetNetwork(symbol, read_params((DATA / f"{name}-0000.params").read_bytes(), "params"))


@pytest.fixture
def network():
    """network(nodes, heads, params) is made of (op, name, inputs, attributes)."""

    def make(nodes, heads=None, params=()):
        written = [
            {"op": op, "name": name, "inputs": [[n, 0, 0] for n in inputs], "attrs": attributes}
            for op, name, inputs, attributes in nodes
        ]
        heads = heads or [[len(nodes) - 1, 0, 0]]
        data = json.dumps({"nodes": written, "heads": heads}).encode()
        return MxnetNetwork(read_symbol(data, "s"), dict(params))

    return make


@pytest.fixture(scope="module")
def arrays():
    """What MXNet was given, and gave, by file."""
    return {file: dict(np.load(DATA / f"{file}.npz")) for file in FILES}


@pytest.mark.parametrize(
    ("file", "number", "case"), CASES, ids=[f"{f}-{n}-{c['op']}" for f, n, c in CASES]
)
@pytest.mark.parametrize("dims", ["all", "rank"])
def test_an_operator_does_what_mxnet_did(run, arrays, file, number, case, dims):
    arrays = arrays[file]
    symbol = read_symbol(arrays[f"{number}_symbol"].tobytes(), "s")
    network = MxnetNetwork(symbol, read_params(arrays[f"{number}_params"].tobytes(), "p"))
    feed = {name: arrays[f"{number}_in_{name}"] for name in network.input_names()}
    ports = [
        OnnxPort(name, datatype_of(one.dtype), one.shape if dims == "all" else (-1,) * one.ndim)
        for name, one in feed.items()
    ]
    outputs = list(run(network.convert(ports), feed).values())
    assert len(outputs) == case["outputs"]
    for index, output in enumerate(outputs):
        wanted = arrays[f"{number}_out{index}"]
        assert (output.shape, output.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=2e-6)


def test_a_net_does_what_mxnet_did(run):
    model = load("cnn").convert([OnnxPort("data", DataType.FP32, (-1, 3, 16, 16))])
    found = run(model, {"data": np.load(DATA / "input.npy")})
    np.testing.assert_allclose(found["softmax"], np.load(DATA / "output.npy"), atol=1e-6)


def test_sums_and_differences_are_exact(run):
    ports = [OnnxPort(name, DataType.FP32, (-1,)) for name in ("INPUT0", "INPUT1")]
    a, b = np.float32([1, 2.5, 3e38]), np.float32([0.1, 7, -3e38])
    found = run(load("addsub").convert(ports), {"INPUT0": a, "INPUT1": b})
    assert np.array_equal(found["OUTPUT0"], a + b)
    with np.errstate(over="ignore"):
        assert np.array_equal(found["OUTPUT1"], a - b)


def test_integers_stay_exact(run):
    given = np.int32([2**30 + 1, -(2**31), 2**31 - 1])
    network = load("int32")
    assert network.inferred_inputs(["d"]) == {}
    [found] = run(network.convert([OnnxPort("d", DataType.INT32, (-1,))]), {"d": given}).values()
    assert found.dtype == np.int32
    assert np.array_equal(found, given)


WHOLE = [-64, -27, -9, -8, -1, 0, 5, 8, 64]
BYTES = [4, 5, 64, 100]


@pytest.mark.parametrize(
    ("op", "attributes", "given", "wanted"),
    [  # as MXNet 1.9.1 computed them
        (
            "degrees",
            {},
            np.int32(WHOLE),
            np.int32([-3666, -1546, -515, -458, -57, 0, 286, 458, 3666]),
        ),
        ("degrees", {}, np.int8([-64, -8, 5]), np.int8([-82, 54, 30])),
        ("degrees", {}, np.uint8(BYTES), np.uint8([229, 30, 82, 97])),
        ("radians", {}, np.int32([-64, -8, 64, 100]), np.int32([-1, 0, 1, 1])),
        ("radians", {}, np.uint8(BYTES), np.uint8([0, 0, 1, 1])),
        ("cbrt", {}, np.int32(WHOLE), np.int32([-4, -3, -2, -2, -1, 0, 1, 2, 4])),
        ("clip", {"a_min": "-3", "a_max": "4.5"}, np.uint8(BYTES), np.uint8([4, 4, 4, 4])),
        ("clip", {"a_min": "-3", "a_max": "999"}, np.uint8(BYTES), np.uint8(BYTES)),
        ("amp_cast", {"dtype": "float16"}, np.int32([-7]), np.int32([-7])),
        ("amp_cast", {"dtype": "float16"}, np.float32([-7]), np.float16([-7])),
        ("_mul_scalar", {"scalar": "0.5"}, np.int32([-9, 5]), np.int32([0, 0])),
        (
            "_mul_scalar",
            {"scalar": "0.5", "is_int": "0"},
            np.int32([-9, 5]),
            np.float64([-4.5, 2.5]),
        ),
        ("_mul_scalar", {"scalar": "0.5", "is_int": "0"}, np.float32([-9]), np.float32([-4.5])),
        ("_rpower_scalar", {"scalar": "2", "is_int": "0"}, np.int32([-3]), np.float64([0.125])),
        ("_mod_scalar", {"scalar": "2", "is_int": "0"}, np.int32([-27]), np.float64([1])),
        ("_equal_scalar", {"scalar": "5", "is_int": "0"}, np.int32([5, 4]), np.float64([1, 0])),
        (
            "_logical_xor_scalar",
            {"scalar": "0.5", "is_int": "0"},
            np.int32([5, 0]),
            np.float64([0, 1]),
        ),
    ],
)
def test_functions_of_reals_take_whole_numbers_as_mxnet_does(
    network, run, op, attributes, given, wanted
):
    made = network([("null", "x", [], {}), (op, "y", [0], attributes)])
    [found] = run(
        made.convert([OnnxPort("x", datatype_of(given.dtype), (-1,))]), {"x": given}
    ).values()
    assert found.dtype == wanted.dtype
    assert np.array_equal(found, wanted)


def test_a_type_is_known_behind_other_operators(network, run):
    nodes = [
        ("null", "x", [], {}),
        ("cast", "c", [0], {"dtype": "int32"}),
        ("tile", "t", [1], {"reps": "2"}),
    ]
    made = network([*nodes, ("degrees", "y", [2], {})])
    [found] = run(
        made.convert([OnnxPort("x", DataType.FP32, (-1,))]), {"x": np.float32([5.9])}
    ).values()
    assert found.tolist() == [286, 286]


@pytest.mark.parametrize("op", ["smooth_l1", "rcbrt"])
def test_what_whole_numbers_come_to_only_in_mxnet_is_unsupported(network, op):
    made = network([("null", "x", [], {}), (op, "y", [0], {"scalar": "1"})])
    with pytest.raises(Unsupported, match=rf"node 1 of 2 \('{op}' 'y'\): .*whole numbers"):
        made.convert([OnnxPort("x", DataType.INT32, (-1,))])


def test_labels_are_no_inputs():
    assert load("cnn").input_names() == ["data"]
    assert load("addsub").input_names() == ["INPUT0", "INPUT1"]


def test_weights_tell_the_dims_of_the_input():
    assert load("cnn").inferred_inputs(["data"])["data"] == OnnxPort(
        "data", DataType.FP32, (-1, 3, -1, -1)
    )


def test_a_variable_may_tell_its_dims_itself(network):
    attributes = {"__shape__": "(0, 3)", "__dtype__": "6"}
    made = network([("null", "x", [], attributes), ("relu", "y", [0], {})])
    assert made.inferred_inputs(["x"]) == {"x": OnnxPort("x", DataType.INT64, (-1, 3))}


def test_an_output_is_called_as_in_mxnet_if_that_is_wanted(network, run):
    made = network([("null", "x", [], {}), ("relu", "a", [0], {}), ("negative", "b", [1], {})])
    given = {"x": np.float32([[1, -2, 3]])}
    assert list(run(made.convert([X]), given)) == ["b"]
    found = run(made.convert([X], ["b_output", "a"]), given)
    assert found["b_output"].tolist() == [[-1, 0, -3]]
    assert found["a"].tolist() == [[1, 0, 3]]
    with pytest.raises(InvalidConfig, match="has no output 'c', it has 'b'"):
        made.convert([X], ["c"])


def test_several_outputs_of_a_node_have_numbers(network, run):
    split = ("SliceChannel", "s", [0], {"num_outputs": "3", "axis": "1"})
    made = network([("null", "x", [], {}), split], [[1, 0, 0], [1, 2, 0]])
    found = run(made.convert([X]), {"x": np.float32([[1, 2, 3]])})
    assert {name: array.item() for name, array in found.items()} == {"s0": 1, "s2": 3}


def test_an_output_that_is_listed_twice_is_one(network, run):
    nodes = [("null", "x", [], {}), ("relu", "a", [0], {}), ("negative", "b", [1], {})]
    made = network(nodes, [[1, 0, 0], [1, 0, 0], [2, 0, 0]])
    assert made.output_names() == ["a", "a", "b"]
    found = run(made.convert([X]), {"x": np.float32([[1, -2, 3]])})
    assert {name: array.tolist() for name, array in found.items()} == {
        "a": [[1, 0, 3]],
        "b": [[-1, 0, -3]],
    }


def test_an_input_may_be_an_output_too(network, run):
    nodes = [("null", "x", [], {}), ("null", "w", [], {}), ("relu", "y", [0], {})]
    made = network(nodes, [[0, 0, 0], [1, 0, 0], [2, 0, 0]], {"w": np.float32([5])})
    found = run(made.convert([X]), {"x": np.float32([[1, -2, 3]])})
    assert {name: array.tolist() for name, array in found.items()} == {
        "x": [[1, -2, 3]],
        "w": [5],
        "y": [[1, 0, 3]],
    }


def test_states_that_old_files_do_not_list_are_found(network, run):
    params = {f"bn_{name}": np.float32([2, 2, 2]) for name in ("moving_mean", "moving_var")}
    params |= {"g": np.float32([1, 1, 1]), "b": np.float32([0, 0, 0])}
    nodes = [("null", name, [], {}) for name in ("x", "g", "b")]
    made = network([*nodes, ("BatchNorm", "bn", [0, 1, 2], {"eps": "0.0"})], params=params)
    [found] = run(made.convert([X]), {"x": np.float32([[2, 3, 4]])}).values()
    np.testing.assert_allclose(found, np.float32([[0, 1, 2]]) / np.sqrt(2), rtol=1e-5)


def test_operators_that_cannot_be_converted_are_named_with_their_places(network):
    nodes = [("null", "x", [], {}), ("CTCLoss", "r", [0], {}), ("Custom", "c", [1], {})]
    with pytest.raises(Unsupported) as raised:
        network(nodes).check_operators()
    assert raised.value.message == (
        "operators that cannot be converted to ONNX: 's', node 1 of 3 ('CTCLoss' 'r'); "
        "'s', node 2 of 3 ('Custom' 'c')"
    )


def test_what_no_output_needs_may_be_anything(network, run):
    made = network([("null", "x", [], {}), ("CTCLoss", "r", [0], {}), ("relu", "y", [0], {})])
    assert list(run(made.convert([X]), {"x": np.zeros((1, 3), np.float32)})) == ["y"]


@pytest.mark.parametrize(
    ("op", "attributes", "reason"),
    [
        ("Convolution", {"kernel": "(3, x)"}, "'kernel' is '.3, x.', expected a tuple of whole"),
        ("Convolution", {"kernel": "(3,)", "pad": "(1, 1)"}, "not of one number of dims"),
        ("Pooling", {"kernel": "(0, 0)"}, "should be at least 1"),
        ("Pooling", {"pool_type": "odd"}, "no pool_type 'odd'"),
        ("Activation", {"act_type": "odd"}, "no act_type 'odd'"),
        ("Reshape", {"shape": "(-7,)"}, "its shape is"),
        ("softmax", {"axis": "9"}, "axis 9 is not one of an array of 2 dims"),
        ("SliceChannel", {"num_outputs": "99999999"}, "num_outputs is 99999999"),
        ("Cast", {"dtype": "odd"}, "no element type 'odd'"),
        ("Dropout", {"mode": "always"}, "at random"),
        ("_plus_scalar", {"scalar": "one"}, "'scalar' is 'one', expected a number"),
        ("sum", {"keepdims": "maybe"}, "'keepdims' is 'maybe', expected True or False"),
        ("broadcast_add", {}, "it has 1 inputs, and needs 2"),
        ("RNN", {"mode": "odd"}, "no mode 'odd'"),
        ("RNN", {"mode": "gru", "num_layers": "0"}, "num_layers is 0"),
        ("SequenceLast", {"axis": "2"}, "its axis is 2, expected 0 or 1"),
        ("SequenceReverse", {"axis": "1"}, "axis can only be 0"),
        ("_ones", {"shape": "(99999, 99999)"}, "more than 67108864 elements in all"),
        ("_zeros", {"shape": "(-1,)"}, "or none"),
        ("_arange", {"start": "0", "stop": "9", "step": "0"}, "in steps of 0"),
        ("_arange", {"start": "inf"}, "counts from 0.0 to inf"),
        ("_contrib_MultiBoxPrior", {"ratios": "(0,)"}, "ratios should be above 0"),
        ("_contrib_MultiBoxPrior", {"sizes": "(a,)"}, "'sizes' is 'a,', expected a tuple"),
        ("_contrib_interleaved_matmul_selfatt_qk", {"heads": "0"}, "heads is 0"),
        ("_contrib_BilinearResize2D", {"scale_height": "-1"}, "its scales are"),
        ("Crop", {}, "h_w is .., expected two"),
        ("ROIPooling", {"pooled_size": "(0, 1)"}, "its pooled_size is .0, 1."),
        ("depth_to_space", {}, "its block_size is 0"),
        ("smooth_l1", {"scalar": "0"}, "should not be 0"),
        ("repeat", {"repeats": "0"}, "repeats is 0"),
        ("_contrib_AdaptiveAvgPooling2D", {"output_size": "(0, 2)"}, "its output_size is .0, 2."),
        ("Reshape", {"shape": "(-4, 2)"}, "its shape is .-4, 2."),
        ("Reshape", {"shape": "(-5,)"}, "its shape is .-5."),
        ("GridGenerator", {"transform_type": "odd"}, "no transform_type 'odd'"),
        ("_contrib_box_nms", {"in_format": "odd"}, "should be corner or center"),
        ("broadcast_axis", {"axis": "(0,)", "size": "(0,)"}, "do not fit"),
        ("_split_v2", {"sections": "-1"}, "sections is -1"),
        ("_split_v2", {"indices": "()"}, "neither sections nor indices"),
    ],
)
def test_an_attribute_that_makes_no_sense_is_told_with_its_place(network, op, attributes, reason):
    inputs = [0, 1] if op in ("Convolution", "ROIPooling", "RNN") else [0]
    nodes = [("null", "x", [], {}), ("null", "w", [], {}), (op, "y", inputs, attributes)]
    made = network(nodes, params={"w": np.zeros((1, 3, 3, 3), np.float32)})
    with pytest.raises(InvalidConfig, match=rf"node 2 of 3 \('{op}' 'y'\): .*{reason}"):
        made.convert([X])


def test_variances_of_boxes_are_four(network):
    nodes = [("null", name, [], {}) for name in ("x", "w", "a")]
    made = network([*nodes, ("_contrib_MultiBoxDetection", "y", [0, 1, 2], {"variances": "(1,)"})])
    with pytest.raises(InvalidConfig, match="its variances should be four numbers"):
        made.convert([OnnxPort(name, DataType.FP32, (-1, -1, -1)) for name in "xwa"])


def test_a_target_shape_of_other_dims_than_the_window_is_told(network):
    nodes = [("null", "x", [], {}), ("null", "w", [], {})]
    attributes = {"kernel": "(3, 3)", "target_shape": "(9, 0)"}
    made = network([*nodes, ("Deconvolution", "y", [0, 1], attributes)], params={"w": np.ones(1)})
    with pytest.raises(InvalidConfig, match=r"target_shape is \[9, 0\], expected 2 sizes"):
        made.convert([X])


@pytest.mark.parametrize(
    ("op", "attributes", "reason"),
    [
        ("Pooling", {"kernel": "(1, 1)", "pooling_convention": "same"}, "'same' cannot"),
        ("Pooling", {"kernel": "(1, 1)", "pool_type": "lp", "p_value": "3"}, "p_value 3 cannot"),
        ("Reshape", {"reverse": "True"}, "without 'shape' cannot"),
        ("UpSampling", {"scale": "2", "sample_type": "odd"}, "only sample_type 'nearest'"),
        ("UpSampling", {"scale": "2", "sample_type": "bilinear"}, "its filter is no constant of 4"),
        ("RNN", {"mode": "lstm", "projection_size": "2"}, "projections and clipped states"),
        ("_rnn_param_concat", {"dim": "0"}, "its inputs are no constants"),
        ("topk", {"ret_typ": "mask"}, "ret_typ 'mask' cannot"),
        ("pick", {"axis": "None"}, "pick without an axis cannot"),
        ("_arange", {"infer_range": "True", "start": "0"}, "infer_range cannot"),
        ("_contrib_arange_like", {"repeat": "2"}, "repeat cannot"),
        ("_contrib_BilinearResize2D", {"mode": "like"}, "mode 'like' of 2 inputs cannot"),
        ("_contrib_ROIAlign", {"pooled_size": "(1, 1)", "position_sensitive": "1"}, "position_s"),
        ("log_softmax", {"use_length": "True"}, "use_length cannot"),
        ("GridGenerator", {"transform_type": "affine"}, "expected two sizes of at least 2"),
        ("SpatialTransformer", {"target_shape": "(99999, 99999)"}, "expected two sizes"),
        ("_linalg_gemm2", {"axis": "0"}, "another axis than -2 cannot"),
    ],
)
def test_what_only_mxnet_can_do_is_unsupported_and_told_with_its_place(
    network, op, attributes, reason
):
    nodes = [("null", "x", [], {}), ("null", "w", [], {}), (op, "y", [0, 1], attributes)]
    made = network(nodes, params={"w": np.zeros((1, 3, 3, 3), np.float32)})
    with pytest.raises(Unsupported, match=rf"node 2 of 3 \('{op}' 'y'\): .*{reason}"):
        made.convert([OnnxPort("x", DataType.FP32, (-1, 3, 4, 4))])


@pytest.mark.parametrize("vector", [np.zeros(33, np.float32), np.zeros((4, 8), np.float32)])
def test_a_recurrent_layer_has_weights_of_its_size(network, vector):
    nodes = [("null", name, [], {}) for name in ("x", "w", "h")]
    attributes = {"mode": "rnn_tanh", "num_layers": "1", "state_size": "2"}
    made = network([*nodes, ("RNN", "y", [0, 1, 2], attributes)], params={"w": vector})
    ports = [OnnxPort(name, DataType.FP32, (-1, -1, 3)) for name in "xh"]
    with pytest.raises((InvalidConfig, Unsupported), match="parameters are no"):
        made.convert(ports)


def test_layers_of_gluon_have_their_weights_joined(network, run):
    """Gluon gives RNN a vector of many parameters, and first states of no batch size."""
    shapes = {"w0": (8, 3), "w1": (8, 2), "b0": (8,), "b1": (8,)}
    random = np.random.default_rng(0)
    params = {name: random.standard_normal(one).astype(np.float32) for name, one in shapes.items()}
    nodes = [("null", name, [], {}) for name in ("x", *shapes)]
    nodes += [("Reshape", f"flat{n}", [n], {"shape": "(-1,)"}) for n in (1, 2, 3, 4)]
    nodes.append(("_rnn_param_concat", "all", [5, 6, 7, 8], {"dim": "0", "num_args": "4"}))
    nodes += [("_zeros", name, [], {"shape": "(1, 0, 2)"}) for name in ("h", "c")]
    attributes = {"mode": "lstm", "num_layers": "1", "state_size": "2"}
    nodes.append(("RNN", "y", [0, 9, 10, 11], attributes))
    made = network(nodes, params=params)
    assert made.input_names() == ["x"]
    x = random.standard_normal((4, 5, 3)).astype(np.float32)
    [found] = run(made.convert([OnnxPort("x", DataType.FP32, (-1, -1, 3))]), {"x": x}).values()
    h = c = np.zeros((5, 2), np.float32)
    for step, wanted in zip(x, found, strict=True):
        gates = step @ params["w0"].T + params["b0"] + h @ params["w1"].T + params["b1"]
        i, f, g, o = np.split(gates, 4, axis=1)
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
        np.testing.assert_allclose(wanted, h, rtol=1e-5, atol=1e-6)


def test_an_output_that_a_node_has_not_is_told(network):
    nodes = [("null", "x", [], {}), ("relu", "y", [0], {})]
    data = {"nodes": [], "heads": [[2, 0, 0]]}
    for op, name, inputs, _ in nodes:
        data["nodes"].append({"op": op, "name": name, "inputs": [[n, 0, 0] for n in inputs]})
    data["nodes"].append({"op": "relu", "name": "z", "inputs": [[1, 3, 0]]})
    made = MxnetNetwork(read_symbol(json.dumps(data).encode(), "s"), {})
    with pytest.raises(InvalidConfig, match="reads output 3 of node 1, which has none"):
        made.convert([X])


def test_a_transposed_matrix_of_unknown_rank_has_two_dims(network, run):
    """As batches of matrices, arrays of three dims would be multiplied otherwise than by MXNet."""
    weights = np.arange(9, dtype=np.float32).reshape(3, 3)
    nodes = [("null", "x", [], {}), ("null", "w", [], {}), ("squeeze", "s", [0], {})]
    nodes.append(("dot", "d", [2, 1], {"transpose_a": "True"}))
    # Of an array of unknown rank, it could not be converted.
    nodes.append(("SwapAxis", "y", [3], {"dim1": "0", "dim2": "1"}))
    port = OnnxPort("x", DataType.FP32, (-1, -1, -1))
    model = network(nodes, params={"w": weights}).convert([port])
    x = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    np.testing.assert_array_equal(run(model, {"x": x})["y"], (x[0].T @ weights).T)
    with pytest.raises(Exception, match="perm"):
        run(model, {"x": np.ones((2, 3, 3), np.float32)})
