import json
from pathlib import Path

import numpy as np
import pytest

from inferd.convert.mxnet.network import Network
from inferd.convert.mxnet.params import read_params
from inferd.convert.mxnet.symbol import read_symbol
from inferd.convert.onnx_model import Port
from inferd.errors import InvalidConfig, Unsupported
from inferd.tensor.dtype import DataType, datatype_of

DATA = Path(__file__).parents[2] / "data" / "mxnet"
CASES = list(enumerate(json.loads((DATA / "operators.json").read_text())))
X = Port("x", DataType.FP32, (-1, 3))


def load(name):
    symbol = read_symbol((DATA / f"{name}-symbol.json").read_bytes(), "symbol")
    return Network(symbol, read_params((DATA / f"{name}-0000.params").read_bytes(), "params"))


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
        return Network(read_symbol(data, "s"), dict(params))

    return make


@pytest.fixture(scope="module")
def arrays():
    """What MXNet was given, and gave."""
    with np.load(DATA / "operators.npz") as archive:
        return dict(archive)


@pytest.mark.parametrize(("number", "case"), CASES, ids=[f"{n}-{c['op']}" for n, c in CASES])
@pytest.mark.parametrize("dims", ["all", "rank"])
def test_an_operator_does_what_mxnet_did(run, arrays, number, case, dims):
    symbol = read_symbol(arrays[f"{number}_symbol"].tobytes(), "s")
    network = Network(symbol, read_params(arrays[f"{number}_params"].tobytes(), "p"))
    feed = {name: arrays[f"{number}_in_{name}"] for name in network.input_names()}
    ports = [
        Port(name, datatype_of(one.dtype), one.shape if dims == "all" else (-1,) * one.ndim)
        for name, one in feed.items()
    ]
    outputs = list(run(network.convert(ports), feed).values())
    assert len(outputs) == case["outputs"]
    for index, output in enumerate(outputs):
        wanted = arrays[f"{number}_out{index}"]
        assert (output.shape, output.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=2e-6)


def test_a_net_does_what_mxnet_did(run):
    model = load("cnn").convert([Port("data", DataType.FP32, (-1, 3, 16, 16))])
    found = run(model, {"data": np.load(DATA / "input.npy")})
    np.testing.assert_allclose(found["softmax"], np.load(DATA / "output.npy"), atol=1e-6)


def test_sums_and_differences_are_exact(run):
    ports = [Port(name, DataType.FP32, (-1,)) for name in ("INPUT0", "INPUT1")]
    a, b = np.float32([1, 2.5, 3e38]), np.float32([0.1, 7, -3e38])
    found = run(load("addsub").convert(ports), {"INPUT0": a, "INPUT1": b})
    assert np.array_equal(found["OUTPUT0"], a + b)
    with np.errstate(over="ignore"):
        assert np.array_equal(found["OUTPUT1"], a - b)


def test_integers_stay_exact(run):
    given = np.int32([2**30 + 1, -(2**31), 2**31 - 1])
    network = load("int32")
    assert network.told_inputs(["d"]) == {}
    [found] = run(network.convert([Port("d", DataType.INT32, (-1,))]), {"d": given}).values()
    assert found.dtype == np.int32
    assert np.array_equal(found, given)


def test_labels_are_no_inputs():
    assert load("cnn").input_names() == ["data"]
    assert load("addsub").input_names() == ["INPUT0", "INPUT1"]


def test_weights_tell_the_dims_of_the_input():
    assert load("cnn").told_inputs(["data"])["data"] == Port("data", DataType.FP32, (-1, 3, -1, -1))


def test_a_variable_may_tell_its_dims_itself(network):
    attributes = {"__shape__": "(0, 3)", "__dtype__": "6"}
    made = network([("null", "x", [], attributes), ("relu", "y", [0], {})])
    assert made.told_inputs(["x"]) == {"x": Port("x", DataType.INT64, (-1, 3))}


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


def test_states_that_old_files_do_not_list_are_found(network, run):
    params = {f"bn_{name}": np.float32([2, 2, 2]) for name in ("moving_mean", "moving_var")}
    params |= {"g": np.float32([1, 1, 1]), "b": np.float32([0, 0, 0])}
    nodes = [("null", name, [], {}) for name in ("x", "g", "b")]
    made = network([*nodes, ("BatchNorm", "bn", [0, 1, 2], {"eps": "0.0"})], params=params)
    [found] = run(made.convert([X]), {"x": np.float32([[2, 3, 4]])}).values()
    np.testing.assert_allclose(found, np.float32([[0, 1, 2]]) / np.sqrt(2), rtol=1e-5)


def test_operators_that_cannot_be_converted_are_named_with_their_places(network):
    nodes = [("null", "x", [], {}), ("RNN", "r", [0], {}), ("Custom", "c", [1], {})]
    with pytest.raises(Unsupported) as raised:
        network(nodes).check_operators()
    assert raised.value.message == (
        "operators that cannot be converted to ONNX: 's', node 1 of 3 ('RNN' 'r'); "
        "'s', node 2 of 3 ('Custom' 'c')"
    )


def test_what_no_output_needs_may_be_anything(network, run):
    made = network([("null", "x", [], {}), ("RNN", "r", [0], {}), ("relu", "y", [0], {})])
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
    ],
)
def test_an_attribute_that_makes_no_sense_is_told_with_its_place(network, op, attributes, reason):
    inputs = [0, 1] if op == "Convolution" else [0]
    nodes = [("null", "x", [], {}), ("null", "w", [], {}), (op, "y", inputs, attributes)]
    made = network(nodes, params={"w": np.zeros((1, 3, 3, 3), np.float32)})
    with pytest.raises(InvalidConfig, match=rf"node 2 of 3 \('{op}' 'y'\): .*{reason}"):
        made.convert([X])


@pytest.mark.parametrize(
    ("op", "attributes", "reason"),
    [
        ("Pooling", {"kernel": "(1, 1)", "pooling_convention": "same"}, "'same' cannot"),
        ("Pooling", {"kernel": "(1, 1)", "pool_type": "lp", "p_value": "3"}, "p_value 3 cannot"),
        ("Deconvolution", {"kernel": "(3, 3)", "target_shape": "(9, 9)"}, "target_shape cannot"),
        ("Reshape", {"shape": "(0, -1)", "reverse": "True"}, "in reverse, cannot"),
        ("argmax", {"keepdims": "True"}, "keepdims without 'axis' cannot"),
        ("UpSampling", {"scale": "2", "sample_type": "bilinear"}, "only sample_type 'nearest'"),
        ("softmax", {"use_length": "True"}, "use_length cannot"),
    ],
)
def test_what_only_mxnet_can_do_is_unsupported_and_told_with_its_place(
    network, op, attributes, reason
):
    nodes = [("null", "x", [], {}), ("null", "w", [], {}), (op, "y", [0, 1], attributes)]
    made = network(nodes, params={"w": np.zeros((1, 3, 3, 3), np.float32)})
    with pytest.raises(Unsupported, match=rf"node 2 of 3 \('{op}' 'y'\): .*{reason}"):
        made.convert([Port("x", DataType.FP32, (-1, 3, 4, 4))])


def test_an_output_that_a_node_has_not_is_told(network):
    nodes = [("null", "x", [], {}), ("relu", "y", [0], {})]
    data = {"nodes": [], "heads": [[2, 0, 0]]}
    for op, name, inputs, _ in nodes:
        data["nodes"].append({"op": op, "name": name, "inputs": [[n, 0, 0] for n in inputs]})
    data["nodes"].append({"op": "relu", "name": "z", "inputs": [[1, 3, 0]]})
    made = Network(read_symbol(json.dumps(data).encode(), "s"), {})
    with pytest.raises(InvalidConfig, match="reads output 3 of node 1, which has none"):
        made.convert([X])
