from collections.abc import Iterator

import numpy as np
import pytest

from inferd.backends.function.instance import FunctionCall, FunctionInstance, StreamInstance
from inferd.backends.function.signature import read_signature
from inferd.core.request import InferRequest
from inferd.errors import BackendFailed
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor


def call(function, **more):
    return FunctionCall(function, read_signature(function, "f", **more), "m", 1)


def asked(*values, rows=1):
    shape = (len(values),) if rows == 1 else (len(values), 1)
    tensor = Tensor("x", DataType.INT64, shape, np.array(values))
    return InferRequest("m", id="7", inputs=[tensor], batch_size=rows)


def double(x: int) -> int:
    return 2 * x


def count(x: int) -> Iterator[int]:
    yield from range(x)


def test_each_request_is_a_call():
    answers = FunctionInstance(call(double)).execute([asked(1), asked(2)])
    assert [answer.outputs[0].numpy().tolist() for answer in answers] == [[2], [4]]
    assert {(answer.model, answer.version, answer.id) for answer in answers} == {("m", "1", "7")}


def test_a_batched_function_gives_as_many_rows_as_it_got():
    def shorter(x: list[int]) -> list[int]:
        return x[1:]

    instance = FunctionInstance(call(shorter, batched=True))
    with pytest.raises(BackendFailed, match="output 'output' has 1 rows, the batch has 2"):
        instance.execute([asked(1, 2, rows=2)])


def test_a_generator_answers_any_number_of_times_and_marks_none_as_the_last():
    answers = list(StreamInstance(call(count)).stream(asked(2)))
    assert [(answer.outputs[0].numpy().tolist(), answer.final) for answer in answers] == [
        ([0], False),
        ([1], False),
    ]
    assert list(StreamInstance(call(count)).stream(asked(0))) == []


def test_a_generator_is_closed_when_the_client_has_gone():
    ended = []

    def endless(x: int) -> Iterator[int]:
        try:
            while True:
                yield x
        finally:
            ended.append(x)

    answers = StreamInstance(call(endless)).stream(asked(5))
    next(answers)
    answers.close()
    assert ended == [5]


def test_what_returns_an_iterator_of_another_kind_is_iterated():
    def values(x: int) -> Iterator[int]:
        return iter([x, x])

    assert len(list(StreamInstance(call(values)).stream(asked(5)))) == 2


def test_outside_a_stream_a_generator_gives_one_answer():
    instance = StreamInstance(call(count))
    [answer] = instance.execute([asked(1)])
    assert answer.final
    with pytest.raises(BackendFailed, match="model 'm' gave 2 answers, expected one"):
        instance.execute([asked(2)])
