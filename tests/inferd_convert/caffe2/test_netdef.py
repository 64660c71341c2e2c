import numpy as np
import pytest

from inferd.errors import InvalidConfig
from inferd_convert.caffe2.netdef import MAX_OPERATORS, read_net


def test_what_caffe2_wrote_is_read(data):
    net = read_net((data / "model.netdef").read_bytes(), "model.netdef")
    assert net.name == "cnn"
    assert net.external_input[:2] == ["data", "conv1_w"]
    assert net.external_output == ["prob"]
    types = ["Conv", "SpatialBN", "Relu", "MaxPool", "Conv", "Relu", "AveragePool", "FC", "Softmax"]
    assert [operator.type for operator in net.operators] == types
    first = net.operators[0]
    assert first.inputs == ("data", "conv1_w", "conv1_b")
    assert first.outputs == ("conv1",)
    assert first.arguments["kernel"].i == 3
    assert first.arguments["order"].s == b"NCHW"
    assert first.place == "'model.netdef', operator 1 of 9 ('Conv' → 'conv1')"


def test_weights_caffe2_wrote_are_read(data):
    net = read_net((data / "init_model.netdef").read_bytes(), "init_model.netdef")
    weight = net.operators[0].arguments
    assert weight["shape"].ints == [8, 3, 3, 3]
    assert weight["values"].floats.shape == (8 * 3 * 3 * 3,)
    assert np.isfinite(weight["values"].floats).all()


def test_arguments_of_each_kind_are_read(netdef):
    given = {"i": -3, "f": 0.5, "s": "word", "ints": [1, -2], "floats": [0.5, 2.0], "t": ["a", "b"]}
    [operator] = read_net(netdef([("Op", ["x"], ["y"], given)]), "n").operators
    found = operator.arguments
    assert (found["i"].i, found["f"].f, found["s"].s) == (-3, 0.5, b"word")
    assert found["ints"].ints == [1, -2]
    assert found["floats"].floats.tolist() == [0.5, 2.0]
    assert found["t"].strings == [b"a", b"b"]


def test_a_file_that_is_cut_off_anywhere_is_refused_or_read(data):
    whole = (data / "model.netdef").read_bytes()
    for size in range(len(whole)):
        try:
            read_net(whole[:size], "model.netdef")
        except InvalidConfig as error:
            assert "'model.netdef'" in error.message  # noqa: PT017


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x52\x00", "is no Caffe2 net: it has a field 10"),
        (b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'}", "is no Caffe2 net, or is cut off"),
        (b'{"nodes": []}', "is no Caffe2 net"),
        (b"\x12\xff\xff\xff\xff\x0f", "says it has 4294967295 bytes, 0 are left"),
        (b"\x12\x03\x2a\x01\x0a", "operator 1 of 1 is malformed"),
        (b"\x10\x05", "has a number instead"),
    ],
)
def test_foreign_files_are_refused_by_name(content, reason):
    with pytest.raises(InvalidConfig, match=reason):
        read_net(content, "model.netdef")


def test_an_empty_net_is_one():
    assert read_net(b"", "n").operators == []


@pytest.mark.slow
def test_a_net_of_more_operators_than_any_has_is_refused():
    with pytest.raises(InvalidConfig, match="more than 100000"):
        read_net(b"\x12\x00" * (MAX_OPERATORS + 1), "n")
