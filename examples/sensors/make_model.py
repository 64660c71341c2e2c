"""Writes the model `surprise`: how far a value lies from those before it, in standard deviations.

    pip install onnx
    python examples/sensors/make_model.py

Nothing is learned: the model is Welford's formula for mean and variance,
and what it has seen (count, mean, sum of squares) comes in and goes out as a tensor.
"""

from pathlib import Path

import onnx
from onnx import helper

FILE = Path(__file__).parent / "models" / "surprise" / "1" / "model.onnx"


def main() -> None:
    """Write the model."""
    graph = onnx.parser.parse_graph("""
        surprise (float[N, 1] value, float[N, 3] seen)
            => (float[N, 1] surprise, float[N, 3] seen_now)
        <float one = {1}, float two = {2}, float enough = {3}, float tiny = {0.000001}>
        {
            count, mean, squares = Split <axis = 1, num_outputs = 3> (seen)
            off = Sub (value, mean)
            others = Sub (count, one)
            at_least_one = Max (others, one)
            variance = Div (squares, at_least_one)
            not_zero = Max (variance, tiny)
            deviation = Sqrt (not_zero)
            deviations = Div (off, deviation)
            is_known = GreaterOrEqual (count, enough)
            nothing = Sub (value, value)
            surprise = Where (is_known, deviations, nothing)

            count_now = Add (count, one)
            step = Div (off, count_now)
            mean_now = Add (mean, step)
            off_now = Sub (value, mean_now)
            square = Mul (off, off_now)
            squares_now = Add (squares, square)
            seen_now = Concat <axis = 1> (count_now, mean_now, squares_now)
        }""")
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18)])
    onnx.checker.check_model(model, full_check=True)
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_bytes(model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
