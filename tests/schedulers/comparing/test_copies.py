"""Copies of requests that wait to be compared."""

import numpy as np
import pytest

from inferd.core.request import InferRequest, InferResponse, Span, WantedOutput
from inferd.schedulers.comparing.copies import (
    MOST_BYTES,
    MOST_SAMPLE_BYTES,
    CopyPool,
    RequestCopy,
    copied,
    is_small,
)
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

BYTE = DataType.UINT8


def request_of(*values, size=None, outputs=(), rows=1):
    data = bytearray(bytes(values) if size is None else bytes([*values, *bytes(size)])[:size])
    tensor = Tensor("X", BYTE, (rows, len(data) // rows), memoryview(data))
    wanted = [WantedOutput(name, top_k=2) for name in outputs]
    return InferRequest("m", "1", "id", inputs=[tensor], outputs=wanted, batch_size=rows)


def copy_of(*values, kind=None, **more):
    return RequestCopy(request_of(*values, **more), kind)


def outputs_of(*names, size=1):
    array = np.zeros((1, size), np.uint8)
    return InferResponse("m", "1", outputs=[Tensor(name, BYTE, (1, size), array) for name in names])


def test_a_copy_shares_no_memory_with_the_request_and_its_answer():
    request, response = request_of(1, 2), outputs_of("Y")
    copy = RequestCopy(request, None)
    copy.take(response)
    request.inputs[0].data[0] = 9
    response.outputs[0].data[0, 0] = 9
    assert copy.request.inputs[0].data == b"\1\2"
    assert copy.outputs[0].data == b"\0"
    assert (copy.rows, copy.size_bytes) == (1, 3)


def test_a_copy_asks_for_the_same_outputs_as_they_are():
    request = request_of(1, outputs=["Y"], rows=1)
    request.outputs[0].place = Span(memoryview(bytes(1)), ((1,), 0, 1), None)
    copy = RequestCopy(request, None)
    assert copy.request.outputs == [WantedOutput("Y")]
    assert (copy.request.id, copy.request.spans) == ("", None)
    copy.take(outputs_of("Y", "Z"))
    assert [tensor.name for tensor in copy.outputs] == ["Y"]


def test_a_copy_may_be_copied_to_run_once_more():
    once = copied(request_of(1, 2))
    once.started_ns = 5
    again = copied(once)
    assert (again.inputs[0].data, again.started_ns) == (b"\1\2", 0)


def test_requests_with_the_same_inputs_are_known():
    pool = CopyPool()
    assert not pool.has_seen(copy_of(1, 2))
    assert pool.has_seen(copy_of(1, 2))
    assert not pool.has_seen(copy_of(1, 3))
    assert not pool.has_seen(copy_of(1, 2, rows=2))  # another shape


def test_large_inputs_are_told_apart_by_a_part_of_their_bytes():
    pool = CopyPool()
    assert not pool.has_seen(copy_of(1, size=3_000_000))
    assert pool.has_seen(copy_of(1, size=3_000_000))
    assert not pool.has_seen(copy_of(2, size=3_000_000))


def test_partners_are_of_one_kind_and_the_oldest_come_first():
    pool = CopyPool()
    copies = [copy_of(n, kind=n % 2) for n in range(6)]
    for copy in copies:
        pool.add(copy)
    assert pool.rows(0) == 3
    assert list(pool.take(0, 2)) == [copies[0], copies[2]]
    assert pool.rows(0) == 1
    assert list(pool.take(1, 99)) == [copies[1], copies[3], copies[5]]
    assert pool.rows(1) == pool.rows("unknown") == 0


def test_nobody_is_taken_without_a_partner():
    pool = CopyPool()
    pool.add(copy_of(1))
    assert list(pool.take(None, 8)) == list(pool.take("unknown", 8)) == []
    assert pool.rows(None) == 1


def test_a_copy_of_too_many_rows_stays():
    pool = CopyPool()
    copies = [copy_of(1, 1, rows=2), copy_of(1, 1, 1, rows=3), copy_of(2, 2, rows=2)]
    for copy in copies:
        pool.add(copy)
    assert list(pool.take(None, 4)) == [copies[0], copies[2]]
    assert pool.rows(None) == 3


@pytest.mark.parametrize("kinds", [1, 7])
def test_memory_is_bounded_by_what_goes_for_what_comes(kinds):
    pool = CopyPool()
    size = MOST_SAMPLE_BYTES // 2
    for number in range(20):
        copy = copy_of(number, size=size, kind=number % kinds)
        pool.add(copy)
        held = sum(pool.rows(kind) for kind in range(kinds)) * size
        assert size <= held <= MOST_BYTES
    assert pool.rows(19 % kinds) > 0


def test_what_is_too_large_is_not_kept():
    pool = CopyPool()
    copy = copy_of(1)
    copy.take(outputs_of("Y", size=MOST_SAMPLE_BYTES))
    pool.add(copy)
    assert pool.rows(None) == 0
    assert not is_small(request_of(1, size=MOST_SAMPLE_BYTES + 1))
    assert is_small(request_of(1, size=MOST_SAMPLE_BYTES))


def test_a_pool_is_full_when_the_next_copy_may_push_out_others():
    pool = CopyPool()
    assert not pool.is_full
    while not pool.is_full:
        pool.add(copy_of(1, size=MOST_SAMPLE_BYTES // 2))
    assert pool.rows(None) == 7
