"""EstimatorInstance: one loaded model of scikit-learn, XGBoost, LightGBM or CatBoost."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from threading import get_ident
from time import perf_counter_ns

from inferd.backends.estimator.answer import tensor_of
from inferd.backends.estimator.model import PREDICT, LoadedModel, Method, thread_count
from inferd.backends.estimator.rows import rows_of
from inferd.config.model import ModelConfig
from inferd.config.parameter import is_on, texts
from inferd.config.parameter_names import COLUMNS, FOUND_OUTPUTS
from inferd.core.request import InferRequest, InferResponse
from inferd.core.traits import InstanceTraits
from inferd.errors import BackendFailed, InferdError, InvalidConfig, InvalidRequest, foreign_text
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
        msg = (
            f"model '{config.name}': the configuration has output '{unknown[0]}', the model has "
            f"only {', '.join(repr(name) for name in outputs)}"
        )
        raise InvalidConfig(msg)
    return {name: output or main for name, output in named.items()}
