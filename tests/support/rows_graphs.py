"""Graphs with dependent and with independent rows, as exporters and hostile authors write them.

Each is a Case: nodes, constants, and the inputs with a shape whose -1 is the batch. An output has
no declared type or shape: ONNX Runtime infers them, so that a case says nothing twice.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node


class Case(NamedTuple):
    """One graph; `high` is what the elements of integer inputs stay below."""

    nodes: Sequence[NodeProto]
    inputs: dict[str, tuple[int, Sequence[Any]]]
    constants: dict[str, np.ndarray]
    outputs: dict[str, int]
    opset: int = 17
    high: int = 4
    ml: int = 0

    def model(self) -> ModelProto:
        """Return the graph as a model."""
        graph = helper.make_graph(
            list(self.nodes),
            "graph",
            [
                helper.make_tensor_value_info(name, kind, ["n" if d == -1 else d for d in shape])
                for name, (kind, shape) in self.inputs.items()
            ],
            [helper.make_tensor_value_info(n, k, None) for n, k in self.outputs.items()],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        if self.ml:
            opsets.append(helper.make_opsetid("ai.onnx.ml", self.ml))
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def feed(self, rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
        """Return inputs for a batch of `rows`; other variable dims are 6 long."""
        feed = {}
        for name, (kind, shape) in self.inputs.items():
            dims = [rows if d == -1 else d if isinstance(d, int) else 6 for d in shape]
            if kind == INT64:
                feed[name] = rng.integers(0, self.high, dims)
            elif kind == BOOL:
                feed[name] = rng.integers(0, 2, dims).astype(bool)
            else:
                feed[name] = rng.normal(size=dims).astype(np.float32)
        return feed


def weights(*shape: int) -> np.ndarray:
    """Return weights that look random and are always the same."""
    count = int(np.prod(shape))
    return (np.sin(np.arange(count) * 1.7 + 0.3) * 0.5).astype(np.float32).reshape(shape)


def ints(*numbers: int) -> np.ndarray:
    """Return a constant of integers."""
    return np.array(numbers, np.int64)


def simple(
    *nodes: NodeProto,
    x: Sequence[Any] = (-1, 4),
    kind: int = FLOAT,
    more: dict[str, tuple[int, Sequence[Any]]] | None = None,
    y: int = FLOAT,
    **rest: Any,
) -> Case:
    """Return a Case with input x, output y and constants by name."""
    settings = {key: rest.pop(key) for key in ("opset", "high", "ml") if key in rest}
    return Case(nodes, {"x": (kind, x), **(more or {})}, rest, {"y": y}, **settings)


def body(nodes: Sequence[NodeProto], inputs: dict[str, int], outputs: dict[str, int]) -> Any:
    """Return a subgraph."""
    return helper.make_graph(
        list(nodes),
        "body",
        [
            helper.make_tensor_value_info(n, k, [] if k in (INT64, BOOL) else None)
            for n, k in inputs.items()
        ],
        [helper.make_tensor_value_info(n, k, None) for n, k in outputs.items()],
    )
