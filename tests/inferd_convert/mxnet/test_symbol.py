import json
from pathlib import Path

import pytest

from inferd.errors import InvalidConfig
from inferd_convert.mxnet.symbol import MAX_NODES, read_symbol

DATA = Path(__file__).parents[2] / "data" / "mxnet"


def symbol(*nodes, heads=((0, 0, 0),)):
    return json.dumps({"nodes": list(nodes), "heads": list(heads), "arg_nodes": []}).encode()


def node(op="null", name="x", inputs=(), **more):
    return {"op": op, "name": name, "inputs": list(inputs), **more}


def test_what_mxnet_wrote_is_read():
    read = read_symbol((DATA / "cnn-symbol.json").read_bytes(), "cnn-symbol.json")
    last = read.nodes[read.heads[0][0]]
    assert (last.op, last.name) == ("SoftmaxOutput", "softmax")
    conv = next(one for one in read.nodes if one.op == "Convolution")
    assert conv.attributes["kernel"] == "(3, 3)"
    assert conv.place == "'cnn-symbol.json', node 3 of 27 ('Convolution' 'conv1')"


@pytest.mark.parametrize("key", ["attrs", "attr", "param"])
def test_attributes_are_found_under_each_of_their_old_names(key):
    read = read_symbol(symbol(node(**{key: {"a": "1"}}), heads=[[0, 0]]), "s")
    assert read.nodes[0].attributes == {"a": "1"}
    assert read.heads == [(0, 0)]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "'s' is no MXNet symbol: "),
        (b"\x08\x01", "'s' is no MXNet symbol: "),
        (b"\xff\xfe{}", "'s' is no MXNet symbol: "),
        (b"[" * 100_000, "'s' is no MXNet symbol: "),
        (b'{"nodes": 1, "heads": []}', r"Expected `array`, got `int` - at `\$.nodes`"),
        (symbol(node(attrs={"a": 1})), r"at `\$.nodes\[0\].attrs"),
        (symbol(), "it has 0 nodes"),
        (symbol(node(), heads=[]), "and 0 outputs"),
        (symbol(node("a", "b", [[0, 0, 0]])), "node 0 of 1 .* reads node 0, which does not come"),
        (symbol(node("a", "b", [[1, 0]]), node("c", "d", [[0, 0]])), "reads node 1"),
        (symbol(node(), heads=[[5, 0, 0]]), "an output reads node 5"),
        (symbol(node(), node("a", "b", [[0]])), r"reads \[0\], expected a node"),
        (symbol(node(), node("a", "b", [[-1, 0]])), r"reads \[-1, 0\]"),
    ],
)
def test_hostile_symbols_are_refused_by_their_place(data, reason):
    with pytest.raises(InvalidConfig, match=reason):
        read_symbol(data, "s")


@pytest.mark.slow
def test_a_symbol_of_more_nodes_than_any_has_is_refused():
    one = b'{"op":"null","name":"x"}'
    many = b",".join([one] * (MAX_NODES + 1))
    with pytest.raises(InvalidConfig, match="at most 100000"):
        read_symbol(b'{"nodes":[' + many + b'],"heads":[[0,0]]}', "s")
