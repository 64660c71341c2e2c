"""Moments of a tensor along its dims, and where its extremes are, as all formats need them."""

from collections.abc import Sequence

from inferd_convert.graph import Graph, Value


def moments(x: Value, axes: Sequence[int] = (), *, keep: bool) -> tuple[Value, Value]:
    """Return mean and variance of `x` along `axes`, by default all; `keep` leaves dims of 1."""
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
