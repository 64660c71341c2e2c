"""Tensor: a name, a datatype, a shape, and a view of the wire bytes."""

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from inferd.record import Record
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import decode_strings, encode_strings

SMALL_BYTES = 4096

Parameter = bool | int | str | float
Parameters = dict[str, Parameter]
"""The protocol allows strings, numbers and booleans as parameter values."""


def dims_text(dims: Iterable[int]) -> str:
    """Return `dims` as error texts write them, [1,-1]: clients know the form without spaces."""
    return f"[{','.join(map(str, dims))}]"


class Tensor(Record):
    """A named tensor whose `data` is any C-contiguous buffer in wire layout.

    Little-endian, row-major, packed. BYTES have a uint32 length before each element (Binary Tensor
    Data extension). `data` may be bytes, bytearray, memoryview or ndarray; the code that builds a
    tensor has checked its length in bytes against datatype and shape.
    """

    def __init__(
        self,
        name: str,
        datatype: DataType,
        shape: tuple[int, ...],
        data: Any,
        parameters: Parameters | None = None,
    ) -> None:
        self.name = name
        self.datatype = datatype
        self.shape = shape
        self.data = data  # a buffer; collections.abc.Buffer needs Python 3.12
        self.parameters = parameters

    def numpy(self) -> Array:
        """Return the elements as an array of `shape`: a view, except that BYTES are copied.

        BYTES give an object array of `bytes`; BF16 gives the bit patterns as uint16.
        """
        if self.datatype is DataType.BYTES:
            array = np.empty(prod(self.shape), dtype=object)
            # Assigned, since np.array() of bytes would pad them to one length.
            array[:] = decode_strings(self.data, self.name)
            return array.reshape(self.shape)
        # The constructor, not frombuffer and reshape: one call, and it takes empty buffers.
        return np.ndarray(self.shape, self.datatype.numpy, self.data)

    def strings(self) -> list[bytes]:
        """Return the elements of a BYTES tensor in row-major order, copied."""
        return decode_strings(self.data, self.name)

    def view(self) -> memoryview:
        """Return the wire bytes as a flat memoryview; no copy."""
        view = memoryview(self.data)
        return view if view.format == "B" and view.ndim == 1 else flat_view(view)

    def packed(self) -> Any:
        """Return the wire bytes as a buffer whose len() is their number; a small array is copied.

        For sending: so little data is joined with its header anyway, and a view of an array costs
        more than a copy of SMALL_BYTES.
        """
        data = self.data
        if type(data) is bytes:
            return data
        if type(data) is np.ndarray and data.nbytes <= SMALL_BYTES:
            return data.tobytes()
        return self.view()

    @property
    def size_bytes(self) -> int:
        """The number of wire bytes."""
        return memoryview(self.data).nbytes

    @classmethod
    def from_numpy(cls, name: str, array: Array, datatype: DataType) -> "Tensor":
        """Wrap `array`, whose dtype must be `datatype.numpy`; copy it only if not C-contiguous.

        BYTES take an object array of `bytes` or `str` (encoded as UTF-8), which is copied.
        """
        if datatype is DataType.BYTES:
            return cls(name, datatype, array.shape, encode_strings(array.ravel().tolist(), name))
        return cls(name, datatype, array.shape, np.ascontiguousarray(array))


def flat_view(view: memoryview) -> memoryview:
    """Return `view` as one-dimensional bytes. Empty views cannot be cast, so they become b''."""
    return view.cast("B") if view.nbytes else memoryview(b"")


def fits(dims: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Tell whether `dims`, of which -1 is any size, allow `shape`."""
    return len(dims) == len(shape) and all(
        dim in (-1, size) for dim, size in zip(dims, shape, strict=True)
    )


def reshaped(
    shape: tuple[int, ...], dims: tuple[int, ...], target: tuple[int, ...]
) -> tuple[int, ...]:
    """Return `shape`, which fits `dims`, reshaped so that `dims` become `target`.

    Dims of `shape` before those of `dims` (the batch) stay, and the n-th -1 of `target` takes the
    size found at the n-th -1 of `dims` (Triton, ModelTensorReshape). Raises ValueError when
    `shape` has fewer dims than `dims`, or `target` has more variable ones.
    """
    lead = len(shape) - len(dims)
    if lead < 0 or target.count(-1) > dims.count(-1):
        msg = f"a tensor of shape {list(shape)} and dims {list(dims)} cannot be {list(target)}"
        raise ValueError(msg)
    sizes = (size for size, dim in zip(shape[lead:], dims, strict=True) if dim == -1)
    return shape[:lead] + tuple(next(sizes) if dim == -1 else dim for dim in target)
