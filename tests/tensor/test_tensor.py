from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import SMALL_BYTES, Tensor, flat_view, reshaped

BYTES = DataType.BYTES
FIXED = [datatype for datatype in DataType if datatype is not BYTES]


@pytest.mark.parametrize("datatype", FIXED)
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0, 3)])
def test_an_array_is_a_view_on_the_bytes_and_back(datatype, shape):
    data = bytearray(prod(shape) * datatype.size_bytes)
    array = Tensor("x", datatype, shape, data).numpy()
    assert (array.shape, array.dtype) == (shape, datatype.numpy)
    array[...] = 1
    back = Tensor.from_numpy("x", array, datatype)
    assert back.shape == shape
    assert back.view().tobytes() == bytes(data)
    assert back.size_bytes == len(data)


@pytest.mark.parametrize(
    "wrap", [bytes, bytearray, memoryview, lambda data: memoryview(b"?" + data)[1:]]
)
def test_bytes_of_any_kind_and_address_are_viewed(wrap):
    tensor = Tensor("x", DataType.INT16, (2,), wrap(b"\1\0\2\1"))
    assert tensor.numpy().tolist() == [1, 0x102]
    assert tensor.view().tobytes() == b"\1\0\2\1"
    assert tensor.size_bytes == 4


def test_an_array_as_data_is_viewed_too():
    array = np.array([[1, 2], [3, 4]], np.int32)
    tensor = Tensor("x", DataType.INT32, (2, 2), array)
    assert np.shares_memory(tensor.numpy(), array)
    assert tensor.view().format == "B"
    assert tensor.view().tobytes() == array.tobytes()


def test_an_array_in_rows_is_wrapped_without_a_copy():
    array = np.ones((2, 3), np.float32)
    assert Tensor.from_numpy("x", array, DataType.FP32).data is array


def test_an_array_that_is_not_in_rows_is_copied_into_them():
    array = np.arange(6, dtype=np.int8).reshape(2, 3).T
    tensor = Tensor.from_numpy("x", array, DataType.INT8)
    assert (tensor.shape, tensor.view().tobytes()) == ((3, 2), bytes([0, 3, 1, 4, 2, 5]))


def test_a_flat_view_of_bytes_is_that_very_view():
    data = memoryview(b"ab")
    assert Tensor("x", DataType.UINT8, (2,), data).view() == data
    assert flat_view(memoryview(np.zeros((0, 3), np.float32))).tobytes() == b""


@given(st.lists(st.binary(max_size=5), min_size=6, max_size=6))
def test_bytes_elements_survive_in_their_places(elements):
    array = np.empty(6, object)
    array[:] = elements
    tensor = Tensor.from_numpy("x", array.reshape(2, 3), BYTES)
    assert tensor.shape == (2, 3)
    assert tensor.strings() == elements
    assert tensor.numpy().shape == (2, 3)
    assert tensor.numpy().ravel().tolist() == elements
    assert tensor.size_bytes == sum(4 + len(element) for element in elements)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0)])
def test_bytes_with_one_element_or_none_keep_their_shape(shape):
    array = np.full(shape, "text", object)
    tensor = Tensor.from_numpy("x", array, BYTES)
    assert tensor.numpy().shape == tensor.shape == shape
    assert tensor.strings() == [b"text"] * prod(shape)


@pytest.mark.parametrize(
    ("shape", "dims", "target", "expected"),
    [
        ((2, 3), (2, 3), (6,), (6,)),
        ((5, 2, 3), (2, 3), (6,), (5, 6)),
        ((5, 1), (1,), (), (5,)),
        ((5,), (), (1,), (5, 1)),
        ((2, 4, 7, 6), (2, 4, -1, 6), (8, -1, 1, 6), (8, 7, 1, 6)),
        ((3, 8, 9), (-1, -1), (-1, 1, -1), (3, 8, 1, 9)),
        ((0, 8), (-1, 8), (8, -1), (8, 0)),
    ],
)
def test_a_shape_is_seen_as_the_target_says(shape, dims, target, expected):
    assert reshaped(shape, dims, target) == expected


@pytest.mark.parametrize(
    ("shape", "dims", "target"), [((3,), (-1, -1), (-1,)), ((3, 4), (-1, 4), (-1, -1))]
)
def test_a_shape_that_does_not_fit_is_refused(shape, dims, target):
    with pytest.raises(ValueError, match="cannot be"):
        reshaped(shape, dims, target)


@pytest.mark.parametrize("count", [0, 3, SMALL_BYTES, SMALL_BYTES + 1])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, np.ndarray])
def test_packed_bytes_are_those_of_the_view_and_have_their_length(kind, count):
    array = np.arange(2 * count, dtype=np.int16).reshape(2, count)
    data = array if kind is np.ndarray else kind(array.tobytes())
    tensor = Tensor("x", DataType.INT16, (2, count), data)
    assert bytes(tensor.packed()) == bytes(tensor.view()) == array.tobytes()
    assert len(tensor.packed()) == tensor.size_bytes == 4 * count
