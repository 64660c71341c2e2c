"""Small ONNX models, made by the tests that need them."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from inferd.core.interfaces import ModelFiles

MakeModel = Callable[..., ModelFiles]
Value = tuple[str, int, Sequence[int | str | None] | None]


@pytest.fixture
def make_model(tmp_path: Path) -> MakeModel:
    """Return a function that writes version 1 of a model and tells where it lies."""
    numbers = itertools.count()

    def make(
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        nodes: Sequence[NodeProto],
        constants: dict[str, np.ndarray] | None = None,
    ) -> ModelFiles:
        graph = helper.make_graph(
            list(nodes),
            "graph",
            [helper.make_tensor_value_info(*value) for value in inputs],
            [helper.make_tensor_value_info(*value) for value in outputs],
            [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        folder = tmp_path / f"model{next(numbers)}"
        version_folder = folder / "1"
        version_folder.mkdir(parents=True)
        file = version_folder / "model.onnx"
        file.write_bytes(model.SerializeToString())
        return ModelFiles(folder, 1, version_folder, file)

    return make


@pytest.fixture
def add_sub(make_model: MakeModel) -> ModelFiles:
    """Return a model that can batch: SUM and DIFF of A and B, FP32 [n, 4]."""
    values = [(name, TensorProto.FLOAT, ["n", 4]) for name in ("A", "B", "SUM", "DIFF")]
    return make_model(
        values[:2],
        values[2:],
        [
            helper.make_node("Add", ["A", "B"], ["SUM"]),
            helper.make_node("Sub", ["A", "B"], ["DIFF"]),
        ],
    )


@pytest.fixture
def identity(make_model: MakeModel) -> Callable[..., ModelFiles]:
    """Return a function that makes a model Y = X of a type and a shape."""

    def make(kind: int, shape: Sequence[int | str | None] | None) -> ModelFiles:
        return make_model(
            [("X", kind, shape)], [("Y", kind, shape)], [helper.make_node("Identity", ["X"], ["Y"])]
        )

    return make
