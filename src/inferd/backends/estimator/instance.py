"""EstimatorInstance: one loaded model of scikit-learn, XGBoost, LightGBM or CatBoost.

What the library returns becomes the tensors of a response.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from threading import get_ident
from time import perf_counter_ns
from typing import Any

import numpy as np

from inferd.backends.estimator.model import PREDICT, LoadedModel, Method, thread_count
from inferd.backends.estimator.rows import is_same, rows_of
from inferd.config.model import ModelConfig, ModelOutput
from inferd.config.parameter import is_on, texts
from inferd.config.parameter_names import COLUMNS, FOUND_OUTPUTS
from inferd.core.request import InferRequest, InferResponse
from inferd.core.traits import InstanceTraits
from inferd.errors import BackendFailed, InferdError, InvalidConfig, InvalidRequest, foreign_text
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType, datatype_of
from inferd.tensor.tensor import Tensor, reshaped


class EstimatorInstance:
    """Runs requests one after another, each by itself. `verdict`: see inferd.core.rows."""

    def __init__(self, config: ModelConfig, version: int, model: LoadedModel) -> None:
        self._model = model
        self._name = config.name
        self._version = str(version)
        self._inputs = {tensor.name: tensor for tensor in config.input}
        self._order = list(self._inputs) if len(self._inputs) > 1 else texts(config, COLUMNS)
        self._outputs = {tensor.name: tensor for tensor in config.output}
        self._calls = {
            name: output.call for name, output in outputs_named(config, model.outputs).items()
        }
        # If the outputs were taken from the model, their datatypes are
        # guesses: answers keep their own.
        self._casts = not is_on(config, FOUND_OUTPUTS)
        self._threads = thread_count(config)
        self._limited: set[int] = set()
        self.traits = InstanceTraits(verdict=model.verdict)

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute."""
        # The limit is the calling thread's; looking a set up is all that later requests pay.
        if get_ident() not in self._limited:
            self._limit_threads()
        return [self._answer(request) for request in requests]

    def close(self) -> None:
        """See Instance.close."""
        # The methods are bound to the model, which is let go with them.
        self._calls.clear()

    def _answer(self, request: InferRequest) -> InferResponse | InferdError:
        names = [wanted.name for wanted in request.outputs] or list(self._outputs)
        try:
            inputs = [self._reshaped(tensor) for tensor in request.inputs]
            rows = rows_of(inputs, self._model, self._order)
            row_count = inputs[0].shape[0]
            request.computing_ns = perf_counter_ns()
            results = [self._calls[name](rows) for name in names]
            request.computed_ns = perf_counter_ns()
            outputs = [
                tensor_of(self._outputs[name], result, row_count, is_cast=self._casts)
                for name, result in zip(names, results, strict=True)
            ]
        except InferdError as error:
            error.args = (f"model '{self._name}': {error.message}",)
            return error
        # What libraries raise for rows that they do not take is the client's
        # mistake, anything else the model's.
        except self._model.faults as error:
            return self._failure(InvalidRequest, error)
        except Exception as error:  # noqa: BLE001  libraries raise anything
            return self._failure(BackendFailed, error)
        return InferResponse(request.model, self._version, request.id, outputs)

    def _failure(self, kind: type[InferdError], error: Exception) -> InferdError:
        failure = kind(f"model '{self._name}': {foreign_text(error)}")
        failure.__cause__ = error
        return failure

    def _reshaped(self, tensor: Tensor) -> Tensor:
        declared = self._inputs.get(tensor.name)
        if declared is None or declared.reshape is None:
            return tensor
        shape = reshaped(tensor.shape, declared.dims, declared.reshape)
        return Tensor(tensor.name, tensor.datatype, shape, tensor.data)

    def _limit_threads(self) -> None:
        """Limit the threads of OpenMP and BLAS, which OpenMP does for each calling thread."""
        self._limited.add(get_ident())
        if self._threads and find_spec("threadpoolctl") is not None:
            import_module("threadpoolctl").threadpool_limits(self._threads)


def outputs_named(config: ModelConfig, outputs: Mapping[str, Method]) -> dict[str, Method]:
    """Return the model's output for each name in the configuration.

    One name that is not the model's is another one for what it predicts. Raises InvalidConfig.
    """
    main = outputs.get(PREDICT) or next(iter(outputs.values()))
    named = {one.name: outputs.get(one.name) for one in config.output}
    unknown = [name for name, output in named.items() if output is None]
    if len(unknown) > 1 or (unknown and main.name in named):
        raise InvalidConfig(
            f"model '{config.name}': the configuration has output '{unknown[0]}', the model has "
            f"only {', '.join(repr(name) for name in outputs)}"
        )
    return {name: output or main for name, output in named.items()}


_NUMBERS = (bool, int, float)


def tensor_of(output: ModelOutput, result: Any, row_count: int, *, is_cast: bool) -> Tensor:
    """Return what a library returned for `output` of `row_count` rows; see `array_of`.

    With `is_cast` it gets the datatype that the configuration says. Raises BackendFailed for what
    the protocol, or that datatype, cannot hold.
    """
    array = array_of(result, output.name, row_count)
    try:
        datatype = datatype_of(array.dtype)
    except TypeError as error:
        raise BackendFailed(f"output '{output.name}': {error}") from error
    if is_cast and datatype is not output.datatype:
        array = _cast(array, output)
        datatype = output.datatype
    if output.reshape is not None:
        array = array.reshape(reshaped(array.shape, output.reshape, output.dims))
    return Tensor.from_numpy(output.name, array, datatype)


def array_of(result: Any, name: str, row_count: int) -> Array:
    """Return `result` as an array of shape [rows, ...], of two dims at least.

    Some estimators leave out the dim of the rows if there is one.

    Sparse matrices and data frames become dense, Python's objects the texts or numbers that they
    are. Raises BackendFailed.
    """
    # scipy's sparse matrices; np.asarray would wrap one in an array of a single object.
    if hasattr(result, "toarray"):
        result = result.toarray()
    try:
        array = np.asarray(result)
    except ValueError as error:  # rows of different lengths
        raise BackendFailed(f"the model gave output '{name}' as no array: {error}") from error
    # Clients of one row and of many read the same form; which dim is
    # missing is told by the number of rows.
    if array.ndim < 2:
        is_one_row = row_count == 1 and array.size > 1
        array = array.reshape(1, -1) if is_one_row else array.reshape(-1, 1)
    if array.dtype != object:
        return array
    elements = array.ravel().tolist()
    if all(isinstance(element, str | bytes) for element in elements):
        return array
    if all(isinstance(element, _NUMBERS) for element in elements):
        kinds = {type(element) for element in elements}
        # Objects, as pandas and label encoders leave them, although all are numbers.
        numbers = np.array(elements)
        # 1 and 2.5 may become floats together, but True must not become 1, nor 2**60 + 1 a float.
        if numbers.dtype != object and (len(kinds) == 1 or numbers.tolist() == elements):
            return numbers.reshape(array.shape)
    kinds_named = ", ".join(sorted({type(element).__name__ for element in elements}))
    msg = f"the model gave output '{name}' as Python objects ({kinds_named}), which no datatype has"
    raise BackendFailed(msg)


def _cast(array: Array, output: ModelOutput) -> Array:
    """Return `array` in the datatype of `output`: floats are rounded, all else stays the same.

    Raises BackendFailed for what would be another number.
    """
    wanted = output.datatype
    are_texts = array.dtype.kind in "OSU"
    if wanted is not DataType.BF16 and not are_texts and wanted is not DataType.BYTES:
        # What does not fit is seen by comparing, so NumPy's warning is noise.
        with np.errstate(all="ignore"):
            converted = array.astype(wanted.numpy)
        # A float that is rounded is the same answer to fewer digits; an
        # integer would be another label.
        are_floats = array.dtype.kind == converted.dtype.kind == "f"
        if are_floats or is_same(converted, array):
            return converted
    raise BackendFailed(
        f"the model gave output '{output.name}' as {array.dtype}, and not all of it can be "
        f"{wanted.value}, as its configuration says"
    )
