"""EstimatorBackend: the base of backends whose models a library for tables runs itself."""

from dataclasses import replace
from importlib.util import find_spec

from inferd.backends.estimator.file import ALLOW_PICKLE
from inferd.backends.estimator.instance import EstimatorInstance, outputs_named
from inferd.backends.estimator.model import PREDICT, PROBABILITY, THREADS, LoadedModel
from inferd.compiled import override
from inferd.config.model import ModelConfig
from inferd.config.parameter_names import (
    ANY_INPUT_NAME,
    DEFAULT_OUTPUTS,
    FOUND_OUTPUTS,
    MODEL_CLASS,
    TABLE,
    TRUSTED,
)
from inferd.core.completing import CompletingBackend
from inferd.core.interfaces import BackendContext, Instance, ModelFiles, Placement
from inferd.core.offline import OfflineReport
from inferd.core.signature import Declared, Signature, complete_config
from inferd.errors import InferdError
from inferd.tensor.dtype import DataType

INPUT = "input"
"""The default name of the input."""

_USUAL = (PREDICT, PROBABILITY)
"""The outputs of a request that names none, of a model that has more."""

_SETTINGS = (THREADS, ALLOW_PICKLE, TRUSTED, ANY_INPUT_NAME, DEFAULT_OUTPUTS, MODEL_CLASS)
"""The parameters that --backend-config may give to all models that do not say otherwise."""


class EstimatorBackend(CompletingBackend):
    """Completes configurations from models, and opens them; `packages` are those it needs."""

    packages: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        for package in self.packages:  # imported with the first model
            # Asked without importing, which takes scikit-learn seconds: a
            # missing package is still refused at once.
            if find_spec(package) is None:
                raise ModuleNotFoundError(name=package)
        self._usual: dict[str, str] = {}

    @override
    def connect(self, context: BackendContext) -> None:
        super().connect(context)
        # Only these: other settings of --backend-config are for the server and
        # would be unknown parameters of a model.
        self._usual = {key: context.settings[key] for key in _SETTINGS if key in context.settings}

    def complete_alone(self, files: ModelFiles, config: ModelConfig) -> ModelConfig | None:
        """Return `config` completed without the library, None if the model has to be loaded."""
        del files
        is_whole = config.input and config.output
        return _as_table(self._with_usual(config)) if is_whole else None

    def read_offline(self, files: ModelFiles, config: ModelConfig) -> OfflineReport:
        """See OfflineBackend.read_offline: without the library no file tells anything."""
        del files
        config = self._with_usual(config)
        return OfflineReport(config, is_complete=bool(config.input and config.output))

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See Backend.complete.

        The input is FP32 [features], or BYTES [1] for texts. Outputs are those that the model can
        compute.
        """
        config = self._with_usual(config)
        return completed(config, self.load(files, config), self._default_max_batch_size)

    def open(self, files: ModelFiles, config: ModelConfig, placement: Placement) -> Instance:
        """See Backend.open."""
        del placement
        return EstimatorInstance(config, files.version, self.load(files, config))

    def load(self, files: ModelFiles, config: ModelConfig) -> LoadedModel:
        """Return the model as its library loads it. Raises InferdError."""
        try:
            return self._read(files, self._with_usual(config))
        except InferdError as error:
            error.args = (f"model '{config.name}': {error.message}",)
            raise

    def _with_usual(self, config: ModelConfig) -> ModelConfig:
        """Return `config` with the parameters that --backend-config has for all models."""
        return replace(config, parameters={**self._usual, **config.parameters})

    def _read(self, files: ModelFiles, config: ModelConfig) -> LoadedModel:
        """Return the model in the file. Raises InferdError."""
        raise NotImplementedError


def completed(config: ModelConfig, model: LoadedModel, default_max_batch_size: int) -> ModelConfig:
    """Return `config` with what it leaves out, as `model` tells it. Raises InvalidConfig."""
    features = model.features
    name = config.input[0].name if config.input else INPUT
    # FP32 by default, which scikit-learn's trees and XGBoost compute
    # in; a configuration may say FP64.
    datatype = DataType.BYTES if features.are_texts else DataType.FP32
    width = 1 if features.are_texts else features.width or -1
    taken = Declared(name, datatype.value, (-1, width), datatype)
    given = {
        output.name: Declared(
            output.name, output.datatype.value, (-1, *output.dims), output.datatype
        )
        for output in model.outputs.values()
    }
    whole = complete_config(config, Signature({name: taken}, {}, given), default_max_batch_size)
    # Only for its check: a name that the model lacks is refused at load, not with each request.
    outputs_named(whole, model.outputs)
    parameters = {**whole.parameters}
    if features.width == len(features.names) == 1 and not config.input:
        parameters.setdefault(ANY_INPUT_NAME, "true")  # a table of one column has that one's name
    if not config.output:
        parameters.setdefault(FOUND_OUTPUTS, "true")
        # decision_function and the like cost a pass over the model each, and few clients read them.
        usual = [output for output in _USUAL if output in model.outputs]
        named = parameters.get(DEFAULT_OUTPUTS, "").split(",")
        if not any(name in model.outputs for name in named):  # settings may be for other models
            parameters.pop(DEFAULT_OUTPUTS, None)
            if usual and len(usual) < len(model.outputs):
                parameters[DEFAULT_OUTPUTS] = ",".join(usual)
    return _as_table(replace(whole, parameters=parameters))


def _as_table(config: ModelConfig) -> ModelConfig:
    """Return `config`, saying that rows are passed on as they come, unless it says otherwise."""
    if config.parameters.get(TABLE):
        return config
    return replace(config, parameters={**config.parameters, TABLE: "true"})
