"""Caffe2 operators that create tensors, of which init nets consist."""

from math import prod
from typing import Any

import numpy as np

from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType
from inferd_convert.caffe2.call import Caffe2Call
from inferd_convert.call import Converted, Converter
from inferd_convert.graph import Graph, Value


def _given(datatype: DataType) -> Converter:
    """Return the converter of a fill whose elements the file contains."""
    return lambda graph, call: _shaped(call, _values(call, datatype))


def _values(call: Caffe2Call, datatype: DataType) -> Array:
    given = call.argument("values")
    if datatype is DataType.BYTES:
        # np.array() would make fixed-width bytes of them and drop trailing NULs.
        array = np.empty(len(given.strings), object)
        array[:] = given.strings
        return array
    if datatype in (DataType.FP32, DataType.FP64):
        return given.floats.astype(datatype.numpy, copy=False)
    try:
        return np.array(call.integers("values"), datatype.numpy)
    except OverflowError:
        call.refuse(f"not all of its values are {datatype.value}")


def _byte_string(graph: Graph, call: Caffe2Call) -> Converted:
    return _shaped(call, np.frombuffer(b"".join(call.argument("values").strings), np.uint8))


def _shaped(call: Caffe2Call, values: Array) -> Converted:
    shape = [*call.integers("shape"), *call.integers("extra_shape")]
    if call.inputs or call.flag("input_as_shape"):
        call.refuse("a fill whose shape is an input cannot be converted")
    if min(shape, default=0) < 0 or prod(shape) != values.size:
        call.refuse(f"its shape is {shape}, and it has {values.size} values")
    return call.graph.constant(values.reshape(shape))


def _constant(graph: Graph, call: Caffe2Call) -> Converted:
    """Convert ConstantFill; its shape is an argument, an input's shape, or an input's value."""
    value = np.array([_one_value(call)])
    if call.inputs:
        x, extra = call.inputs[0], call.integers("extra_shape")
        is_shape = call.flag("input_as_shape")
        dims = graph.cast(x, DataType.INT64) if is_shape else graph.shape(x)
        shape = graph.join(dims, graph.ints(*extra)) if extra else dims
        rank = x.size if is_shape else x.rank
        rank = None if rank is None else rank + len(extra)
        return graph.add("ConstantOfShape", shape, rank=rank, value=value)
    return _filled(call, value[0])


def _filled(call: Caffe2Call, value: Any) -> Value:
    """Return a constant with the shape in the argument `shape`, filled with `value`."""
    dims_given = call.integers("shape")
    call.count_filled(dims_given)
    return call.graph.constant(np.full(dims_given, value))


def _one_value(call: Caffe2Call) -> object:
    given = call.argument("value")
    kind = call.argument("dtype")
    if kind.s is not None:
        datatype = call.element_type(kind.s.decode("ascii", "replace"))
    elif kind.i is not None:
        datatype = call.element_type(kind.i)
    else:  # the value implies it
        datatype = DataType.FP32 if given.i is None else DataType.INT64
    call.refuse_if(datatype is DataType.BYTES, "texts cannot be filled in")
    number = call.number("value", 0.0) if given.i is None else given.i
    # Caffe2 casts without a check, so what does not fit becomes what C makes of it.
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array(number).astype(datatype.numpy)[()]


def _half_fill(graph: Graph, call: Caffe2Call) -> Converted:
    with np.errstate(over="ignore"):
        value = np.array(call.number("value", 0.0)).astype(np.float16)[()]
    return _filled(call, value)


def _range(graph: Graph, call: Caffe2Call) -> Converted:
    """Convert Range of (stop), (start, stop) or (start, stop, step), each of one element."""
    bounds = [graph.scalar(call.input(index)) for index in range(len(call.inputs))]
    call.refuse_if(not 1 <= len(bounds) <= 3, f"it has {len(bounds)} inputs, expected 1 to 3")
    # Of the bounds' type, as Range takes three of one type.
    start = graph.add("CastLike", graph.whole(0), bounds[0], rank=0)
    step = graph.add("CastLike", graph.whole(1), bounds[0], rank=0)
    if len(bounds) == 1:
        bounds = [start, *bounds]
    return graph.add("Range", *bounds, *[step] * (len(bounds) == 2), rank=1)


OPERATORS: dict[str, Converter] = {
    "GivenTensorFill": _given(DataType.FP32),
    "GivenTensorDoubleFill": _given(DataType.FP64),
    "GivenTensorBoolFill": _given(DataType.BOOL),
    "GivenTensorInt16Fill": _given(DataType.INT16),
    "GivenTensorIntFill": _given(DataType.INT32),
    "GivenTensorInt64Fill": _given(DataType.INT64),
    "GivenTensorStringFill": _given(DataType.BYTES),
    "GivenTensorByteStringToUInt8Fill": _byte_string,
    "ConstantFill": _constant,
    "Float16ConstantFill": _half_fill,
    "Range": _range,
}
