"""Requests that are alike, in memory that stays bound: they get what all others get."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from onnx import TensorProto, helper

from inferd.backends.onnx.backend import OnnxBackend
from inferd.backends.onnx.bound import FIRST_RUNS, MOST_BYTES, MOST_LIKENESSES
from inferd.config.model import ModelConfig
from inferd.core.interfaces import Placement
from inferd.core.request import InferRequest, InferResponse, WantedOutput
from inferd.errors import InferdError
from inferd.tensor.dtype import datatype_of
from inferd.tensor.tensor import Tensor

TIMES = 3 * FIRST_RUNS
ALIKE = object()


def opened(files):
    backend = OnnxBackend()
    return backend.open(files, backend.complete(files, ModelConfig("m")), Placement("m_0"))


def answer(instance, batch_key, outputs=(), **arrays):
    tensors = [
        Tensor(name, datatype_of(array.dtype), array.shape, memoryview(array.tobytes()))
        for name, array in arrays.items()
    ]
    request = InferRequest("m", inputs=tensors, outputs=[WantedOutput(name) for name in outputs])
    request.batch_key = batch_key
    [response] = instance.execute([request])
    return response


def outputs_of(response):
    assert isinstance(response, InferResponse), response
    return {tensor.name: tensor.numpy() for tensor in response.outputs}


def is_bound(instance, batch_key=ALIKE):
    return batch_key in instance._bindings._free


def rows(*values, width=4):
    return np.array(values, np.float32).repeat(width).reshape(len(values), width)


def test_each_of_many_alike_has_its_own_answer(add_sub):
    instance = opened(add_sub)
    answers = [answer(instance, ALIKE, A=rows(n, 2), B=rows(1, n)) for n in range(TIMES)]
    assert is_bound(instance)
    for number, given in enumerate(map(outputs_of, answers)):
        assert np.array_equal(given["SUM"], rows(number + 1, 2 + number))
        assert np.array_equal(given["DIFF"], rows(number - 1, 2 - number))


def test_those_that_want_other_outputs_have_other_memory(add_sub):
    instance = opened(add_sub)
    both, one, none = object(), object(), None
    for number in range(TIMES):
        arrays = {"A": rows(number), "B": rows(1)}
        assert list(outputs_of(answer(instance, both, **arrays))) == ["SUM", "DIFF"]
        given = outputs_of(answer(instance, one, outputs=["DIFF"], **arrays))
        assert list(given) == ["DIFF"] and np.array_equal(given["DIFF"], rows(number - 1))
        assert list(outputs_of(answer(instance, none, **arrays))) == ["SUM", "DIFF"]
    assert is_bound(instance, both) and is_bound(instance, one) and not is_bound(instance, None)


def test_shapes_that_hang_on_values_are_as_ever(make_model):
    files = make_model(
        [("X", TensorProto.FLOAT, [4])],
        [("Y", TensorProto.INT64, [1, "n"])],
        [helper.make_node("NonZero", ["X"], ["Y"])],
    )
    instance = opened(files)
    for _ in range(TIMES):
        given = outputs_of(answer(instance, ALIKE, X=np.float32([0, 1, 1, 0])))
        assert given["Y"].tolist() == [[1, 2]]
    assert is_bound(instance)
    for values in ([1, 1, 1, 1], [0, 0, 0, 0], [0, 0, 0, 5], [0, 1, 1, 0]):
        given = outputs_of(answer(instance, ALIKE, X=np.float32(values)))
        assert given["Y"].tolist() == [np.flatnonzero(values).tolist()]
    assert not is_bound(instance)


def test_a_model_that_is_random_stays_so(make_model):
    files = make_model(
        [("X", TensorProto.FLOAT, [4])],
        [("Y", TensorProto.FLOAT, [4])],
        [helper.make_node("RandomUniformLike", ["X"], ["Y"])],
    )
    instance = opened(files)
    given = [
        outputs_of(answer(instance, ALIKE, X=np.zeros(4, np.float32)))["Y"].tobytes()
        for _ in range(TIMES)
    ]
    assert len(set(given)) == TIMES
    assert not is_bound(instance)


@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "u4", "u8", "f2", "f8"])
def test_every_type_has_memory(make_model, dtype):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    value, node = ("X", kind, [2]), helper.make_node("Identity", ["X"], ["Y"])
    instance = opened(make_model([value], [("Y", kind, [2])], [node]))
    for number in range(TIMES):
        array = np.array([number % 2, 1], dtype)
        assert outputs_of(answer(instance, ALIKE, X=array))["Y"].tolist() == array.tolist()
    assert is_bound(instance)


def test_what_goes_through_and_what_is_constant_come_out_as_they_are(make_model):
    files = make_model(
        [("X", TensorProto.FLOAT, [2])],
        [
            ("Y", TensorProto.FLOAT, [2]),
            ("Z", TensorProto.FLOAT, [2]),
            ("C", TensorProto.FLOAT, [2]),
        ],
        [
            helper.make_node("Identity", ["X"], ["Y"]),
            helper.make_node("Reshape", ["X", "shape"], ["Z"]),
            helper.make_node("Identity", ["constant"], ["C"]),
        ],
        {"shape": np.int64([2]), "constant": np.float32([7, 8])},
    )
    instance = opened(files)
    for number in range(TIMES):
        given = outputs_of(answer(instance, ALIKE, X=np.float32([number, 1])))
        assert [one.tolist() for one in given.values()] == [[number, 1], [number, 1], [7, 8]]


def test_a_value_the_model_refuses_is_refused_and_no_other(make_model):
    files = make_model(
        [("I", TensorProto.INT64, [1])],
        [("Y", TensorProto.FLOAT, [1])],
        [helper.make_node("Gather", ["table", "I"], ["Y"])],
        {"table": np.float32([5, 6])},
    )
    instance = opened(files)
    for _ in range(TIMES):
        assert outputs_of(answer(instance, ALIKE, I=np.int64([1])))["Y"].tolist() == [6]
    assert is_bound(instance)
    refused = answer(instance, ALIKE, I=np.int64([9]))
    assert isinstance(refused, InferdError) and "indices" in refused.message
    assert outputs_of(answer(instance, ALIKE, I=np.int64([0])))["Y"].tolist() == [5]


def test_inputs_that_do_not_fit_run_as_others_do(add_sub):
    instance = opened(add_sub)
    for _ in range(TIMES):
        answer(instance, ALIKE, A=rows(1), B=rows(2))
    given = outputs_of(answer(instance, ALIKE, A=rows(1, 2), B=rows(3, 4)))
    assert np.array_equal(given["SUM"], rows(4, 6))
    assert isinstance(answer(instance, ALIKE, A=rows(1)), InferdError)


@pytest.mark.parametrize("count", [0, MOST_BYTES // 16 + 1])
def test_what_is_empty_or_large_is_not_bound(add_sub, count):
    instance = opened(add_sub)
    array = np.ones((count, 4), np.float32)
    for _ in range(TIMES):
        assert np.array_equal(
            outputs_of(answer(instance, ALIKE, A=array, B=array))["SUM"], 2 * array
        )
    assert not is_bound(instance)


def test_threads_do_not_share_memory_at_a_time(add_sub):
    instance = opened(add_sub)

    def ask(number):
        given = outputs_of(answer(instance, ALIKE, A=rows(number), B=rows(1)))
        return np.array_equal(given["SUM"], rows(number + 1))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, range(400)))
    assert is_bound(instance)


def test_memory_is_bound_for_so_many_likenesses_only(add_sub):
    instance = opened(add_sub)
    for _ in range(3 * MOST_LIKENESSES):
        batch_key = object()
        for _ in range(FIRST_RUNS + 1):
            answer(instance, batch_key, A=rows(1), B=rows(2))
    assert len(instance._bindings._free) <= MOST_LIKENESSES
    assert len(instance._bindings._runs) <= MOST_LIKENESSES
