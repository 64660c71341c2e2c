"""Tensor, as model.py uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..compiled import mypyc_attr
from ..packet import INLINE_BYTES
from .datatype import NAMES, NUMBERS, NUMPY, decode_strings, encode_strings, name_of
from .dlpack import CPU, from_capsule, to_capsule
from .error import TritonModelException, WrongType, kind_of, text_of
from .given import text_given

if TYPE_CHECKING:
    from ..line import Line
    from ..packet import Payload


_NOTHING = bytearray()
"""The data of an empty tensor; a bytearray, so that its array is writable like any other."""

SMALL = 4 << 10
"""Up to this many bytes, copying is faster than a view."""

LENT_BYTES = INLINE_BYTES
"""Larger data that lies in a received block is sent back without a copy."""


def _name_given(name: object) -> str:
    if not isinstance(name, (str, bytes)):
        raise WrongType(f"the name of a Tensor is {kind_of(name)}, expected str")
    if not name:
        raise TritonModelException("a Tensor needs a name, got ''")
    return text_given(name, "the name of a Tensor")


def _array_given(name: str, array: Any) -> Any:
    """Return `array` as NumPy's own kind; of a masked array all elements, as in Triton."""
    if not isinstance(array, np.ndarray):
        raise WrongType(f"Tensor '{name}' needs a numpy array, got {type(array).__name__}")
    # Subclasses may have a tobytes() or tolist() of their own, which say something else.
    return np.asarray(array)


@mypyc_attr(allow_interpreted_subclasses=True)
class Tensor:
    """A named tensor in the memory of the CPU.

    `numpy_array` is not copied before the response is sent, unless it is one of objects, bytes or
    str: that becomes a tensor of strings, of those that it holds now.
    """

    __slots__ = ("_array", "_data", "_datatype", "_name", "_offset", "_shape", "_size")

    def __init__(self, name: Any, numpy_array: Any) -> None:
        # The check in a function is for the unusual: a call costs more than this line.
        if type(name) is not str or not name:
            name = _name_given(name)
        if type(numpy_array) is not np.ndarray:
            numpy_array = _array_given(name, numpy_array)
        # One look-up for the usual dtypes; the others, such as those
        # of another byte order, are slow.
        datatype = NAMES.get(numpy_array.dtype)
        if datatype is None:
            try:
                datatype = name_of(numpy_array.dtype)
            except TypeError as error:
                raise TritonModelException(f"Tensor '{name}': {error}") from None
        self._datatype = datatype
        self._name: str = name
        self._array: Any = numpy_array
        self._shape: tuple[int, ...] = numpy_array.shape
        self._data: Any = None
        self._offset = self._size = 0
        if datatype == "BYTES":
            # Now, as in Triton: models fill the same array anew for the next request of a batch.
            self._data = _encoded(name, numpy_array)
            self._size = len(self._data)

    @staticmethod
    def _of(name: str, datatype: str, array: Any) -> Tensor:
        tensor = Tensor.__new__(Tensor)
        tensor._name, tensor._datatype, tensor._array = name, datatype, array
        tensor._shape, tensor._data = array.shape, None
        tensor._offset = tensor._size = 0
        return tensor

    def name(self) -> str:
        """Return the name."""
        return self._name

    def shape(self) -> list[int]:
        """Return the shape, the batch dim included."""
        return list(self._shape)

    def triton_dtype(self) -> int:
        """Return the number of the datatype in ModelConfig's DataType."""
        return NUMBERS[self._datatype]

    def is_cpu(self) -> bool:
        """Return whether the tensor is in CPU memory: always True."""
        return True

    def as_numpy(self) -> object:
        """Return the elements as a writable array; strings are bytes objects.

        Raises TritonModelException for BF16, which numpy lacks; DLPack has it.
        """
        if self._datatype == "BF16":
            raise TritonModelException(
                f"tensor '{self._name}' is BF16, which numpy does not know; use to_dlpack()"
            )
        return self._elements()

    def _elements(self) -> Any:
        if self._array is None:
            if self._datatype == "BYTES":
                self._array = decode_strings(self._bytes()).reshape(self._shape)
            else:
                datatype = NUMPY[self._datatype]
                self._array = np.ndarray(self._shape, datatype, self._data, self._offset)
            # The array keeps the memory; one reference less lets a block be claimed.
            self._data = None
        return self._array

    def _bytes(self) -> object:
        """Return the bytes as received, while there is no array yet."""
        return self._data[self._offset : self._offset + self._size]

    def to_dlpack(self) -> Any:
        """Return a DLPack capsule over the same memory. Raises TritonModelException for strings."""
        if self._datatype == "BYTES":
            raise TritonModelException(
                f"tensor '{self._name}' holds strings, which DLPack does not know"
            )
        # reshape() again, as ascontiguousarray makes a scalar one-dimensional.
        self._array = np.ascontiguousarray(self._elements()).reshape(self._shape)
        return to_capsule(self._array, self._datatype)

    @staticmethod
    def from_dlpack(name: object, tensor: object) -> Tensor:
        """Return a Tensor over the memory of `tensor`: a DLPack capsule, or one with __dlpack__.

        A tensor on a device is moved by its `cpu()`, if it has that method.
        """
        name = _name_given(name)
        device = getattr(tensor, "__dlpack_device__", None)
        if device is not None and device()[0] != CPU and hasattr(tensor, "cpu"):
            tensor = tensor.cpu()
        capsule = tensor.__dlpack__() if hasattr(tensor, "__dlpack__") else tensor
        return Tensor._of(name, *from_capsule(capsule))

    def __dlpack__(self, stream: object = None, **_: object) -> object:
        # -1 means "do not synchronise" (array API, __dlpack__).
        if stream not in (None, -1):
            raise TritonModelException("the tensor lies in the CPU's memory: there are no streams")
        return self.to_dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0

    def __repr__(self) -> str:
        return f"Tensor({self._name!r}, {self._datatype} {list(self._shape)})"


def read_tensor(described: list[Any], data: Any) -> Tensor:
    """Return the tensor that a packet describes, a view of the packet's `data`."""
    tensor = Tensor.__new__(Tensor)
    tensor._name, tensor._datatype, shape, tensor._offset, tensor._size = described
    tensor._shape = tuple(shape)
    tensor._data = data
    if not tensor._size:  # numpy rejects an offset past the buffer's end even for no elements
        tensor._data, tensor._offset = _NOTHING, 0
    tensor._array = None
    return tensor


def named(tensors: list[Tensor], name: Any) -> Tensor | None:
    """Return the one of `tensors` called `name`, or None."""
    for tensor in tensors:
        if tensor._name == name:
            return tensor
    return None


def write_tensor(
    tensor: Tensor, payload: Payload, lender: Line | None = None
) -> tuple[object, ...]:
    """Return the packet's description of `tensor`, and add its bytes to `payload`.

    Bytes in a block of `lender` are named instead. Raises TritonModelException if the elements
    cannot be encoded, or memory runs out.
    """
    data = data_of(tensor)
    if lender is not None and type(data) is np.ndarray and data.nbytes > LENT_BYTES:
        found = lender.find(data)
        if found is not None:
            block, at = found
            return tensor._name, tensor._datatype, tensor._shape, at, data.nbytes, block.offset
    return (tensor._name, tensor._datatype, tensor._shape, *payload.add(data))


def data_of(tensor: Tensor) -> Any:
    """Return the bytes of `tensor`, a C-contiguous buffer. Raises TritonModelException."""
    data: Any = tensor._array
    if tensor._data is not None:
        return tensor._bytes()
    if tensor._datatype == "BYTES":  # it has come, and was looked at
        return _encoded(tensor._name, data)
    try:
        if data.dtype != NUMPY[tensor._datatype]:
            data = np.ascontiguousarray(data, data.dtype.newbyteorder("<"))
        elif data.nbytes <= SMALL:
            data = data.tobytes()
        elif not data.flags.c_contiguous:
            data = np.ascontiguousarray(data)
    except Exception as error:
        raise TritonModelException(_unsendable(tensor._name, error)) from error
    return data


def _encoded(name: str, array: Any) -> bytes:
    try:
        return encode_strings(array)
    except Exception as error:
        raise TritonModelException(_unsendable(name, error)) from error


def _unsendable(name: str, error: Exception) -> str:
    return f"tensor '{name}' cannot be sent: {text_of(error)}"
