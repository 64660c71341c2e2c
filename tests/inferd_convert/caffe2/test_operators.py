"""Every operator, with arguments of all kinds, against what numpy makes of it."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

from inferd.errors import InvalidConfig
from inferd_convert.caffe2.netdef import Net, NetArgument, Operator
from inferd_convert.caffe2.network import OPERATORS, Caffe2Network

sys.path.insert(0, str(Path(__file__).parent))

import caffe2_more
import caffe2_reference as reference
from caffe2_cases import CASES as KEPT

CASES = KEPT | caffe2_more.CASES
REFERENCES = reference.OPERATORS | caffe2_more.REFERENCES

DATA = Path(__file__).parents[2] / "data" / "caffe2"
TOLERANCE = 2e-5

TEXTS = {"GivenTensorStringFill", "GivenTensorByteStringToUInt8Fill"}


def compare(apply, kind, seed, dims):
    dice, arrays = seed, np.random.default_rng(seed.getrandbits(32))
    args, inputs, count = CASES[kind](dice, arrays)
    with np.errstate(all="ignore"):
        wanted = reference.compute(kind, args, inputs, REFERENCES)[:count]
    found = apply(kind, args, inputs, count, dims)
    for one, other in zip(found, wanted, strict=True):
        note = f"{kind} {args} {[array.shape for array in inputs]}"
        assert one.shape == np.shape(other), note
        np.testing.assert_allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE, err_msg=note)


def test_each_operator_has_cases_and_a_reference():
    assert set(CASES) == set(OPERATORS) - TEXTS
    assert set(REFERENCES) == set(CASES)


@pytest.mark.parametrize("kind", sorted(CASES))
def test_an_operator_does_what_numpy_does(apply, kind):
    @settings(max_examples=8, deadline=None, database=None)
    @given(st.randoms(use_true_random=False), st.sampled_from(["all", "rank"]))
    def check(seed, dims):
        compare(apply, kind, seed, dims)

    check()


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(CASES))
def test_an_operator_does_what_numpy_does_many_times(apply, kind):
    @settings(max_examples=60, deadline=None, database=None)
    @given(st.randoms(use_true_random=True), st.sampled_from(["all", "rank"]))
    def check(seed, dims):
        compare(apply, kind, seed, dims)

    check()


@pytest.mark.parametrize("file", ["operators", "more_operators"])
def test_the_reference_does_what_caffe2_did(file):
    arrays = np.load(DATA / f"{file}.npz")
    for number, case in enumerate(json.loads((DATA / f"{file}.json").read_text())):
        inputs = [arrays[f"{number}_in{index}"] for index in range(case["inputs"])]
        more = {}
        if case["op"] == "Split" and "split" not in case["args"] and len(inputs) == 1:
            more["split"] = [inputs[0].shape[axis_of(case["args"])] // case["outputs"]]
            more["split"] *= case["outputs"]
        with np.errstate(all="ignore"):
            outputs = reference.compute(case["op"], case["args"] | more, inputs)
        for index in range(case["outputs"]):
            wanted = arrays[f"{number}_out{index}"]
            np.testing.assert_allclose(outputs[index], wanted, rtol=TOLERANCE, atol=TOLERANCE)


def axis_of(args):
    return reference.channel_axis(args)


@pytest.mark.parametrize(
    ("kind", "args", "others"),
    [
        ("InstanceNorm", {}, [np.ones(2, np.float32)] * 2),
        ("GroupNorm", {"group": 2}, [np.ones(2, np.float32)] * 2),
        ("RoIAlign", {"pooled_h": 2, "pooled_w": 2}, [np.float32([[0, 0, 1, 1]])]),
    ],
)
def test_an_image_of_no_pixels_is_an_error_and_no_crash(apply, kind, args, others):
    image = np.zeros((2, 0, 4, 2), np.float32)
    with pytest.raises(Fail, match="Reshape"):
        apply(kind, args | {"order": "NHWC"}, [image, *others], dims="rank")


def test_boxes_of_several_images_are_an_error_where_the_best_of_one_are_wanted(apply):
    scores, boxes = np.ones((3, 2), np.float32), np.ones((3, 8), np.float32)
    with pytest.raises(Fail, match="Reshape"):
        apply("BoxWithNMSLimit", {}, [scores, boxes, np.float32([1, 2])], 3, dims="rank")


def test_where_no_box_is_good_enough_none_is_given(apply):
    scores, boxes = np.zeros((3, 2), np.float32), np.ones((3, 8), np.float32)
    found = apply("BoxWithNMSLimit", {}, [scores, boxes], 6)
    assert [one.shape for one in found] == [(0,), (0, 4), (0,), (1,), (0,), (1, 2)]
    assert [one.dtype.name for one in found] == ["float32"] * 4 + ["int32"] * 2


def test_the_order_of_an_upsample_bilinear_means_nothing(apply):
    image = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    args = {"height_scale": 2.0, "width_scale": 3.0}
    [plain] = apply("UpsampleBilinear", args, [image], dims="rank")
    [other] = apply("UpsampleBilinear", args | {"order": "NHWC"}, [image], dims="rank")
    assert plain.shape == other.shape == (1, 2, 6, 12)
    np.testing.assert_array_equal(plain, other)


@pytest.mark.parametrize(
    ("kind", "values", "wanted"),
    [
        ("GivenTensorStringFill", [b"a", "ä".encode()], ["a", "ä"]),
        ("GivenTensorByteStringToUInt8Fill", [b"\x00\xff"], [0, 255]),
    ],
)
def test_texts_and_bytes_are_filled_in(run, kind, values, wanted):
    args = {"shape": NetArgument(ints=[2]), "values": NetArgument(strings=values)}
    init = Net("", [Operator(kind, (), ("x",), args, "")], [], [])
    copy = Net("", [Operator("Copy", ("x",), ("y",), {}, "")], ["x"], ["y"])
    assert run(Caffe2Network(init, copy).convert([]), {})["y"].tolist() == wanted


@pytest.mark.parametrize(
    ("kind", "args", "inputs", "reason"),
    [
        ("Conv", {"kernel": 3, "order": "NCWH"}, 2, "'order' should be NCHW or NHWC"),
        ("Conv", {"kernel": 3, "strides": [1, 1, 1]}, 2, "of different numbers of dims"),
        ("Conv", {"kernel": 0}, 2, "should be at least 1"),
        ("Conv", {"kernel": 3, "pad": -1}, 2, "its padding is negative"),
        ("Conv", {"kernel": 3, "legacy_pad": 9}, 2, "of an unknown kind"),
        ("Conv", {"kernel": 3, "dilation": 2, "legacy_pad": 2}, 2, "does not go with dilation"),
        ("Conv", {"kernel": 1.5}, 2, "'kernel' should be a whole number"),
        ("Conv", {"kernel": float("inf")}, 2, "'kernel' should be a whole number"),
        ("Conv", {"kernel": "three"}, 2, "'kernel' should be a whole number"),
        ("Conv", {"kernel": 3}, 1, "it has 1 inputs, and needs 2"),
        ("ConvTranspose", {"kernel": 3, "legacy_pad": 2}, 2, "NOTSET or VALID"),
        ("ConvTranspose", {"kernel": 3, "stride": 2, "adj": 2}, 2, "not less than its stride"),
        ("ConvTranspose", {"kernel": 3, "adj": -1}, 2, "not less than its stride"),
        ("MaxPool", {"kernel": 3, "dilation": 2}, 1, "no pools with dilation"),
        ("SpatialBN", {}, 5, "is_test: 1"),
        ("Dropout", {}, 1, "is_test: 1"),
        ("GroupNorm", {"group": 0}, 3, "at least 1"),
        ("LRN", {}, 1, "'size' should be at least 1"),
        ("Softmax", {"axis": 7}, 1, "axis 7 is not one of a tensor of 2 dims"),
        ("Add", {"broadcast": 1, "axis": 1}, 2, "do not fit into 2 from axis 1"),
        ("Cast", {"to": 99}, 1, "no element type 99"),
        ("Cast", {"to": "complex"}, 1, "no element type"),
        ("Pow", {}, 1, "neither the argument 'exponent' nor"),
        ("Reshape", {}, 1, "neither the argument 'shape' nor"),
        ("Squeeze", {"dims": [-1]}, 1, "should list dims, from 0 on"),
        ("Transpose", {"axes": [0, 0]}, 1, "are not those of its input"),
        ("Split", {"split": [1, 1]}, 1, "not a size for each of 1 outputs"),
        ("Slice", {"starts": [0]}, 1, "not of one length"),
        ("ChannelShuffle", {"group": 0}, 1, "at least 1"),
        ("TopK", {"k": 0}, 1, "'k' should be at least 1"),
        ("ResizeNearest", {"width_scale": -1.0}, 1, "scales should be above 0"),
        ("PadImage", {"pads": [1, 1]}, 1, "expected four numbers"),
        ("PadImage", {"mode": "odd"}, 1, "not constant, reflect or edge"),
        ("ReduceBackMean", {"num_reduce_dim": 9}, 1, "num_reduce_dim is 9"),
        ("ReduceFrontSum", {"num_reduce_dim": -1}, 1, "num_reduce_dim is -1"),
        ("ReduceBackSum", {}, 2, "second input, lengths"),
        ("LengthsSum", {}, 1, "input of lengths is missing"),
        ("ReluN", {"n": 0.0}, 1, "'n' is 0, expected a number above 0"),
        ("Mod", {}, 1, "'divisor' is 0, or not there"),
        ("Range", {}, 4, "it has 4 inputs, expected 1 to 3"),
        ("PrependDim", {"dim_size": 0}, 1, "'dim_size' is 0, expected at least 1"),
        ("Moments", {"axes": [2]}, 1, "axis 2 is not one of a tensor of 2 dims"),
        ("RoIPool", {}, 2, "is_test: 1"),
        ("RoIPool", {"order": "NHWC"}, 2, "order NCHW"),
        ("RoIPool", {"is_test": 1, "pooled_h": 0}, 2, "at least 1"),
        ("BBoxTransform", {"rotated": 1}, 3, "rotated boxes cannot"),
        ("BBoxTransform", {}, 3, "neither legacy_plus_one nor correct_transform_coords: 1"),
        ("BBoxTransform", {"correct_transform_coords": 0}, 3, "differ by a pixel"),
        ("BBoxTransform", {"legacy_plus_one": 1, "weights": [1.0, 0.0, 1.0, 1.0]}, 3, "'weights'"),
        ("BBoxTransform", {"legacy_plus_one": 1, "weights": [1.0, 2.0]}, 3, "'weights'"),
        ("BoxWithNMSLimit", {"soft_nms_enabled": 1}, 2, "soft_nms_enabled: 1 cannot"),
        ("BoxWithNMSLimit", {"rotated": 1}, 2, "rotated: 1 cannot"),
        ("BoxWithNMSLimit", {"input_boxes_include_bg_cls": 0}, 2, "bg_cls: 0 cannot"),
        ("BoxWithNMSLimit", {"nms": 1.5}, 2, "'nms' is 1.5, expected 0 to 1"),
        ("Float16ConstantFill", {"shape": [-5]}, 0, "or none"),
        ("UpsampleNearest", {"scale": 0}, 1, "'scale' should be at least 1"),
        ("WeightedSum", {}, 3, "it has 3 inputs, expected pairs"),
        ("ConstantFill", {"shape": [2**40]}, 0, "more than"),
        ("ConstantFill", {"shape": [-5]}, 0, "or none"),
        ("ConstantFill", {"shape": [1], "dtype": 4, "value": "x"}, 0, "texts cannot"),
        ("GivenTensorFill", {"shape": [3], "values": [1.0]}, 0, "shape is .3., and it has 1 val"),
        ("GivenTensorFill", {"shape": [-1], "values": [1.0]}, 0, "shape is .-1., and it has 1"),
        ("GivenTensorIntFill", {"shape": [1], "values": [2**40]}, 0, "are INT32"),
    ],
)
def test_an_argument_that_makes_no_sense_is_told_with_its_place(
    model_of, kind, args, inputs, reason
):
    arrays = [np.zeros((2, 3), np.float32)] * inputs
    with pytest.raises(InvalidConfig, match=rf"operator 1 \('{kind}'\): .*{reason}"):
        model_of(kind, args, arrays)
