"""Tensors as text for people: their kind, their values shortened, and what they range over."""

import numpy as np

from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType
from inferd.tensor.halves import bf16_to_float32
from inferd.tensor.tensor import Tensor, dims_text

MOST_SHOWN = 60
MOST_STRINGS = 20
LONGEST_STRING = 200


def tensor_text(tensor: Tensor, width: int = 80) -> str:
    """Return lines: name, datatype and dims, then the values; of many only those at the ends."""
    array = plain_array(tensor)
    head = f"{tensor.name}  {tensor.datatype.value} {dims_text(tensor.shape)}"
    if tensor.datatype is DataType.BYTES:
        lines = _string_lines(array, width)
    else:
        text = np.array2string(
            array,
            max_line_width=max(20, width - 2),
            threshold=MOST_SHOWN,
            edgeitems=3,
            precision=6,
            # At most six digits, fewer where these say it all.
            floatmode="maxprec",
            separator=", ",
        )
        lines = text.splitlines()
        if array.size > MOST_SHOWN:
            head += _range_text(array)
    return "\n".join([head, *(f"  {line}" for line in lines)]) + "\n"


def plain_array(tensor: Tensor) -> Array:
    """Return the elements as numpy has them: of BF16 float32 values, of BYTES `bytes` objects."""
    array = tensor.numpy()
    return bf16_to_float32(array) if tensor.datatype is DataType.BF16 else array


def json_value(tensor: Tensor) -> object:
    """Return the elements as nested lists; strings that are no UTF-8 with escapes, NaN as null."""
    array = plain_array(tensor)
    if tensor.datatype is DataType.BYTES:
        flat = array.ravel()
        texts = np.empty(flat.shape, object)
        # JSON has no bytes, and a replacement character would not tell which they were.
        texts[:] = [one.decode(errors="backslashreplace") for one in flat]
        return texts.reshape(array.shape).tolist()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        flat = array.ravel()
        values = np.empty(flat.shape, object)
        values[:] = [one if np.isfinite(one) else None for one in flat.tolist()]
        return values.reshape(array.shape).tolist()
    if array.dtype == np.float32:  # the shortest decimals that are these floats, not their doubles
        texts = np.array([float(str(one)) for one in array.ravel()], np.float64)
        return texts.reshape(array.shape).tolist()
    return array.tolist()


def _range_text(array: Array) -> str:
    if array.dtype.kind == "b":
        return f"  {int(array.sum())} of {array.size} true"
    # The sum of an FP16 array overflows at 65,504.
    values = array.astype(np.float64) if array.dtype.kind == "f" else array
    odd = int(array.size - np.isfinite(values).sum()) if array.dtype.kind == "f" else 0
    if odd == array.size:
        return f"  none of {array.size} is finite"
    finite = values[np.isfinite(values)] if odd else values
    note = f", {odd} not finite" if odd else ""
    return f"  {finite.min():.6g} to {finite.max():.6g}, mean {finite.mean():.6g}{note}"


def _string_lines(array: Array, width: int) -> list[str]:
    flat = array.ravel().tolist()
    shown = flat if len(flat) <= MOST_STRINGS else flat[: MOST_STRINGS // 2]
    lines = [_string(one, width) for one in shown]
    if len(shown) < len(flat):
        lines.append(f"... {len(flat) - MOST_STRINGS} more")
        lines += [_string(one, width) for one in flat[-MOST_STRINGS // 2 :]]
    return lines


def _string(value: bytes, width: int) -> str:
    """Return a string in quotes, on one line; what is no text as bytes are written in Python."""
    try:
        # repr keeps control characters from reaching the terminal.
        text = repr(value.decode())
    except UnicodeDecodeError:
        text = repr(value)
    most = max(20, min(LONGEST_STRING, width * 2))
    if len(text) > most:
        return f"{text[:most]}... ({len(value)} bytes)"
    return text
