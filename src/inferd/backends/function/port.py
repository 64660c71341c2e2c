"""FunctionPort: one input or output of a function, converted between tensor and Python value."""

from typing import Any, Literal

import msgspec
import numpy as np

from inferd.errors import BackendFailed, InvalidRequest, foreign_text
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType, datatype_of
from inferd.tensor.tensor import Tensor, fits

Form = Literal["array", "list", "scalar"]

_RANKS = {"b": 0, "u": 1, "i": 1, "f": 2}
"""Kinds of numbers; each may be converted to one of the same or a higher rank."""


class FunctionPort(msgspec.Struct, frozen=True):
    """An input or output as the function sees it.

    `shape` is the shape of its array, including any batch dim. A `list` has one dim per nesting
    level, a `scalar` none. `kind` is the Python or numpy type of their elements.
    """

    name: str
    datatype: DataType
    shape: tuple[int, ...]
    form: Form = "array"
    kind: type = object
    is_batched: bool = False
    optional: bool = False

    @property
    def dims(self) -> tuple[int, ...]:
        """The dims in the configuration: without the batch, and at least one."""
        return self.shape[self.is_batched :] or (1,)

    def value(self, tensor: Tensor) -> Any:
        """Return the value for the function: if an array, a read-only view of `tensor`.

        Raises InvalidRequest for text that is not UTF-8.
        """
        if self.form != "array":
            elements = self._elements(tensor)
            if self.form == "scalar":
                return elements[0]
            return elements if len(self.shape) == 1 else self._nested(elements, tensor)
        # A declared dim of 1 stands for a scalar (dims), which the function takes without it.
        array = tensor.numpy().reshape(tensor.shape[: len(self.shape)])
        # It is the request's own memory, perhaps a client's shared region.
        array.flags.writeable = False
        return array

    def tensor(self, value: object, model: str) -> Tensor:
        """Return the function's `value` as a tensor. Raises BackendFailed, naming the output."""
        try:
            array = self._array(value)
            if self.is_batched and array.ndim == 1 and len(self.shape) == 2:
                array = array.reshape(-1, 1)  # one element per item of the batch
            if not array.size and isinstance(value, list | tuple):
                array = self._deepened(array)
            if not self._fits(array.shape):
                msg = f"has shape {list(array.shape)}, expected {list(self.shape or (1,))}"
                raise BackendFailed(msg)
            if array.ndim == self.is_batched:
                array = array.reshape((*array.shape, 1))
            return Tensor.from_numpy(self.name, array, self.datatype)
        except BackendFailed as error:
            reason = error.message
        except Exception as error:  # noqa: BLE001  whatever numpy, or the value itself, raises
            reason = f"cannot be {self.datatype.value}: {foreign_text(error)}"
        raise BackendFailed(f"model '{model}': output '{self.name}' {reason}")

    def _elements(self, tensor: Tensor) -> list[Any]:
        if self.datatype is not DataType.BYTES:
            flat = tensor.numpy().ravel()
            # list() keeps NumPy's scalars, tolist() makes Python's numbers of them.
            numbers: list[Any] = list(flat) if issubclass(self.kind, np.generic) else flat.tolist()
            return numbers
        if self.kind is bytes:
            return tensor.strings()
        try:
            return [element.decode() for element in tensor.strings()]
        except UnicodeDecodeError as error:
            msg = f"input '{self.name}' is text, and holds bytes that are not UTF-8"
            raise InvalidRequest(msg) from error

    def _nested(self, elements: list[Any], tensor: Tensor) -> list[Any]:
        # Filled element by element: np.array() would take bytes and texts for dtypes of their own.
        array = np.empty(len(elements), object)
        array[:] = elements
        nested: list[Any] = array.reshape(tensor.shape).tolist()
        return nested

    def _deepened(self, array: Array) -> Array:
        """Return an array of lists without elements, with all its dims.

        Missing inner lists have no length: their dims are as declared, 0 if variable.
        """
        rest = self.shape[array.ndim :]
        return array.reshape(*array.shape, *[max(size, 0) for size in rest])

    def _fits(self, shape: tuple[int, ...]) -> bool:
        if not self.shape:
            return shape in ((), (1,))  # clients see the second
        return fits(self.shape, shape)

    def _array(self, value: object) -> Array:
        if value is None:
            raise BackendFailed("is None")
        if self.datatype is DataType.BYTES:
            return self._strings(value)
        # What has a dtype has been made on purpose: it has to fit; lists and
        # numbers have none, and get the port's.
        if self.form == "array" and hasattr(value, "dtype"):
            return self._numbers(np.asarray(value))
        array = np.asarray(value)
        target = self.datatype.numpy
        # An empty list has float64 by NumPy's choice, which says nothing.
        if array.size and _RANKS.get(array.dtype.kind, 3) > _RANKS[target.kind]:
            raise BackendFailed(f"holds {array.dtype}, expected {self.datatype.value}")
        return np.asarray(value, target)

    def _numbers(self, array: Array) -> Array:
        """Return an array with its own dtype; a mismatch is an error, not rounded."""
        target = self.datatype.numpy
        # By its name: ml_dtypes' type, as JAX gives it, without importing ml_dtypes.
        if self.datatype is DataType.BF16 and array.dtype.name == "bfloat16":
            array = np.ascontiguousarray(array).view(target)
        if self.datatype is DataType.BF16 and array.dtype.name == "uint16":
            return array.astype(target, copy=False)
        if array.dtype.kind in "OSU" or datatype_of(array.dtype) is not self.datatype:
            raise BackendFailed(
                f"is an array of {array.dtype}, expected {self.datatype.value}; "
                f"convert it: .astype('{target.name}')"
            )
        return array.astype(target, copy=False)

    def _strings(self, value: object) -> Array:
        is_array = isinstance(value, np.ndarray)
        if self.form == "list" and not is_array and not isinstance(value, list | tuple):
            raise BackendFailed(f"is of type {type(value).__name__}, expected a list")
        array = np.asarray(value, object)
        for element in array.ravel():
            if not isinstance(element, str | bytes):
                kind = type(element).__name__
                raise BackendFailed(f"holds an element of type {kind}, expected str or bytes")
        return array
