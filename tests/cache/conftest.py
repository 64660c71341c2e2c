"""Requests and answers that caches are asked about."""

import numpy as np
import pytest
from fields import with_fields

from inferd.core.request import InferRequest, InferResponse
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor


@pytest.fixture
def tensor():
    """tensor(values, name) is INT32."""
    return lambda values, name="X": Tensor.from_numpy(
        name, np.array(values, np.int32), DataType.INT32
    )


@pytest.fixture
def ask(tensor):
    """ask(values, **fields) is a request with one input."""
    return lambda values=(1, 2), **fields: with_fields(
        InferRequest("m", inputs=[tensor(values)]), **fields
    )


@pytest.fixture
def answer(tensor):
    """answer(values) is a response with one output."""
    return lambda values=(1, 2): InferResponse("m", "1", outputs=[tensor(values, "Y")])
