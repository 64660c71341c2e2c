"""ArrayInstance: an instance over any framework that takes arrays and gives arrays."""

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

import numpy as np

from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import BackendFailed, InferdError, foreign_text
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor, reshaped

Array = np.ndarray[Any, Any]

Run = Callable[[dict[str, Array], Sequence[str]], Sequence[Array]]
"""(input name -> array, output names) -> the arrays of these outputs, in their order.

BF16 are uint16 bit patterns, BYTES object arrays of `bytes`. An array it gives is the caller's: no
later call changes it. What it raises fails the one request.
"""


class ArrayInstance:
    """One loaded model, run by a function that knows its framework.

    `scalars` are tensors that have no dims in the framework and dims [1] in the configuration.
    `close` frees what the function needs. The function may be called in several threads at once,
    as far as the backend says that its instances may.
    """

    def __init__(
        self,
        config: ModelConfig,
        version: int,
        run: Run,
        *,
        scalars: frozenset[str] = frozenset(),
        close: Callable[[], None] | None = None,
    ) -> None:
        self._model = config.name
        self._version = str(version)
        self._run: Run | None = run
        self._close = close
        self._output_names = [output.name for output in config.output]
        self._readers = {t.name: _reader(t, is_scalar=t.name in scalars) for t in config.input}
        self._writers = {t.name: _writer(t, is_scalar=t.name in scalars) for t in config.output}

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute. Requests run one after another, each by itself."""
        return [self._answer(request) for request in requests]

    def close(self) -> None:
        """See Instance.close."""
        self._run = None
        close, self._close = self._close, None
        if close is not None:
            close()

    def _answer(self, request: InferRequest) -> InferResponse | InferdError:
        names = self._output_names
        if request.outputs and len(request.outputs) != len(names):
            names = [wanted.name for wanted in request.outputs]
        run, readers, writers = self._run, self._readers, self._writers
        assert run is not None  # closed only when nothing runs any more
        try:
            feed = {}
            for tensor in request.inputs:
                feed[tensor.name] = readers[tensor.name](tensor)
            request.computing_ns = perf_counter_ns()
            arrays = run(feed, names)
            request.computed_ns = perf_counter_ns()
            outputs = []
            for name, array in zip(names, arrays, strict=True):
                outputs.append(writers[name](array))
        except InferdError as error:
            return error
        except Exception as error:  # noqa: BLE001  frameworks raise what they like
            failure = BackendFailed(f"model '{self._model}': {foreign_text(error)}")
            failure.__cause__ = error
            return failure
        return InferResponse(request.model, self._version, request.id, outputs)


def _reader(tensor: ModelInput, *, is_scalar: bool) -> Callable[[Tensor], Array]:
    """Return how an input becomes the array the model takes."""
    if is_scalar:
        return lambda given: given.numpy().reshape(())
    if tensor.reshape is None:
        return Tensor.numpy
    dims, target = tensor.dims, tensor.reshape
    return lambda given: given.numpy().reshape(reshaped(given.shape, dims, target))


def _writer(tensor: ModelOutput, *, is_scalar: bool) -> Callable[[Array], Tensor]:
    """Return how an array the model gave becomes an output. That raises BackendFailed."""
    name, datatype, dims, target = tensor.name, tensor.datatype, tensor.dims, tensor.reshape
    dtype = datatype.numpy
    is_text = datatype is DataType.BYTES

    def write(array: Array) -> Tensor:
        if array.dtype != dtype and not (is_text and array.dtype.kind in "OSU"):
            msg = (
                f"the model gave output '{name}' as {array.dtype}, "
                f"its configuration says {datatype.value}"
            )
            raise BackendFailed(msg)
        if target is not None:
            array = array.reshape(reshaped(array.shape, target, dims))
        elif is_scalar and not array.shape:
            array = array.reshape(dims)
        return Tensor.from_numpy(name, array, datatype)

    return write
