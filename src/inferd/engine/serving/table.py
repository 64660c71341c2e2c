"""TableInput: rows that arrive with one column per input, as MLServer's clients send tables.

A model with the TABLE parameter has one input, rows of numbers. Numbers of other datatypes than its
own are converted, and a model of one column takes shape [rows], too. What does not fit is left as
it is, for the check of requests to refuse.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from inferd.config.model import ModelConfig
from inferd.config.parameter import TABLE
from inferd.core.arrays import Array
from inferd.errors import InvalidConfig, InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.halves import bf16_to_float32
from inferd.tensor.tensor import Tensor

_ROW_DIMS = 2  # of a table: rows, columns

_SHOWN = 10

_names = msgspec.json.Decoder(list[str]).decode


class TableInput:
    """The one input of a model, as a table; `columns` are their names, where they are known."""

    def __init__(
        self, name: str, datatype: DataType, width: int, columns: Sequence[str] = ()
    ) -> None:
        self._name = name
        self._datatype = datatype
        self._width = width
        self._columns = columns

    def input_of(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return the one input made of `inputs`, at least one tensor. Raises InvalidRequest."""
        if len(inputs) > 1:
            return self._joined(inputs)
        [tensor] = inputs
        shape = tensor.shape
        if len(shape) == 1 and self._width == 1:
            shape = (*shape, 1)
        if tensor.datatype is self._datatype or DataType.BYTES in (tensor.datatype, self._datatype):
            return Tensor(tensor.name, tensor.datatype, shape, tensor.data, tensor.parameters)
        array = _numbers(tensor).astype(self._datatype.numpy)
        return Tensor(tensor.name, self._datatype, shape, array, tensor.parameters)

    def _joined(self, inputs: Sequence[Tensor]) -> Tensor:
        columns = [self._column(tensor) for tensor in self._in_order(inputs)]
        counts = {len(column) for column in columns}
        if len(counts) > 1:
            shapes = ", ".join(
                f"'{tensor.name}' {list(tensor.shape)}" for tensor in inputs[:_SHOWN]
            )
            msg = f"the columns of a table have as many rows each, these are {shapes}"
            raise InvalidRequest(msg)
        whole = np.concatenate(columns, axis=1)
        if self._datatype is DataType.BYTES:
            return Tensor.from_numpy(self._name, whole, self._datatype)
        return Tensor(self._name, self._datatype, whole.shape, whole)

    def _column(self, tensor: Tensor) -> Array:
        if (tensor.datatype is DataType.BYTES) is not (self._datatype is DataType.BYTES):
            msg = (
                f"column '{tensor.name}' has datatype {tensor.datatype.value}, the model takes "
                f"{self._datatype.value}"
            )
            raise InvalidRequest(msg)
        if not 1 <= len(tensor.shape) <= _ROW_DIMS:
            msg = f"column '{tensor.name}' has shape {list(tensor.shape)}, expected [rows]"
            raise InvalidRequest(msg)
        array = _numbers(tensor).astype(self._datatype.numpy, copy=False)
        return array.reshape(len(array), -1) if array.ndim == 1 else array

    def _in_order(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return `inputs` in the order of the model's columns, where their names are known."""
        if not self._columns:
            return inputs
        by_name = {_plain(tensor.name): tensor for tensor in inputs}
        names = [_plain(name) for name in self._columns]
        if by_name.keys() != set(names) or len(inputs) != len(names):
            has = ", ".join(f"'{tensor.name}'" for tensor in inputs[:_SHOWN])
            takes = ", ".join(f"'{name}'" for name in self._columns[:_SHOWN])
            msg = f"the request has the columns {has}, the model takes {takes}, each once"
            raise InvalidRequest(msg)
        return [by_name[name] for name in names]


def table_of(config: ModelConfig) -> TableInput | None:
    """Return the TableInput of a model, None if it takes none. Raises InvalidConfig."""
    said = config.parameters.get(TABLE)
    if not said or said == "false" or len(config.input) != 1:
        return None
    [one] = config.input
    width = one.dims[-1] if one.dims else 1
    if said == "true":
        return TableInput(one.name, one.datatype, width)
    try:
        names = _names(said)
    except msgspec.MsgspecError as error:
        msg = f"model '{config.name}': parameter {TABLE} is no list of columns: {error}"
        raise InvalidConfig(msg) from error
    return TableInput(one.name, one.datatype, width, names)


def _plain(name: str) -> str:
    """Return `name` as LightGBM stores it, which allows no spaces in names."""
    return name.replace(" ", "_")


def _numbers(tensor: Tensor) -> Array:
    array = tensor.numpy()
    return bf16_to_float32(array) if tensor.datatype is DataType.BF16 else array
