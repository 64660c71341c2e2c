"""Filled: tensors whose elements follow from the shape of others: ones, and numbers in order."""

import numpy as np

from inferd_convert.graph import Graph, Value


def with_places(graph: Graph, value: Value) -> Value:
    """Return `value` through a Reshape that fails a run if a dim after the second is 0.

    For operators with which ONNX Runtime would read memory that an empty tensor lacks.
    """
    least = graph.add("Max", graph.shape(value, 2), graph.ints(1))
    shape = graph.join(graph.shape(value, 0, 2), least)
    return graph.reshape(value, shape, value.rank)


def full(graph: Graph, shape: Value, number: np.generic, rank: int | None = 1) -> Value:
    """Return a tensor of `shape` filled with `number`, a NumPy scalar."""
    return graph.add("ConstantOfShape", shape, rank=rank, value=np.array([number]))


def full_like(graph: Graph, value: Value, number: float) -> Value:
    """Return a tensor of the shape and type of `value` filled with `number`."""
    return graph.add("Expand", graph.like(value, number), graph.shape(value), rank=value.rank)


def ones(graph: Graph, shape: Value) -> Value:
    """Return an INT64 vector of ones, as many as `shape` [1] says."""
    return full(graph, shape, np.int64(1))


def places(graph: Graph, value: Value, axis: int) -> Value:
    """Return 0, 1, ... along `axis` of `value` as an INT64 vector."""
    return numbers(graph, graph.scalar(graph.length(value, axis)))


def numbers(graph: Graph, count: Value) -> Value:
    """Return 0, 1, ... below `count`, an INT64 scalar."""
    return graph.add("Range", graph.whole(0), count, graph.whole(1), rank=1)


def numbered(graph: Graph, value: Value) -> Value:
    """Return 0, 1, ... in the shape of `value`, as INT64."""
    flat = numbers(graph, graph.add("Size", value, rank=0))
    return graph.reshape(flat, graph.shape(value), value.rank)


def along(graph: Graph, vector: Value, value: Value, axis: int) -> Value:
    """Return `vector`, one element per place of `axis`, shaped to broadcast with `value`."""
    if value.rank is not None:
        return graph.unsqueeze(vector, range(1, value.rank - axis % max(value.rank, 1)))
    if axis == -1:
        return vector
    behind = ones(graph, graph.shape(graph.shape(value, axis + 1)))
    return graph.reshape(vector, graph.join(graph.ints(-1), behind))
