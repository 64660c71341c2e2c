"""Records are copied and pickled as any object is, compiled or not."""

import copy
import pickle

import pytest
from fields import with_fields

from inferd.core.request import InferRequest, InferResponse, Round, Sequence, WantedOutput
from inferd.errors import BackendFailed
from inferd.http.grpc.messages import GrpcHead
from inferd.http.h2.request import RequestHead
from inferd.http.message import HttpAnswer
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

TENSOR = Tensor("x", DataType.FP32, (1, 2), b"12345678", {"a": 1})
RECORDS = [
    TENSOR,
    WantedOutput("x", True, 3),
    Sequence("s", start=True),
    with_fields(
        InferRequest("m", "1", "i", [TENSOR], [WantedOutput("x")], {"p": 0.5}),
        timeout_us=7,
        shared=True,
    ),
    InferResponse("m", "1", "i", [TENSOR], {"p": "text"}, final=False),
    Round("m", "1", outputs=[TENSOR], answers=[InferResponse("m", "1")], again=True),
    HttpAnswer(200, [b"body"], headers=b"A: b\r\n"),
    RequestHead(b"GET", b"/", [(b"a", b"b")], 40, 5),
    GrpcHead(1.5, b"gzip", frozenset((b"gzip",)), is_plain=True),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda record: pickle.loads(pickle.dumps(record))]
)
def test_a_copy_says_the_same(record, copied):
    other = copied(record)
    assert other is not record
    assert other == record


def test_a_copy_has_the_same_lists_and_a_deep_one_its_own():
    response = InferResponse("m", "1", outputs=[TENSOR], error=BackendFailed("lost"))
    assert copy.copy(response).outputs is response.outputs
    assert copy.copy(response).error is response.error
    assert copy.deepcopy(response).outputs[0] is not TENSOR
