"""Values fitted to a model's inputs."""

import numpy as np
import pytest

from inferd.core.metadata import TensorMetadata
from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.values.fitting import fitted
from inferd.values.value import InputValue, objects


def fit(value, datatype=DataType.FP32, dims=(-1, 3), name="x"):
    if not isinstance(value, InputValue):
        value = InputValue("it", value)
    made = fitted({name: value}, [TensorMetadata("x", datatype, dims)])
    return made.tensors[0], made.notes


def refused(*given, **more):
    with pytest.raises(InvalidRequest) as caught:
        fit(*given, **more)
    return str(caught.value)


@pytest.mark.parametrize(
    ("shape", "dims", "result"),
    [
        ((2, 3), (-1, 3), (2, 3)),
        ((3,), (-1, 3), (1, 3)),
        ((4,), (-1, 1), (4, 1)),
        ((6,), (2, 3), (2, 3)),
        ((1, 3), (3,), (3,)),
        ((2, 2), (-1, 1, 2, 2), (1, 1, 2, 2)),
    ],
)
def test_dims_of_one_are_added_and_flat_values_take_dims(shape, dims, result):
    tensor, notes = fit(np.zeros(shape, np.float32), dims=dims)
    assert tensor.shape == result and tensor.numpy().shape == result and not notes


def test_an_array_of_the_right_kind_is_not_copied():
    array = np.zeros((2, 3), np.float32)
    assert np.shares_memory(fit(array)[0].numpy(), array)


def test_rounding_is_noted():
    tensor, notes = fit(np.array([0.1, 0.2, 0.3]))
    assert tensor.datatype is DataType.FP32 and notes == ["x: it is FP64, rounded to FP32"]
    assert fit(np.array([0.5, 1, np.nan]))[1] == []
    assert fit(np.array([2**24, 2**24 + 1, 0]))[1] == ["x: it is INT64, rounded to FP32"]
    assert fit(np.array([2**64 - 1, 0, 0], np.uint64))[1] == ["x: it is UINT64, rounded to FP32"]
    assert fit(np.array([-(2**63), 2**40, 1]))[1] == []


def test_whole_numbers_that_fp64_rounds_are_noted():
    assert fit(np.array([2**53 + 1, 0, 0]), DataType.FP64)[1] == ["x: it is INT64, rounded to FP64"]
    assert fit(np.array([2**63 - 1, 0, 0]), DataType.FP64)[1] == ["x: it is INT64, rounded to FP64"]
    assert fit(np.array([2**53, 0, 0]), DataType.FP64)[1] == []


def test_strings_take_the_cells_of_a_table_as_they_are():
    value = InputValue("it", np.array([7]), texts=lambda: objects([b"007"]))
    assert fit(value, DataType.BYTES, (1,))[0].numpy().tolist() == [b"007"]
    assert fit(value, DataType.INT32, (1,))[0].numpy().tolist() == [7]


def test_wrong_datatypes_and_dims_name_both_sides():
    said = refused(np.array([1.5, 2, 3]), DataType.INT32)
    assert said == "it has float64, input 'x' of the model takes INT32: 1.5 is no INT32"
    assert refused(objects([b"a"])).startswith("it has strings, input 'x' of the model takes FP32")
    said = refused(np.zeros((2, 4), np.float32))
    assert said == "it has dims [2,4], input 'x' of the model takes [-1,3]"
    said = refused(InputValue("r.json", np.zeros(3, np.int8), DataType.INT8))
    assert said == "r.json says that input 'x' is INT8; the model takes FP32"


def test_a_value_without_a_name_is_for_the_only_input():
    assert fit(np.zeros(3), name="")[0].name == "x"
    two = [TensorMetadata(name, DataType.FP32, (1,)) for name in "ab"]
    with pytest.raises(InvalidRequest, match=r"'a' FP32 \[1\], 'b' FP32 \[1\]"):
        fitted({"": InputValue("it", np.zeros(1))}, two)
    with pytest.raises(InvalidRequest, match="no input is given; the model takes 'a'"):
        fitted({}, two)
    with pytest.raises(InvalidRequest, match="the model has no input 'c'"):
        fitted({"c": InputValue("it", np.zeros(1))}, two)


def test_bytes_are_packed_elements_or_one_string():
    content = np.arange(6, dtype=np.float32).tobytes()
    tensor, _ = fit(InputValue("w.raw", None, content=content))
    assert tensor.shape == (2, 3) and tensor.numpy()[1, 2] == 5
    tensor, _ = fit(InputValue("w.raw", None, content=b"any"), DataType.BYTES, (-1, 1))
    assert tensor.shape == (1, 1) and tensor.strings() == [b"any"]
    assert "no whole number of FP32" in refused(InputValue("w.raw", None, content=b"123"))
    assert "has dims [4]" in refused(InputValue("w.raw", None, content=b"1234" * 4))


def test_a_model_that_declares_nothing_gets_values_as_they_are():
    values = {"a": InputValue("it", np.array([1])), "b": InputValue("it", objects([b"t"]))}
    made = fitted(values, []).tensors
    assert [(one.name, one.datatype.value, one.shape) for one in made] == [
        ("a", "INT64", (1,)),
        ("b", "BYTES", (1,)),
    ]
    typed = InputValue("it", np.zeros(2, np.float32), DataType.FP32)
    assert fitted({"x": typed}, []).tensors[0].datatype is DataType.FP32
    for name, value in (("", np.zeros(1)), ("x", None), ("x", np.zeros(1, complex))):
        with pytest.raises(InvalidRequest, match="it"):
            fitted({name: InputValue("it", value, content=b"x")}, [])


def test_a_picture_takes_the_models_form_or_stays_a_file():
    picture = InputValue(
        "p.png", np.full((4, 4, 3), 255, np.uint8), is_picture=True, content=b"file"
    )
    tensor, notes = fit(picture, dims=(-1, 3, 8, 8))
    assert tensor.shape == (1, 3, 8, 8) and tensor.numpy().max() == 1
    assert notes == ["x: p.png 4x4 as 8x8 RGB, pixels 0..1"]
    assert fit(picture, DataType.UINT8, (4, 4, 3))[0].numpy().max() == 255
    assert fit(picture, DataType.BYTES, (1,))[0].strings() == [b"file"]


def test_bf16_keeps_its_bits():
    tensor, _ = fit(np.array([1.0, 2.0, 3.0]), DataType.BF16)
    assert tensor.numpy().tolist() == [[0x3F80, 0x4000, 0x4040]]
