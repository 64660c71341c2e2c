"""Contrib: doors among the operators of com.microsoft, which ONNX Runtime adds to ONNX's."""

import numpy as np

from inferd.backends.onnx.doors.shutting import Shut, Shutter, Shutting
from inferd.formats.onnx_graph import INT64


def _inverse(it: Shutting) -> Shut:
    """A matrix that is not square is written out of bounds; its two last dims are compared."""
    why = "matrices must be square"
    x = it.node.input(0)
    shape = it.add("Shape", (x,), why)
    rows, columns = (
        it.add("Gather", (shape, it.constant(np.array(place))), why) for place in (-2, -1)
    )
    # Div is for numbers only, so the truth is made a 1 or a 0.
    is_square = it.add("Cast", (it.add("Equal", (rows, columns), why),), why, to=INT64)
    unit = it.add("Div", (is_square, is_square), why)  # 0 / 0 if it is not
    it.replace(0, it.add("Reshape", (x, it.add("Mul", (shape, unit), why)), why))
    return it.shut()


def _quantised(weights: int, scale: int, zero: int, bias: int) -> Shutter:
    """Return what shuts a product with weights, whose inputs have these indices.

    ONNX Runtime does not compare their shapes. Those in the file are compared at load.
    """

    def shut_product(it: Shutting) -> Shut:
        names = [it.node.input(index) for index in (weights, scale, zero, bias)]
        dims = {name: it.scope.dims(name) for name in names if name}
        # Quantising tools write them as constants; elsewhere there is nothing to compare at load.
        if None in dims.values():
            return Shut(left=f"{it.what} has weights, scales or zero points that are no constants")
        matrix, scales = (dims.get(name) or () for name in names[:2])
        columns = matrix[-1:]
        is_sound = (
            len(matrix) > 1
            and 0 not in matrix
            # The forms that its kernels read: one for all, or one for each column, also of a
            # stack of matrices. Others are read beyond their end.
            and scales in ((), (1,), columns, (*matrix[:-2], 1, *columns))
            and dims.get(names[2], scales) == scales
            and dims.get(names[3], columns) == columns
        )
        if is_sound:
            return Shut()
        shown = ", ".join(f"{name} {list(one or ())}" for name, one in dims.items())
        return Shut(refusal=f"{it.what} has weights, scales or a bias that do not fit: {shown}")

    return shut_product


MICROSOFT = "com.microsoft"

CONTRIB: dict[str, Shutter] = {
    "DynamicQuantizeMatMul": _quantised(1, 2, 3, 4),
    "Inverse": _inverse,
    "MatMulIntegerToFloat": _quantised(1, 3, 5, 6),
}
"""Operator of com.microsoft -> what shuts it."""
