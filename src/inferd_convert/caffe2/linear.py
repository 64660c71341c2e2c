"""Caffe2 operators that multiply matrices."""

from inferd_convert.caffe2.call import Caffe2Call
from inferd_convert.call import Converted, Converter
from inferd_convert.graph import Graph, Value


def _fully_connected(
    graph: Graph, call: Caffe2Call, x: Value, weight: Value, bias: Value
) -> Converted:
    """Convert FC, whose weight is [out, in], and FCTransposed, whose weight is [in, out]."""
    axis = call.axis(x.rank, 1)
    y = graph.add(
        "Gemm",
        graph.flatten(x, axis),
        # Caffe2's axis_w: weights may have more dims than two.
        graph.flatten(weight, call.integer("axis_w", 1)),
        bias,
        rank=2,
        transB=int(call.type == "FC"),
    )
    if axis == 1:
        return y
    shape = graph.join(graph.shape(x, 0, axis), graph.shape(y, 1))
    return graph.reshape(y, shape, axis + 1 if axis >= 0 else None)


def _mat_mul(graph: Graph, call: Caffe2Call) -> Converted:
    sides = []
    for index, side in enumerate("ab"):
        matrix = graph.flatten(call.input(index), call.integer(f"axis_{side}", 1))
        sides.append(_turned(graph, matrix) if call.flag(f"trans_{side}") else matrix)
    return graph.add("MatMul", *sides, rank=2)


def _batch_mat_mul(graph: Graph, call: Caffe2Call) -> Converted:
    sides = [
        _turned(graph, call.input(index)) if call.flag(f"trans_{side}") else call.input(index)
        for index, side in enumerate("ab")
    ]
    ranks = [side.rank for side in sides if side.rank is not None]
    if ranks == [1, 1]:  # in Caffe2 the product of two vectors has one dim
        sides[0] = graph.unsqueeze(sides[0], (0,))
        return graph.add("MatMul", *sides, rank=1)
    # With a vector, MatMul takes a dim away.
    rank = max(ranks) if len(ranks) == 2 and min(ranks) > 1 else None
    return graph.add("MatMul", *sides, rank=rank)


def _turned(graph: Graph, matrix: Value) -> Value:
    return matrix if matrix.rank in (0, 1) else graph.swap_last(matrix)


def _dot_product(graph: Graph, call: Caffe2Call) -> Converted:
    products = graph.flatten(call.input(0) * call.input(1), 1)
    return graph.reduce("ReduceSum", products, [1])


def _distance(graph: Graph, call: Caffe2Call) -> Converted:
    """Convert L1Distance, and SquaredL2Distance, which is half the sum of squares."""
    off = graph.flatten(call.input(0) - call.input(1), 1)
    op = "ReduceL1" if call.type == "L1Distance" else "ReduceSumSquare"
    total = graph.reduce(op, off, [1])
    return total if op == "ReduceL1" else total * 0.5


def _cosine(graph: Graph, call: Caffe2Call) -> Converted:
    sides = [graph.flatten(call.input(index), 1) for index in (0, 1)]
    squares = [graph.reduce("ReduceSumSquare", side, [1]) for side in sides]
    # Caffe2's own epsilon, which it applies to the squares.
    lengths = [graph.add("Max", square, graph.real(1e-12)) for square in squares]
    product = graph.reduce("ReduceSum", graph.add("Mul", *sides), [1])
    return product / graph.add("Sqrt", graph.add("Mul", *lengths))


OPERATORS: dict[str, Converter] = {
    **dict.fromkeys(("FC", "FCTransposed"), _fully_connected),
    "MatMul": _mat_mul,
    "BatchMatMul": _batch_mat_mul,
    "DotProduct": _dot_product,
    **dict.fromkeys(("L1Distance", "SquaredL2Distance"), _distance),
    "CosineSimilarity": _cosine,
}
