"""What people give as inputs."""

import ml_dtypes
import numpy as np
import pytest

from inferd.client.tensors import needs_metadata, to_tensors
from inferd.core.metadata import ModelMetadata, TensorMetadata
from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import decode_strings


def model(datatype, *shape):
    return ModelMetadata("m", [], "", [TensorMetadata("x", datatype, shape)], [])


def tensor(value, declared=None):
    [found] = to_tensors({"x": value}, declared)
    return found


def test_arrays_say_all_themselves():
    assert not needs_metadata({"x": np.zeros(1), "y": np.float32(1)})
    assert needs_metadata({"x": np.zeros(1), "y": 1.0})


def test_a_contiguous_array_is_not_copied():
    array = np.arange(6, dtype=np.int64).reshape(2, 3)
    assert np.shares_memory(tensor(array).data, array)
    assert tensor(array).shape == (2, 3)
    turned = tensor(array.T)
    np.testing.assert_array_equal(turned.numpy(), array.T)


def test_an_array_of_numpys_own_texts_and_of_bytes():
    assert decode_strings(tensor(np.array(["a", "bc"])).data, "x") == [b"a", b"bc"]
    assert decode_strings(tensor(np.array([b"a", b"bc"])).data, "x") == [b"a", b"bc"]


def test_bfloat16_of_ml_dtypes():
    found = tensor(np.array([0.5], ml_dtypes.bfloat16))
    assert found.datatype is DataType.BF16
    assert found.data.tobytes() == b"\x00\x3f"


def test_one_element_takes_the_rank_of_the_input():
    assert tensor("a", model(DataType.BYTES, -1, 1)).shape == (1, 1)
    assert tensor(3, model(DataType.INT8, -1)).shape == (1,)
    assert tensor(3, model(DataType.INT8)).shape == ()
    assert tensor(b"a").shape == (1,)


def test_values_become_the_datatype_of_the_input_if_they_fit():
    assert tensor([1, 2], model(DataType.FP16, -1)).numpy().dtype == np.float16
    assert tensor([0.5], model(DataType.FP32, -1)).numpy().dtype == np.float32
    assert tensor([[True]], model(DataType.BOOL, -1, -1)).numpy().tolist() == [[True]]
    assert tensor([], model(DataType.INT32, -1)).numpy().dtype == np.int32
    assert tensor([255], model(DataType.UINT8, -1)).numpy().tolist() == [255]


@pytest.mark.parametrize(
    ("value", "datatype", "words"),
    [
        ([256], DataType.UINT8, "does not hold"),
        ([-1], DataType.UINT64, "does not hold"),
        ([2**64], DataType.UINT64, "INT64|Python int"),
        ([0.5], DataType.INT32, "fraction"),
        ([True], DataType.INT32, "true or false"),
        ([1], DataType.BOOL, "BOOL"),
        (["a"], DataType.FP32, "text"),
        ([1.0], DataType.BYTES, "BYTES"),
        ([[1], [1, 2]], DataType.INT32, "inhomogeneous|sequence"),
        (["a", 1], DataType.BYTES, "no text"),
    ],
)
def test_values_that_do_not_fit_are_refused(value, datatype, words):
    with pytest.raises(InvalidRequest, match=rf"'x'.*({words})"):
        tensor(value, model(datatype, -1))


def test_elements_without_a_datatype_are_refused():
    with pytest.raises(InvalidRequest, match=r"'x'.*complex"):
        tensor(np.zeros(1, complex))
    for element in (None, 1.5, "\ud800"):
        with pytest.raises(InvalidRequest, match=r"'x': an element is no text"):
            tensor(np.array([element], object))
