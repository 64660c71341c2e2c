"""What a Tensor of model.py sends."""

import numpy as np
import pytest

from inferd_worker.pb_utils.datatype import encode_strings
from inferd_worker.pb_utils.tensor import SMALL, Tensor, data_of


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, ">i4", np.object_, "U3"])
@pytest.mark.parametrize("count", [2, SMALL])
def test_of_a_masked_array_all_elements_are_sent(dtype, count):
    plain = np.arange(count).astype(dtype)
    tensor = Tensor("OUT", np.ma.array(plain, mask=[False, True] * (count // 2)))
    if tensor._datatype == "BYTES":
        expected = encode_strings(plain)
    else:
        expected = plain.astype(plain.dtype.newbyteorder("<")).tobytes()
    assert bytes(data_of(tensor)) == bytes(expected)
