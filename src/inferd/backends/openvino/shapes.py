"""Shapes: which shapes of its inputs a model takes, by OpenVINO's own rules.

A run with shapes that do not fit is refused by OpenVINO only in part: a product with too long a
matrix is computed with what fits, and with one thread in all OpenVINO 2026.4 drops every error,
and leaves the outputs of the request before.
"""

import threading
from typing import Any

MAX_KNOWN = 4096
"""So many shapes are remembered to fit."""

_TRIAL = 2
"""What a dim that may be any number is, to see whether shapes follow from shapes alone."""

_DECIDING = frozenset(("If", "Loop", "TensorIterator"))
"""Operations with parts that need not fit, as they need not run."""

_SAFE = frozenset(
    (
        *("Parameter", "Result", "Constant", "Convert", "ConvertLike", "FakeQuantize", "ShapeOf"),
        *("Abs", "Acos", "Acosh", "Add", "Asin", "Asinh", "Atan", "Atanh", "Ceiling", "Clamp"),
        *("Cos", "Cosh", "Divide", "Elu", "Erf", "Exp", "Floor", "FloorMod", "Gelu", "HSigmoid"),
        *("HSwish", "HardSigmoid", "Log", "Maximum", "Minimum", "Mish", "Mod", "Multiply"),
        *("Negative", "PRelu", "Power", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Sinh"),
        *("SoftPlus", "SoftSign", "Sqrt", "SquaredDifference", "Subtract", "Swish", "Tan", "Tanh"),
        *("Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "NotEqual", "Select"),
        *("LogicalAnd", "LogicalNot", "LogicalOr", "LogicalXor", "IsFinite", "IsInf", "IsNaN"),
        *("Softmax", "LogSoftmax", "MatMul", "Convolution", "ConvolutionBackpropData"),
        *("GroupConvolution", "GroupConvolutionBackpropData", "AvgPool", "MaxPool"),
        *("BatchNormInference", "LRN", "MVN", "NormalizeL2", "TopK"),
        *("ReduceL1", "ReduceL2", "ReduceLogicalAnd", "ReduceLogicalOr", "ReduceMax"),
        *("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"),
        *("Broadcast", "Concat", "DepthToSpace", "Pad", "Reshape", "ShuffleChannels", "Slice"),
        *("SpaceToDepth", "Split", "Squeeze", "StridedSlice", "Tile", "Transpose", "Unsqueeze"),
        "VariadicSplit",
    )
)
"""Operations that cannot fail at a run once their shapes fit."""

Dims = tuple[int, ...]


class Shapes:
    """What is known of the shapes that `model` takes, and a copy of it to ask.

    `is_safe`: no run fails whose shapes fit.
    """

    def __init__(self, model: Any) -> None:
        operations = {operation.get_type_name() for operation in model.get_ops()}
        is_dynamic = any(port.get_partial_shape().is_dynamic for port in model.inputs)
        self._lock = threading.Lock()
        self._known: set[tuple[Dims, ...]] = set()
        self._copy = model.clone() if is_dynamic and operations.isdisjoint(_DECIDING) else None
        self.is_safe = operations <= _SAFE and self._is_settled(model)

    def check(self, shapes: tuple[Dims, ...]) -> None:
        """Raise RuntimeError where inputs of `shapes` do not fit into the model."""
        if self._copy is None or shapes in self._known:
            return
        with self._lock:
            self._copy.reshape({number: list(shape) for number, shape in enumerate(shapes)})
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known.add(shapes)

    def _is_settled(self, model: Any) -> bool:
        """Tell whether the shapes of the inputs alone decide on all others."""
        copy = self._copy
        if copy is None:
            return not model.is_dynamic()
        try:
            copy.reshape({n: _trial(port) for n, port in enumerate(model.inputs)})
        except RuntimeError:
            return False
        return not copy.is_dynamic()


def _trial(port: Any) -> list[int]:
    shape = port.get_partial_shape()
    if shape.rank.is_dynamic:
        raise RuntimeError
    return [
        min(max(_TRIAL, dim.get_min_length()), dim.get_max_length() if _is_ended(dim) else _TRIAL)
        if dim.is_dynamic
        else dim.get_length()
        for dim in shape
    ]


def _is_ended(dim: Any) -> bool:
    return bool(dim.get_max_length() > 0)
