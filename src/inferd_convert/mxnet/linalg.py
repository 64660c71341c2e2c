"""MXNet operators that multiply matrices, among them those of attention."""

from dataclasses import replace

from inferd_convert.call import Converted, Converter
from inferd_convert.graph import Graph, Value
from inferd_convert.mxnet.call import MxnetCall

_RANKS = {"dot": 2, "batch_dot": 3}
"""The number of dims that transposed inputs of unknown rank have: with others, a run must fail."""


def _sides(graph: Graph, call: MxnetCall) -> list[Value]:
    """Return the two matrices, transposed where the attributes say so."""
    sides = []
    for index, side in enumerate("ab"):
        matrix = call.input(index)
        if call.flag(f"transpose_{side}"):
            matrix = graph.swap_last(replace(matrix, rank=matrix.rank or _RANKS.get(call.op)))
        sides.append(matrix)
    return sides


def _dot(graph: Graph, call: MxnetCall) -> Converted:
    ranks = [call.input(index).rank for index in (0, 1)]
    if call.op == "dot" and any(rank is not None and rank > 2 for rank in ranks):
        return _dot_of_many(call)
    a, b = _sides(graph, call)
    if a.rank == b.rank == 1:  # in MXNet the product of two vectors has one dim
        return graph.add("MatMul", graph.unsqueeze(a, (0,)), b, rank=1)
    if b.rank == 1 and call.op == "dot":
        # As a matrix: ONNX Runtime wrongly fuses a preceding Transpose into products of vectors.
        column = graph.add("MatMul", a, graph.unsqueeze(b, (1,)), rank=a.rank)
        return graph.add("Squeeze", column, graph.ints(-1), rank=1)
    rank = a.rank if b.rank is not None and b.rank > 1 else None
    return graph.add("MatMul", a, b, rank=rank)


def _dot_of_many(call: MxnetCall) -> Value:
    """Return the product of arrays of more than two dims: uncontracted dims are flattened."""
    graph, a, b = call.graph, call.input(0), call.input(1)
    first_of_a, last_of_b = call.flag("transpose_a"), call.flag("transpose_b")
    dims = [
        graph.shape(a, 1) if first_of_a else graph.shape(a, 0, -1),
        graph.shape(b, 0, -1) if last_of_b else graph.shape(b, 1),
    ]
    left, right = (
        graph.flatten(a, 1 if first_of_a else -1),
        graph.flatten(b, -1 if last_of_b else 1),
    )
    left = graph.transpose(left, (1, 0)) if first_of_a else left
    right = graph.transpose(right, (1, 0)) if last_of_b else right
    rank = a.rank + b.rank - 2 if a.rank is not None and b.rank is not None else None
    return graph.reshape(graph.add("MatMul", left, right, rank=2), graph.join(*dims), rank)


def _gemm(graph: Graph, call: MxnetCall) -> Converted:
    """Convert linalg_gemm2, alpha·A·B, and linalg_gemm, which adds beta·C."""
    if call.integer("axis", -2) != -2:
        call.cannot("rows along another axis than -2 cannot be converted")
    product = _scaled(call, graph.add("MatMul", *_sides(graph, call)), "alpha")
    if call.op == "_linalg_gemm2":
        return product
    return product + _scaled(call, call.input(2), "beta")


def _syrk(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    """Convert linalg_syrk: alpha·A·Aᵀ, or alpha·Aᵀ·A."""
    sides = [x, graph.swap_last(x)]
    if call.flag("transpose"):
        sides.reverse()
    return _scaled(call, graph.add("MatMul", *sides, rank=x.rank), "alpha")


def _scaled(call: MxnetCall, x: Value, name: str) -> Value:
    factor = call.number(name, 1.0)
    return x if factor == 1 else x * factor


def _projection(call: MxnetCall, x: Value, count: int, number: int) -> Value:
    """Return one of the `count` projections in x [time, batch, heads · count · size].

    The result is [batch · heads, time, size].
    """
    graph, heads = call.graph, call.integer("heads")
    call.refuse_if(heads < 1, f"heads is {heads}")
    size = graph.length(x, 2) / graph.ints(heads * count)
    # Queries, keys and values of a head lie one behind the other (interleaved): batch and heads
    # become one dim, of which each is a product of its own.
    shape = graph.join(graph.length(x, 0), graph.ints(-1, count), size)
    parts = graph.add("Reshape", x, shape, rank=4)
    return graph.transpose(
        graph.add("Gather", parts, graph.whole(number), rank=3, axis=2), (1, 0, 2)
    )


def _over_root_of_length(x: Value) -> Value:
    """Return `x` divided by the root of the size of its last dim."""
    size = x.graph.add("CastLike", x.graph.length(x, -1), x)
    return x / x.graph.add("Sqrt", size)


def _scores(call: MxnetCall, queries: Value, keys: Value) -> Value:
    keys = call.graph.transpose(keys, (0, 2, 1))
    # Divided before the product, as MXNet does it, so that both round alike.
    return call.graph.add("MatMul", _over_root_of_length(queries), keys)


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
    "dot": _dot,
    "batch_dot": _dot,
    **dict.fromkeys(("_linalg_gemm", "_linalg_gemm2"), _gemm),
    "_linalg_syrk": _syrk,
    "_contrib_div_sqrt_dim": lambda graph, call, x: _over_root_of_length(x),
    "_contrib_interleaved_matmul_selfatt_qk": _self_scores,
    "_contrib_interleaved_matmul_selfatt_valatt": _self_values,
    "_contrib_interleaved_matmul_encdec_qk": _scores_of_two,
    "_contrib_interleaved_matmul_encdec_valatt": _values_of_two,
}
