"""What becomes of the results of a library."""

import numpy as np
import pytest

from inferd.backends.estimator.instance import array_of, tensor_of
from inferd.config.model import ModelOutput
from inferd.errors import BackendFailed
from inferd.tensor.dtype import DataType


class Sparse:
    def toarray(self):
        return np.eye(2)


def answered(result, datatype=DataType.FP64, *, is_cast=False, **more):
    return tensor_of(ModelOutput("y", datatype, (-1,), **more), result, 2, is_cast=is_cast)


@pytest.mark.parametrize(
    ("result", "datatype", "shape"),
    [
        (np.array([1, 2]), "INT64", (2, 1)),
        (np.array([[1.5]], np.float32), "FP32", (1, 1)),
        (np.array(["a", "b"]), "BYTES", (2, 1)),
        (np.array(["a", b"b"], object), "BYTES", (2, 1)),
        (np.array([True, False], object), "BOOL", (2, 1)),
        (np.array([1, 2], object), "INT64", (2, 1)),
        (np.array([1, 2.5], object), "FP64", (2, 1)),
        (np.zeros((2, 3, 4), np.int8), "INT8", (2, 3, 4)),
        (Sparse(), "FP64", (2, 2)),
        (3.0, "FP64", (1, 1)),
    ],
)
def test_results_keep_their_datatype(result, datatype, shape):
    tensor = answered(result)
    assert (tensor.datatype.value, tensor.shape) == (datatype, shape)


@pytest.mark.parametrize(
    "result",
    [
        np.array(["a", 1], object),
        np.array([None], object),
        np.array([2**53 + 1, 0.5], object),
        np.array([1j]),
        np.array(["2020-01-01"], "M8[D]"),
        [[1], [2, 3]],
    ],
)
def test_what_no_datatype_has_is_refused(result):
    with pytest.raises(BackendFailed, match="output 'y'"):
        answered(result)


def test_a_declared_datatype_is_that_of_the_answer():
    assert answered(np.array([0.1]), DataType.FP32, is_cast=True).numpy().dtype == np.float32
    assert answered(np.array([3.0]), DataType.INT32, is_cast=True).numpy().tolist() == [[3]]
    assert answered(np.array([7]), DataType.FP32, is_cast=True).numpy().tolist() == [[7.0]]
    assert answered(np.array(["a"]), DataType.BYTES, is_cast=True).numpy().tolist() == [[b"a"]]
    for result, datatype in (
        (np.array([0.5]), DataType.INT64),
        (np.array([np.nan]), DataType.INT64),
        (np.array([2**24 + 1]), DataType.FP32),
        (np.array([300]), DataType.UINT8),
        (np.array([1, -1]), DataType.UINT64),
        (np.array([-1], np.int32), DataType.UINT32),
        (np.array([2**63], np.uint64), DataType.INT64),
        (np.array(["1"]), DataType.FP32),
        (np.array([1]), DataType.BYTES),
        (np.array([1.0]), DataType.BF16),
    ):
        with pytest.raises(BackendFailed, match="as its configuration says"):
            answered(result, datatype, is_cast=True)


def test_an_answer_may_have_another_shape():
    tensor = tensor_of(
        ModelOutput("y", DataType.FP64, (2, 2), (4,)), np.zeros((3, 4)), 3, is_cast=True
    )
    assert tensor.shape == (3, 2, 2)


def test_arrays_have_two_dims_at_least():
    assert array_of([1, 2], "y", 2).tolist() == [[1], [2]]
    assert array_of([1, 2], "y", 1).tolist() == [[1, 2]]
