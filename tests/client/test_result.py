"""What an answer gives."""

import numpy as np
import pytest

from inferd.client.result import InferResult
from inferd.core.request import InferResponse
from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import encode_strings
from inferd.tensor.tensor import Tensor


def result(*tensors):
    return InferResult(InferResponse("m", "1", "i", list(tensors), {"a": 1}))


def test_outputs_are_arrays_over_what_was_received():
    memory = bytearray(np.arange(4, dtype=np.int32).tobytes())
    found = result(Tensor("y", DataType.INT32, (2, 2), memoryview(memory)))
    assert found["y"].tolist() == [[0, 1], [2, 3]]
    assert found["y"] is found["y"]
    assert np.shares_memory(found["y"], np.frombuffer(memory, np.int32))
    assert len(found) == 1
    assert dict(found).keys() == {"y"}
    assert "INT32[2, 2]" in repr(found)
    assert found.parameters == {"a": 1}


def test_an_output_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(KeyError, match=r"'z'; its outputs: y"):
        result(Tensor("y", DataType.INT32, (0,), b""))["z"]
    assert "z" not in result()


def test_classes_in_rows():
    texts = encode_strings(["0.5:2:a:b", "0.25:0", "1.0:1:", "0.0:7:x"], "y")
    found = result(Tensor("y", DataType.BYTES, (2, 2), texts)).classes("y")
    assert found == [[(0.5, 2, "a:b"), (0.25, 0, "")], [(1.0, 1, ""), (0.0, 7, "x")]]


def test_bfloat16_becomes_float32():
    found = result(Tensor("y", DataType.BF16, (1,), b"\x00\x3f"))["y"]
    assert (found.dtype, found.tolist()) == (np.float32, [0.5])


def test_texts_and_classes_of_what_has_none_are_refused():
    numbers = result(Tensor("y", DataType.INT32, (2,), bytes(8)))
    with pytest.raises(InvalidRequest, match="'y' is INT32: it has no texts"):
        numbers.strings("y")
    text = result(Tensor("y", DataType.BYTES, (1,), encode_strings(["abc"], "y")))
    for found in (numbers, text):
        with pytest.raises(InvalidRequest, match=r"'y' has no classes.*classification=COUNT"):
            found.classes("y")
