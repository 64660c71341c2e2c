"""What is counted of a decoded request besides its body."""

import numpy as np

from inferd.api.copies import copied_bytes
from inferd.core.request import InferRequest, Span
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor


def test_views_of_the_body_and_of_shared_memory_take_nothing_and_copies_do():
    body = bytes(100)
    shared, fetched = memoryview(bytearray(7)), memoryview(bytearray(11))
    request = InferRequest(
        "m",
        inputs=[
            Tensor("A", DataType.UINT8, (10,), memoryview(body)[:10]),
            Tensor("B", DataType.UINT8, (7,), shared),
            Tensor("C", DataType.UINT8, (11,), fetched),
            Tensor("D", DataType.UINT8, (13,), b"x" * 13),
            Tensor("E", DataType.FP32, (5,), np.zeros(5, "f4")),
        ],
        spans=[
            Span(shared, ((1,), 0, 7), None),
            Span(fetched, ((2,), 0, 11), None, is_copy=True),
        ],
    )
    assert copied_bytes(request, body) == 11 + 13 + 20
    assert copied_bytes(request, memoryview(body)) == 11 + 13 + 20
