"""Shapes: which input shapes a model accepts, by OpenVINO's own rules.

OpenVINO itself rejects only some runs with shapes that do not fit: a matrix product with too long
a matrix is computed with the part that fits, and with one thread in total OpenVINO 2026.4 drops
every error, and leaves the outputs of the previous request.
"""

import threading
from typing import Any

MAX_KNOWN = 4096
"""The most shapes that are remembered as fitting."""

_TRIAL = 2
"""A trial size for dynamic dims, to find out whether all shapes follow from input shapes alone."""

_DECIDING = frozenset(("If", "Loop", "TensorIterator"))
"""Operations with bodies that need not fit, as they may never run."""

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
"""Operations that cannot fail in a run if their shapes fit."""

Dims = tuple[int, ...]


class Shapes:
    """Checks input shapes against `model`, by reshaping a copy of it.

    `is_safe`: no run fails if its shapes fit.
    """

    def __init__(self, model: Any) -> None:
        operations = {operation.get_type_name() for operation in model.get_ops()}
        is_dynamic = any(port.get_partial_shape().is_dynamic for port in model.inputs)
        # The copy is reshaped in place, and requests of other threads would meet half a shape.
        self._lock = threading.Lock()
        self._known: set[tuple[Dims, ...]] = set()
        # A clone, because reshaping changes the model, and the original is being compiled.
        self._copy = model.clone() if is_dynamic and operations.isdisjoint(_DECIDING) else None
        self.is_safe = operations <= _SAFE and self._is_settled(model)

    def check(self, shapes: tuple[Dims, ...]) -> None:
        """Raise RuntimeError if inputs of `shapes` do not fit the model."""
        # Without the lock: entries are only added, or all removed, and
        # a miss is merely checked again.
        if self._copy is None or shapes in self._known:
            return
        with self._lock:
            self._copy.reshape({number: list(shape) for number, shape in enumerate(shapes)})
            # Clients choose shapes, so the memory of them is bounded.
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known.add(shapes)

    def _is_settled(self, model: Any) -> bool:
        """Return whether the input shapes alone determine all others."""
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
        # 2 rather than 1, which could be broadcast and fit where other sizes do not.
        min(max(_TRIAL, dim.get_min_length()), dim.get_max_length() if _is_ended(dim) else _TRIAL)
        if dim.is_dynamic
        else dim.get_length()
        for dim in shape
    ]


def _is_ended(dim: Any) -> bool:
    # OpenVINO gives -1 for a dim without an upper end.
    return bool(dim.get_max_length() > 0)
