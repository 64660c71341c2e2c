"""MXNet's attention operators, whose projections are interleaved for each head."""

from collections.abc import Callable

from inferd.convert.graph import Value
from inferd.convert.mxnet.call import Call, Converted


def _projection(call: Call, x: Value, count: int, number: int) -> Value:
    """Return one of the `count` projections in x [time, batch, heads · count · size].

    The result is [batch · heads, time, size].
    """
    graph, heads = call.graph, call.integer("heads")
    if heads < 1:
        call.refuse(f"heads is {heads}")
    size = graph.add("Div", graph.shape(x, 2, 3), graph.ints(heads * count), rank=1)
    shape = graph.join(graph.shape(x, 0, 1), graph.ints(-1, count), size)
    lanes = graph.add("Reshape", x, shape, rank=4)
    return graph.transpose(
        graph.add("Gather", lanes, graph.whole(number), rank=3, axis=2), (1, 0, 2)
    )


def _scores(call: Call, queries: Value, keys: Value) -> Value:
    graph = call.graph
    size = graph.add("CastLike", graph.shape(queries, 2, 3), queries, rank=1)
    queries = graph.add("Div", queries, graph.add("Sqrt", size))
    return graph.add("MatMul", queries, graph.transpose(keys, (0, 2, 1)))


def _joined(call: Call, weights: Value, values: Value, like: Value) -> Value:
    """Return the weighted values as [time, batch, heads · size]; `like` has batch as dim 1."""
    graph = call.graph
    found = graph.transpose(graph.add("MatMul", weights, values), (1, 0, 2))
    shape = graph.join(graph.shape(weights, 1, 2), graph.shape(like, 1, 2), graph.ints(-1))
    return graph.add("Reshape", found, shape, rank=3)


def _self_scores(call: Call) -> Converted:
    x = call.input(0)
    return _scores(call, _projection(call, x, 3, 0), _projection(call, x, 3, 1))


def _self_values(call: Call) -> Converted:
    x, weights = call.input(0), call.input(1)
    return _joined(call, weights, _projection(call, x, 3, 2), x)


def _scores_of_two(call: Call) -> Converted:
    queries, memory = call.input(0), call.input(1)
    return _scores(call, _projection(call, queries, 1, 0), _projection(call, memory, 2, 0))


def _values_of_two(call: Call) -> Converted:
    memory, weights = call.input(0), call.input(1)
    return _joined(call, weights, _projection(call, memory, 2, 1), memory)


OPERATORS: dict[str, Callable[[Call], Converted]] = {
    "_contrib_interleaved_matmul_selfatt_qk": _self_scores,
    "_contrib_interleaved_matmul_selfatt_valatt": _self_values,
    "_contrib_interleaved_matmul_encdec_qk": _scores_of_two,
    "_contrib_interleaved_matmul_encdec_valatt": _values_of_two,
}
