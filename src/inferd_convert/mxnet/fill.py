"""MXNet operators that create arrays: initial states and ranges."""

from typing import Any

import numpy as np

from inferd.tensor.dtype import DataType
from inferd_convert import filled
from inferd_convert.call import MAX_FILLED, Converted, Converter
from inferd_convert.graph import Graph, Value
from inferd_convert.mxnet.call import MxnetCall


def _filled(graph: Graph, call: MxnetCall) -> Converted:
    """Convert _zeros, _ones and _full.

    A dim of 0 is one that MXNet infers; it becomes 1, which broadcasts to any size.
    """
    dims = [dim or 1 for dim in call.integers("shape")]
    value = call.number("value") if call.op == "_full" else float(call.op == "_ones")
    call.count_filled(dims)
    return graph.constant(np.full(dims or [1], value).astype(_dtype(call)))


def _dtype(call: MxnetCall) -> "np.dtype[Any]":
    return call.element_type().numpy if call.has("dtype") else DataType.FP32.numpy


def _arange(graph: Graph, call: MxnetCall) -> Converted:
    start, step, repeat = call.number("start"), call.number("step", 1.0), call.integer("repeat", 1)
    call.cannot_if(call.flag("infer_range"), "infer_range cannot be converted")
    # As Python's range(): one number alone is the end.
    begin, end = (start, call.number("stop")) if call.has("stop") else (0.0, start)
    # As `not ... <`: NaN is refused, too.
    if step == 0 or repeat < 1 or not abs((end - begin) / step) * repeat < MAX_FILLED:
        call.refuse(f"it counts from {begin} to {end} in steps of {step}, each {repeat} times")
    count = max(0, int(np.ceil((end - begin) / step)))
    call.count_filled([count * repeat])
    dtype = _dtype(call)  # MXNet counts in this type too
    numbers = np.array(begin).astype(dtype) + np.array(step).astype(dtype) * np.arange(count)
    return graph.constant(np.repeat(numbers, repeat).astype(dtype))


def _arange_like(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    """Convert arange_like: a range over an axis, or over all elements."""
    repeat = call.integer("repeat", 1)
    call.cannot_if(repeat != 1, "repeat cannot be converted")
    if call.has("axis"):
        numbers = filled.places(graph, x, call.axis(x.rank, 0))
    else:
        numbers = filled.numbered(graph, x)
    return graph.cast(numbers, DataType.FP32) * call.number("step", 1.0) + call.number("start")


OPERATORS: dict[str, Converter] = {
    **dict.fromkeys(("_zeros", "_zeros_without_dtype", "_ones", "_full"), _filled),
    "_arange": _arange,
    "_contrib_arange_like": _arange_like,
}
