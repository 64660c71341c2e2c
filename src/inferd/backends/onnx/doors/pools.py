"""Pools: windows that do not fit into an image, for which ONNX Runtime divides by a height of 0.

Mostly the image is an input of the model, with convolutions between: how high it has to be is
computed when the model loads, and compared before each run.
"""

import numpy as np

from inferd.backends.onnx.doors.check import LeastDimCheck
from inferd.backends.onnx.doors.shutting import Shut, Shutting
from inferd.formats.onnx_graph import INT64, RowNode

# Images are [batch, channels, height, width]; only the height is divided by.
_HEIGHT = 2
_IMAGE_WINDOW = 2
"""The number of dims that a window of images has."""

# The file is not checked for cycles yet, and following one would never end.
_MOST_STEPS = 10_000
_SINCE_LESS = 9
"""The opset that brought Less for integers."""

_ALIKE = frozenset(
    (
        *("Abs", "BatchNormalization", "Cast", "Clip", "Dropout", "Elu", "Erf", "Exp", "Gelu"),
        *("HardSigmoid", "HardSwish", "Identity", "InstanceNormalization", "LRN", "LeakyRelu"),
        *("Mish", "Neg", "PRelu", "Relu", "Selu", "Sigmoid", "Softplus", "Sqrt", "Tanh"),
    )
)
"""Operators that make images as high as their first input."""


def shut_pool(it: Shutting) -> Shut:
    """Let a pool of images pass only if its window fits: others it refuses, or ends the process."""
    least = _least(it.node, 1) - (_stride(it.node) - 1)  # a last window that is cut off runs
    if least <= 1:
        return it.shut()
    source, height = _traced(it, least)
    if source in it.scope.open_inputs:
        declared = it.scope.declared.get(source)
        if declared is None or len(declared) <= _HEIGHT or declared[_HEIGHT] < height:
            it.check(LeastDimCheck(source, it.what, _HEIGHT, height))
    elif it.opset >= _SINCE_LESS and it.scope.dims(source) is None:
        why = f"images need a height of {least}"
        x = it.node.input(0)
        shape = it.add("Shape", (x,), why)
        found = it.add("Gather", (shape, it.constant(np.array(_HEIGHT))), why)
        is_low = it.add("Less", (found, it.constant(np.array(least))), why)
        fits = it.add("Cast", (it.add("Not", (is_low,), why),), why, to=INT64)
        unit = it.add("Div", (fits, fits), why)  # 0 / 0 if it is too low
        it.replace(0, it.add("Reshape", (x, it.add("Mul", (shape, unit), why)), why))
    return it.shut()


def _traced(it: Shutting, least: int) -> tuple[str, int]:
    """Return the image that the pool's comes from, and how high it must be for `least` there."""
    name = it.node.input(0)
    for _ in range(_MOST_STEPS):
        node = it.scope.producer(name)
        if node is None or node.domain:
            break
        # MaxPool's second output has indices, not an image.
        if node.op in ("Conv", "AveragePool", "MaxPool") and node.outputs[0] == name:
            before = _least(node, least, it.scope.dims(node.input(1)))
            if not before:
                break
            least = before
        elif node.op not in _ALIKE:
            break
        name = node.input(0)
    return name, least


def _least(node: RowNode, least: int, weights: tuple[int, ...] | None = None) -> int:
    """Return how high an image must be for a window to make one of `least` of it, 0 if unknown."""
    # Conv may leave kernel_shape out; it is then inferred from W, [M, C, height, width] (ONNX).
    kernel = node.numbers("kernel_shape") or list((weights or ())[_HEIGHT:])
    if len(kernel) != _IMAGE_WINDOW:
        return 0
    above = (least - 1) * _stride(node)
    kind = node.text("auto_pad")
    # Padded so that ceil(height / stride) windows fit, however large the kernel is.
    if kind.startswith("SAME"):
        return above + 1
    pads = node.numbers("pads") if kind in ("", "NOTSET") else []
    padded = pads[0] + pads[_IMAGE_WINDOW] if len(pads) == 2 * _IMAGE_WINDOW else 0
    dilation = (node.numbers("dilations") or [1])[0]
    return max(1, above + (kernel[0] - 1) * dilation + 1 - padded)


def _stride(node: RowNode) -> int:
    return (node.numbers("strides") or [1])[0]
