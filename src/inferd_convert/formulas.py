"""Formulas of several nodes that all formats share: activations, moments, ones, places."""

import math
from collections.abc import Sequence

import numpy as np

from inferd_convert.call import Converted, OperatorCall
from inferd_convert.graph import Graph, Value

# The constants of the paper (Klambauer et al., 2017), which both frameworks have as defaults.
SELU_ALPHA, SELU_GAMMA = 1.6732632423543772, 1.0507009873554805


def unchanged(graph: Graph, call: OperatorCall, x: Value) -> Converted:
    """Convert an operator that copies its input, or does nothing in inference."""
    return x


def gelu(graph: Graph, x: Value, *, is_fast: bool = False) -> Value:
    """Return x·Φ(x), with erf, or nearly with tanh if it should be fast."""
    if is_fast:
        # The usual approximation (Hendrycks and Gimpel, 2016).
        curve = graph.add("Tanh", (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi))
    else:
        curve = graph.add("Erf", x * math.sqrt(0.5))
    return x * 0.5 * (curve + 1.0)


def without_nan(x: Value, number: float) -> Value:
    """Return `x` with `number` in place of NaN."""
    graph = x.graph
    return graph.add("Where", graph.add("IsNaN", x), graph.like(x, number), x, rank=x.rank)


def root_size(graph: Graph, x: Value) -> Value:
    """Return the size of the cube root of `x`, whose sign is left out."""
    return graph.add("Pow", graph.add("Abs", x), graph.like(x, 1 / 3))


def total_of(graph: Graph, call: OperatorCall, total: Value) -> Value:
    """Return the sum of all inputs, of which `total` is the first."""
    for other in call.inputs[1:]:
        total = total + other
    return total


def moments(x: Value, axes: Sequence[int], *, keep: bool) -> tuple[Value, Value]:
    """Return mean and variance of `x` along `axes`, [] for all; `keep` leaves dims of 1."""
    graph = x.graph
    mean = graph.reduce("ReduceMean", x, axes, keep=True)
    # From the mean, rather than E[x²] - E[x]², which cancels for large means.
    off = x - mean
    variance = graph.reduce("ReduceMean", off * off, axes, keep=keep)
    return mean if keep else graph.reduce("ReduceMean", x, axes), variance


def normalised(x: Value, axes: Sequence[int], epsilon: float) -> Value:
    """Return `x` with a mean of 0 and a variance of 1 along `axes`."""
    mean, variance = moments(x, axes, keep=True)
    return (x - mean) / deviation(variance, epsilon)


def deviation(variance: Value, epsilon: float) -> Value:
    """Return the root of `variance`, which may be 0, and `epsilon`."""
    return variance.graph.add("Sqrt", variance + epsilon)


def place_of_extreme(graph: Graph, op: str, x: Value, axis: int, *, keep: bool = False) -> Value:
    """Return the indices that `op`, ArgMax or ArgMin, finds along `axis`."""
    rank = x.rank if keep else x.rank_with(-1)
    return graph.add(op, x, rank=rank, axis=axis, keepdims=int(keep))


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
