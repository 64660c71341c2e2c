"""Arrays of every datatype KServe's clients know, and a request with one."""

import numpy as np
import pytest
from kserve import InferInput, InferRequest

KINDS = {
    "BOOL": "bool", "UINT8": "u1", "UINT16": "u2", "UINT32": "u4", "UINT64": "u8", "INT8": "i1",
    "INT16": "i2", "INT32": "i4", "INT64": "i8", "FP16": "f2", "FP32": "f4", "FP64": "f8",
}  # fmt: skip
SAMPLES = {datatype: np.array([[0, 1, 1], [1, 0, 1]], kind) for datatype, kind in KINDS.items()}
SAMPLES["BYTES"] = np.array([[b"", b"a"], ["日本".encode(), b"x" * 300]], np.object_)


@pytest.fixture(scope="session")
def samples():
    """Arrays by datatype."""
    return SAMPLES


@pytest.fixture(scope="session")
def values():
    """values(array) are the elements of `array`, nested; text, which is what JSON has, as bytes."""

    def build(array):
        flat = [one.encode() if isinstance(one, str) else one for one in array.ravel().tolist()]
        return np.array(flat, np.object_).reshape(array.shape).tolist()

    return build


@pytest.fixture
def ask():
    """ask(array, datatype, binary, ...) is a request to the model that gives `array` back."""

    def build(array, datatype="FP32", *, binary, **more):
        tensor = InferInput("INPUT0", list(array.shape), datatype)
        tensor.set_data_from_numpy(array, binary_data=binary)
        return InferRequest(f"echo_{datatype}", [tensor], **more)

    return build
