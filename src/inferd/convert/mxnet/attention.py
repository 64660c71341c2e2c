"""MXNet's attention operators, whose projections are interleaved for each head."""

from inferd.convert.call import Converted, Converter
from inferd.convert.elementwise import over_root_of_length
from inferd.convert.graph import Graph, Value
from inferd.convert.mxnet.call import MxnetCall


def _projection(call: MxnetCall, x: Value, count: int, number: int) -> Value:
    """Return one of the `count` projections in x [time, batch, heads · count · size].

    The result is [batch · heads, time, size].
    """
    graph, heads = call.graph, call.integer("heads")
    call.refuse_if(heads < 1, f"heads is {heads}")
    size = graph.length(x, 2) / graph.ints(heads * count)
    shape = graph.join(graph.length(x, 0), graph.ints(-1, count), size)
    parts = graph.add("Reshape", x, shape, rank=4)
    return graph.transpose(
        graph.add("Gather", parts, graph.whole(number), rank=3, axis=2), (1, 0, 2)
    )


def _scores(call: MxnetCall, queries: Value, keys: Value) -> Value:
    keys = call.graph.transpose(keys, (0, 2, 1))
    return call.graph.add("MatMul", over_root_of_length(queries), keys)


def _joined(call: MxnetCall, weights: Value, values: Value, like: Value) -> Value:
    """Return the weighted values as [time, batch, heads · size]; `like` has batch as dim 1."""
    graph = call.graph
    found = graph.transpose(graph.add("MatMul", weights, values), (1, 0, 2))
    shape = graph.join(graph.length(weights, 1), graph.length(like, 1), graph.ints(-1))
    return graph.add("Reshape", found, shape, rank=3)


def _self_scores(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    return _scores(call, _projection(call, x, 3, 0), _projection(call, x, 3, 1))


def _self_values(graph: Graph, call: MxnetCall, x: Value, weights: Value) -> Converted:
    return _joined(call, weights, _projection(call, x, 3, 2), x)


def _scores_of_two(graph: Graph, call: MxnetCall, queries: Value, memory: Value) -> Converted:
    return _scores(call, _projection(call, queries, 1, 0), _projection(call, memory, 2, 0))


def _values_of_two(graph: Graph, call: MxnetCall, memory: Value, weights: Value) -> Converted:
    return _joined(call, weights, _projection(call, memory, 2, 1), memory)


OPERATORS: dict[str, Converter] = {
    "_contrib_interleaved_matmul_selfatt_qk": _self_scores,
    "_contrib_interleaved_matmul_selfatt_valatt": _self_values,
    "_contrib_interleaved_matmul_encdec_qk": _scores_of_two,
    "_contrib_interleaved_matmul_encdec_valatt": _values_of_two,
}
