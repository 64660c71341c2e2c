"""Values take a datatype only if they stay what they are."""

import numpy as np
import pytest

from inferd.tensor.dtype import DataType
from inferd.values.value import cast, objects


@pytest.mark.parametrize(
    ("array", "datatype", "result"),
    [
        (np.array([1.0, 2.0]), DataType.INT8, [1, 2]),
        (np.array([1, 0]), DataType.BOOL, [True, False]),
        (np.array([1, 2]), DataType.FP32, [1.0, 2.0]),
        (np.array([1.0]), DataType.BF16, [0x3F80]),
        (np.array(["a"]), DataType.BYTES, ["a"]),
        (np.array([2**64 - 1], np.uint64), DataType.UINT64, [2**64 - 1]),
        (np.array([np.inf, -3e38]), DataType.FP32, [np.inf, np.float32(-3e38)]),
        (np.array([-np.inf]), DataType.BF16, [0xFF80]),
        (objects([]), DataType.INT32, []),
        (np.empty(0), DataType.BYTES, []),
    ],
)
def test_values_that_fit_are_cast(array, datatype, result):
    made = cast(array, datatype)
    assert made.dtype == datatype.numpy and made.tolist() == result


@pytest.mark.parametrize(
    ("array", "datatype"),
    [
        (np.array([1.5]), DataType.INT32),
        (np.array([300]), DataType.UINT8),
        (np.array([-1]), DataType.UINT8),
        (np.array([2]), DataType.BOOL),
        (np.array([np.nan]), DataType.INT64),
        (objects([b"a"]), DataType.FP32),
        (np.array([0.0, 1e300]), DataType.FP32),
        (np.array([-70000]), DataType.FP16),
        (np.array([3.4e38]), DataType.BF16),
        (np.array(1e300), DataType.FP32),
        (np.array([1j]), DataType.FP32),
        (np.array(["2026-11-29"], "M8[s]"), DataType.INT64),
        (np.array([1], "m8[s]"), DataType.FP64),
        (np.array([1]), DataType.BYTES),
    ],
)
def test_values_that_would_change_are_refused(array, datatype):
    with pytest.raises(ValueError, match="no "):
        cast(array, datatype)
