"""Selection of elements and parts by index, as all formats need it."""

from inferd.convert.graph import Graph, Value
from inferd.tensor.dtype import DataType


def bounded(index: Value, length: Value, *, wraps: bool = False) -> Value:
    """Return `index` as INT64, with indices outside of 0 to `length` clipped or wrapped."""
    graph, rank = index.graph, index.rank
    numbers = graph.cast(index, DataType.INT64)
    if wraps:
        return graph.add("Mod", numbers, length, rank=rank)
    numbers = graph.add("Min", numbers, length - graph.ints(1), rank=rank)
    return graph.add("Max", numbers, graph.ints(0), rank=rank)


def equal_parts(
    graph: Graph, x: Value, axis: int, count: int, *, squeezes: bool = False
) -> tuple[Value, ...]:
    """Return `count` parts of `x` along `axis`, which is left out if the split `squeezes`."""
    parts = graph.add_several(count, "Split", x, axis=axis, num_outputs=count)
    return tuple(graph.squeeze(part, axis) for part in parts) if squeezes else parts
