"""Functions of each element that all formats share: activations, roots and copies."""

import math

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
