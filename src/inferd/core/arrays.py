"""ArrayInstance: an instance for any framework that takes and returns arrays."""

from collections.abc import Callable, Sequence
from time import perf_counter_ns

import numpy as np

from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.request import InferRequest, InferResponse
from inferd.core.rows import UNKNOWN, Verdict
from inferd.core.traits import InstanceTraits
from inferd.errors import BackendFailed, InferdError, foreign_text
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor, reshaped

# numpy's arrays of any dtype and shape: a backend's function knows which.

Run = Callable[[dict[str, Array], Sequence[str]], Sequence[Array]]
"""(input name -> array, output names) -> the arrays of these outputs, in their order.

BF16 are uint16 bit patterns, BYTES object arrays of `bytes`. The caller owns the arrays returned:
no later call changes them. What it raises fails that one request.
"""

_array = np.ndarray  # looking up names in numpy is slow, since it makes some of them on demand
_contiguous = np.ascontiguousarray


class ArrayInstance:
    """One loaded model, run by a framework-specific function.

    `scalars` are tensors that have no dims in the framework and dims [1] in the configuration.
    `verdict` is what is known of its rows. `close` frees what the function needs. If the backend
    `is_concurrent`, the function may be called in several threads at once.
    """

    def __init__(
        self,
        config: ModelConfig,
        version: int,
        run: Run,
        *,
        scalars: frozenset[str] = frozenset(),
        verdict: Verdict = UNKNOWN,
        close: Callable[[], None] | None = None,
    ) -> None:
        # What its file says of the rows is known of each instance, not of the backend.
        self.traits = InstanceTraits(verdict=verdict)
        self._model = config.name
        self._version = str(version)
        self._run: Run | None = run
        self._close = close
        self._output_names = [output.name for output in config.output]
        # Found once: a request compares with the dtype by identity, which is much faster than
        # dtypes' ==.
        self._kinds = {t.name: (t.datatype, t.datatype.numpy) for t in config.output}
        # Tensors whose wire bytes are their array have no reader or writer.
        self._readers = {t.name: _reader(t, scalars) for t in config.input if _is_odd(t, scalars)}
        self._writers = {t.name: _writer(t, scalars) for t in config.output if _is_odd(t, scalars)}

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute. Requests run one after another, each by itself."""
        # A tuple of one, since nearly all calls have one request.
        if len(requests) == 1:
            return (self._answer(requests[0]),)
        return [self._answer(request) for request in requests]

    def close(self) -> None:
        """See Instance.close."""
        # Frameworks free the model with the last reference to it, which the function holds.
        self._run = None
        close, self._close = self._close, None
        if close is not None:
            close()

    def _answer(self, request: InferRequest) -> InferResponse | InferdError:
        names = self._output_names
        # As many outputs as there are: they are all of them, in an order that does not matter.
        if request.outputs and len(request.outputs) != len(names):
            names = [wanted.name for wanted in request.outputs]
        # Attributes are read once for each request instead of once for each tensor.
        run, readers, writers = self._run, self._readers, self._writers
        assert run is not None  # closed only when nothing runs any more
        try:
            feed = {}
            for tensor in request.inputs:
                name = tensor.name
                if name in readers:
                    feed[name] = readers[name](tensor)
                # The framework gets a view of the body that was received.
                else:
                    feed[name] = _array(tensor.shape, tensor.datatype.numpy, tensor.data)
            request.computing_ns = perf_counter_ns()
            arrays = run(feed, names)
            request.computed_ns = perf_counter_ns()
            if len(arrays) != len(names):
                raise _miscounted(arrays, names)
            outputs = []
            for index, name in enumerate(names):  # zip() is slower
                array = arrays[index]
                if name in writers:
                    outputs.append(writers[name](array))
                    continue
                datatype, dtype = self._kinds[name]
                # Identity first; equal dtypes are usually the same object.
                if array.dtype is not dtype and array.dtype != dtype:
                    raise _wrong_type(name, array, datatype)
                # Returns the array itself if it is C-contiguous, as the wire needs it.
                outputs.append(Tensor(name, datatype, array.shape, _contiguous(array)))
        except InferdError as error:
            return error
        except Exception as error:  # noqa: BLE001  frameworks raise anything
            failure = BackendFailed(f"model '{self._model}': {foreign_text(error)}")
            # Set here, since the error is returned and not raised.
            failure.__cause__ = error
            return failure
        return InferResponse(request.model, self._version, request.id, outputs)


def _is_odd(tensor: ModelInput | ModelOutput, scalars: frozenset[str]) -> bool:
    """Tell whether a tensor's array is more than a view of its bytes."""
    is_text = tensor.datatype is DataType.BYTES
    return is_text or tensor.reshape is not None or tensor.name in scalars


def _reader(tensor: ModelInput, scalars: frozenset[str]) -> Callable[[Tensor], Array]:
    """Return a function that turns an input into the array the model takes."""
    if tensor.name in scalars:
        return lambda given: given.numpy().reshape(())
    if tensor.reshape is None:
        return Tensor.numpy
    dims, target = tensor.dims, tensor.reshape
    return lambda given: given.numpy().reshape(reshaped(given.shape, dims, target))


def _writer(tensor: ModelOutput, scalars: frozenset[str]) -> Callable[[Array], Tensor]:
    """Return a function that makes an array of the model an output, or raises BackendFailed."""
    # Read here, not in each call of `write`.
    name, datatype, dims, target = tensor.name, tensor.datatype, tensor.dims, tensor.reshape
    is_text, is_scalar = datatype is DataType.BYTES, name in scalars
    is_declared = tensor.is_declared  # in a model that batches: only there a file needs a reshape

    def write(array: Array) -> Tensor:
        # Frameworks give texts as objects, bytes or str; from_numpy makes BYTES of all three.
        if array.dtype != datatype.numpy and not (is_text and array.dtype.kind in "OSU"):
            raise _wrong_type(name, array, datatype)
        # A reshape from the file is applied to the dims that the file has; if the model gives
        # others, clients get these (docs/decisions/0033-declared-shapes.md).
        if target is not None and (not is_declared or array.ndim == 1 + len(target)):
            array = array.reshape(reshaped(array.shape, target, dims))
        elif is_scalar and not array.shape:
            array = array.reshape(dims)
        return Tensor.from_numpy(name, array, datatype)

    return write


def _miscounted(arrays: Sequence[Array], names: Sequence[str]) -> BackendFailed:
    return BackendFailed(f"the model gave {len(arrays)} outputs, {len(names)} were asked for")


def _wrong_type(name: str, array: Array, datatype: DataType) -> BackendFailed:
    return BackendFailed(
        f"the model gave output '{name}' as {array.dtype}, its configuration says {datatype.value}"
    )
