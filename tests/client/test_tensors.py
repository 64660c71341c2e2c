"""What people give as inputs."""

import ml_dtypes
import numpy as np
import pytest

from inferd.client.tensors import needs_metadata, to_tensors
from inferd.core.metadata import ModelMetadata, TensorMetadata
from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.halves import bf16_to_float32
from inferd.tensor.strings import decode_strings


def model(datatype, *shape):
    return ModelMetadata("m", [], "", [TensorMetadata("x", datatype, shape)], [])


def tensor(value, declared=None):
    [found] = to_tensors({"x": value}, declared)
    return found


def test_arrays_say_all_themselves():
    assert not needs_metadata({"x": np.zeros(1)})
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
    texts = np.array(["a", "é\0"], np.dtypes.StringDType())
    assert decode_strings(tensor(texts).data, "x") == [b"a", "é\0".encode()]


class Table:
    """What gives an array when asked, such as a table of pandas."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        if isinstance(self.array, Exception):
            raise self.array
        return self.array


def test_what_gives_an_array_when_asked():
    texts = tensor(Table(np.array(["a", "bc"])), model(DataType.BYTES, -1))
    assert decode_strings(texts.data, "x") == [b"a", b"bc"]
    columns = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    found = tensor(Table(columns), model(DataType.BF16, -1, -1))
    np.testing.assert_array_equal(bf16_to_float32(found.numpy()), columns)
    with pytest.raises(InvalidRequest, match=r"'x': use detach"):
        tensor(Table(RuntimeError("use detach()")), model(DataType.FP32, -1))


def test_a_number_of_numpy_is_a_number():
    assert needs_metadata({"x": np.float32(1)})
    found = tensor(np.float64(0.5), model(DataType.FP32, -1, 1))
    assert found.datatype is DataType.FP32
    assert found.numpy().tolist() == [[0.5]]
    assert decode_strings(tensor(np.bytes_(b"a\0"), model(DataType.BYTES, 1)).data, "x") == [b"a\0"]


def test_a_masked_array_is_sent_only_if_nothing_is_masked():
    array = np.ma.array([1, 2], mask=[False, True])
    with pytest.raises(InvalidRequest, match=r"'x' is a masked array.*filled"):
        tensor(array)
    with pytest.raises(InvalidRequest, match=r"'x' is a masked array"):
        tensor(np.ma.masked)
    assert tensor(array[:1]).numpy().tolist() == [1]


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
    assert tensor([[]], model(DataType.BYTES, -1, -1)).shape == (1, 0)
    assert tensor([1, 2**64 - 1], model(DataType.UINT64, -1)).numpy().tolist() == [1, 2**64 - 1]
    assert tensor([2**70, 1], model(DataType.FP32, -1)).numpy().tolist() == [2.0**70, 1]
    assert np.isinf(tensor([float("inf")], model(DataType.FP16, -1)).numpy())
    infinity = tensor([float("-inf"), 3.38e38], model(DataType.BF16, -1))
    assert infinity.data.tolist() == [0xFF80, 0x7F7E]


@pytest.mark.parametrize(
    ("value", "datatype", "words"),
    [
        ([256], DataType.UINT8, "does not hold"),
        ([-1], DataType.UINT64, "does not hold"),
        ([2**64], DataType.UINT64, "INT64|Python int"),
        ([2**64], DataType.UINT64, "does not hold"),
        ([-1, 2**63], DataType.INT64, "does not hold -1 to 9223372036854775808"),
        ([1e6], DataType.FP16, "as great"),
        ([70000], DataType.FP16, "as great"),
        ([2**70], DataType.FP16, "as great"),
        ([1e300], DataType.FP32, "as great"),
        ([2**2000], DataType.FP64, "as great"),
        ([1e300], DataType.BF16, "as great"),
        ([3.4e38], DataType.BF16, "as great"),
        ([1j], DataType.BF16, "complex"),
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
