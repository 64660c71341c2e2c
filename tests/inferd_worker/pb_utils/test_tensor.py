"""What a Tensor of model.py sends."""

import numpy as np
import pytest

from inferd_worker.pb_utils.datatype import encode_strings
from inferd_worker.pb_utils.error import TritonModelException
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


@pytest.mark.parametrize("dtype", [np.object_, "S9", "U9"])
def test_strings_are_those_of_the_moment_when_the_tensor_was_made(dtype):
    reused = np.empty(1, dtype)
    tensors = []
    for word in ["first", "second"]:
        reused[0] = word
        tensors.append(Tensor("OUT", reused))
    sent = [bytes(data_of(tensor)) for tensor in tensors]
    assert sent == [b"\5\0\0\0first", b"\6\0\0\0second"]
    assert tensors[0].as_numpy() is reused


def test_a_string_that_cannot_be_encoded_is_refused_at_once():
    with pytest.raises(TritonModelException, match="tensor 'OUT' cannot be sent"):
        Tensor("OUT", np.array(["\ud800"], np.object_))
