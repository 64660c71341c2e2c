import json
from pathlib import Path

import numpy as np
import pytest

from inferd.errors import InvalidConfig, Unsupported
from inferd.formats.onnx_model import OnnxPort
from inferd.tensor.dtype import DataType
from inferd_convert.caffe2.netdef import read_net
from inferd_convert.caffe2.network import Caffe2Network

DATA = Path(__file__).parents[2] / "data" / "caffe2"
TOLERANCE = 2e-5
INIT = b"\x12\x11\x12\x01w\x22\x0cConstantFill"  # one operator, which fills w
X = OnnxPort("x", DataType.FP32, (-1, 3))


def load():
    names = ("init_model.netdef", "model.netdef")
    return Caffe2Network(*(read_net((DATA / name).read_bytes(), name) for name in names))


def read(*contents):
    nets = [read_net(content, name) for content, name in zip(contents, "ip", strict=True)]
    return Caffe2Network(*nets)


def cases():
    """Yield (file, number, operator) of all that Caffe2 itself was given."""
    for file in ("operators", "more_operators"):
        for number, case in enumerate(json.loads((DATA / f"{file}.json").read_text())):
            yield pytest.param(file, number, case, id=f"{file}-{number}-{case['op']}")


@pytest.fixture(scope="module")
def arrays():
    """Of each file the arrays, `<case>_in<n>` and `<case>_out<n>`."""
    found = {}
    for file in ("operators", "more_operators"):
        with np.load(DATA / f"{file}.npz") as archive:
            found[file] = dict(archive)
    return found


@pytest.mark.parametrize(("file", "number", "case"), list(cases()))
@pytest.mark.parametrize("dims", ["all", "rank"])
def test_an_operator_does_what_caffe2_did(apply, arrays, file, number, case, dims):
    inputs = [arrays[file][f"{number}_in{index}"] for index in range(case["inputs"])]
    outputs = apply(case["op"], case["args"], inputs, case["outputs"], dims)
    for index, output in enumerate(outputs):
        wanted = arrays[file][f"{number}_out{index}"]
        assert (output.shape, output.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(output, wanted, rtol=TOLERANCE, atol=TOLERANCE)


def test_a_net_does_what_caffe2_did(run):
    model = load().convert([OnnxPort("data", DataType.FP32, (-1, 3, 32, 32))])
    [found] = run(model, {"data": np.load(DATA / "input.npy")}).values()
    wanted = np.load(DATA / "output.npy")
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() < TOLERANCE


def test_there_may_be_nothing_to_fill_in_but_not_nothing_to_run(netdef, run):
    relu = netdef([("Relu", ["x"], ["y"], {})], ["x"], ["y"])
    found = run(read(b"", relu).convert([X]), {"x": np.float32([[-1, 0, 2]])})
    assert found["y"].tolist() == [[0, 0, 2]]
    with pytest.raises(InvalidConfig, match="has no operator"):
        read(relu, b"")


def test_many_fills_together_are_bounded(netdef):
    truth = {"shape": [1 << 24], "dtype": 5, "value": 0}
    fills = [("ConstantFill", [], [f"w{n}"], truth) for n in range(5)]
    relu = netdef([("Relu", ["x"], ["y"], {})], ["x"], ["y"])
    with pytest.raises(InvalidConfig, match=r"operator 5 of 5 .*: more than 67108864 elements"):
        read(netdef(fills), relu).convert([X])


def test_a_stand_in_for_the_input_is_known():
    assert load().input_names() == ["data"]


def test_weights_tell_the_dims_of_the_input(netdef):
    assert load().inferred_inputs(["data"])["data"].shape == (-1, 3, -1, -1)
    init = netdef([("GivenTensorFill", [], ["w"], {"shape": [5, 7], "values": [0.0] * 35})])
    network = read(init, netdef([("FC", ["x", "w", "b"], ["y"], {})], ["x", "w", "b"], ["y"]))
    assert network.inferred_inputs(["x"])["x"] == OnnxPort("x", DataType.FP32, (-1, 7))


@pytest.mark.parametrize(
    "kind",
    [
        *("GenerateProposals", "CollectAndDistributeFpnRpnProposals"),
        *("RecurrentNetwork", "LSTMUnit", "Int8Conv", "Int8FC", "Int8Quantize", "Int8Relu"),
    ],
)
def test_an_operator_that_is_known_not_to_be_converted_is_named(netdef, kind):
    with pytest.raises(Unsupported, match=rf"converted to ONNX: 'p', operator 1 of 1 \('{kind}'"):
        read(netdef([]), netdef([(kind, ["x"], ["y"], {})], ["x"], ["y"]))


def test_operators_that_cannot_be_converted_are_named_with_their_places(netdef):
    operators = [
        ("Relu", ["x"], ["y"], {}),
        ("GenerateProposals", ["y"], ["z"], {}),
        ("LSTMUnit", ["z"], ["h"], {}),
    ]
    with pytest.raises(Unsupported) as raised:
        read(netdef([("XavierFill", [], ["w"], {})]), netdef(operators, ["x"], ["h"]))
    assert raised.value.message == (
        "operators that cannot be converted to ONNX: 'i', operator 1 of 1 ('XavierFill' → 'w'); "
        "'p', operator 2 of 3 ('GenerateProposals' → 'z'); 'p', operator 3 of 3 ('LSTMUnit' → 'h')"
    )


def test_many_such_operators_are_counted(netdef):
    net = netdef([("LSTMUnit", ["x"], ["x"], {})] * 30, ["x"], ["x"])
    with pytest.raises(Unsupported, match=r"operator 5 of 30 .*; and 25 more$"):
        read(INIT, net)


def test_a_blob_may_be_written_in_place(netdef, run):
    operators = [("Negative", ["x"], ["x"], {}), ("Exp", ["x"], ["x"], {})]
    network = read(INIT, netdef(operators, ["x"], ["x"]))
    # The input and the output are called the same, which ONNX has no words for.
    with pytest.raises(InvalidConfig, match="'x' is an input and an output"):
        network.convert([X])
    operators.append(("Copy", ["x"], ["y"], {}))
    network = read(INIT, netdef(operators, ["x"], ["y"]))
    given = np.array([[1, 2, 3]], np.float32)
    np.testing.assert_allclose(run(network.convert([X]), {"x": given})["y"], np.exp(-given), 1e-6)


def test_outputs_are_those_of_the_last_operator_where_the_net_names_none(netdef):
    network = read(INIT, netdef([("TopK", ["x"], ["v", "i"], {"k": 1})], ["x"]))
    assert network.output_names() == ["v", "i"]


def test_a_blob_inside_can_be_wanted(netdef, run):
    operators = [("Negative", ["x"], ["y"], {}), ("Exp", ["y"], ["z"], {})]
    network = read(INIT, netdef(operators, ["x"], ["z"]))
    found = run(network.convert([X], ["y"]), {"x": np.ones((1, 3), np.float32)})
    assert list(found) == ["z", "y"]


def test_a_blob_that_nothing_gives_is_named(netdef):
    network = read(INIT, netdef([("Add", ["x", "lost"], ["y"], {})], ["x", "lost"], ["y"]))
    with pytest.raises(InvalidConfig, match=r"operator 1 of 1 .* reads 'lost', which nothing"):
        network.convert([X])
    network = read(INIT, netdef([("Relu", ["x"], ["y"], {})], ["x"], ["z"]))
    with pytest.raises(InvalidConfig, match="gives no blob 'z'"):
        network.convert([X])


def test_a_circle_of_operators_is_refused_since_they_run_in_their_order(netdef):
    operators = [("Relu", ["b"], ["a"], {}), ("Relu", ["a"], ["b"], {})]
    network = read(INIT, netdef(operators, ["x"], ["b"]))
    with pytest.raises(InvalidConfig, match="reads 'b', which nothing before it gives"):
        network.convert([X])
