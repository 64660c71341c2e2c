import asyncio
import time

import numpy as np
import pytest

from inferd.config.options.trace import TraceSettings
from inferd.errors import InvalidRequest
from inferd.observe.tracing import trace as trace_module
from inferd.observe.tracing.trace import MAX_CHILDREN, MAX_TENSOR_BYTES, MAX_TRACE_BYTES, Trace
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

BOTH = TraceSettings(levels=("TIMESTAMPS", "TENSORS"))


def tensor(name="T", size=4):
    return Tensor(name, DataType.UINT8, (size,), np.zeros(size, np.uint8))


def test_a_stamp_is_now_or_the_given_time():
    trace = Trace(1, "m", BOTH)
    before = time.perf_counter_ns()
    trace.stamp("A")
    trace.stamp("B", 5)
    after = time.perf_counter_ns()
    (first, now), (second, then) = trace.stamps
    assert (first, second, then) == ("A", "B", 5)
    assert before <= now <= after


def test_without_the_level_nothing_is_noted():
    trace = Trace(1, "m", TraceSettings(levels=("TENSORS",)))
    trace.stamp("A")
    assert trace.stamps == []
    assert trace.wants_tensors
    assert not Trace(1, "m", TraceSettings(levels=("TIMESTAMPS",))).wants_tensors


def test_tensors_are_copied_as_they_are_now():
    trace, one = Trace(1, "m", BOTH), tensor()
    size = trace.size_bytes
    trace.note_tensors("X", [one])
    one.data[:] = 7
    [noted] = trace.tensors
    assert (noted.activity, noted.tensor.data, noted.has_data) == ("X", b"\0\0\0\0", True)
    assert trace.size_bytes == size + 4


def test_a_large_tensor_is_noted_without_its_data():
    trace = Trace(1, "m", BOTH)
    large = tensor(size=trace_module.MAX_TENSOR_BYTES + 1)
    trace.note_tensors("X", [large])
    [noted] = trace.tensors
    assert (noted.tensor.shape, noted.tensor.data, noted.has_data) == (large.shape, b"", False)


def test_a_trace_that_holds_much_notes_more_without_data():
    trace = Trace(1, "m", BOTH)
    trace.note_tensors("X", [tensor(size=trace_module.MAX_TENSOR_BYTES)] * 10)
    assert [one.has_data for one in trace.tensors] == [True] * 3 + [False] * 7
    assert trace.size_bytes <= trace_module.MAX_TRACE_BYTES


def test_tensors_of_one_activity_are_repeated_for_another():
    trace = Trace(1, "m", BOTH)
    trace.note_tensors("X", [tensor("A"), tensor("B")])
    trace.note_tensors("Z", [tensor("C")])
    trace.repeat_tensors("X", "Y")
    names = [(one.activity, one.tensor.name) for one in trace.tensors]
    assert names == [("X", "A"), ("X", "B"), ("Z", "C"), ("Y", "A"), ("Y", "B")]


def test_a_trace_is_bounded_whatever_is_noted():
    trace = Trace(1, "m" * 10_000, BOTH)
    for _ in range(trace_module.MAX_STAMPS + 10):
        trace.stamp("A", 1)
    for _ in range(3):
        trace.note_tensors("X", [tensor()] * (trace_module.MAX_TENSORS - 1))
    assert len(trace.stamps) == trace_module.MAX_STAMPS
    assert len(trace.tensors) == trace_module.MAX_TENSORS
    assert len(trace.model) == trace_module.MAX_TEXT


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (InvalidRequest("x"), "invalid argument"),
        (asyncio.CancelledError(), "cancelled"),
        (GeneratorExit(), "cancelled"),
        (ValueError("x"), "internal"),
    ],
)
def test_a_failure_is_noted_as_its_reason(error, word):
    trace = Trace(1, "m", BOTH)
    trace.fail(error)
    assert trace.error == word


# --- children ---


def test_children_have_the_next_ids_and_the_settings_of_their_parent():
    trace = Trace(7, "m", BOTH)
    first = trace.child("a")
    inner = first.child("b")
    second = trace.child("c")
    assert [one.id for one in (first, inner, second)] == [8, 9, 10]
    assert (trace.children, first.children) == ([first, second], [inner])
    assert (first.model, first.settings, first.parent) == ("a", BOTH, None)


def test_a_trace_has_so_many_children_and_no_more():
    trace = Trace(1, "m", BOTH)
    inner = trace.child("a")
    made = [inner.child("b") for _ in range(MAX_CHILDREN - 1)]
    assert None not in made
    assert (trace.child("c"), inner.child("c")) == (None, None)


def test_what_children_hold_counts_as_their_parents():
    trace = Trace(1, "m", BOTH)
    alone = trace.size_bytes
    child = trace.child("a")
    child.stamp("A", 1)
    child.note_tensors("TENSOR_QUEUE_INPUT", [tensor()])
    assert trace.size_bytes == child.size_bytes > 2 * alone
    count = 1 + MAX_TRACE_BYTES // MAX_TENSOR_BYTES
    for _ in range(count):
        large = Tensor("X", DataType.UINT8, (MAX_TENSOR_BYTES,), bytes(MAX_TENSOR_BYTES))
        trace.child("b").note_tensors("TENSOR_QUEUE_INPUT", [large])
    assert not trace.children[-1].tensors[0].has_data
