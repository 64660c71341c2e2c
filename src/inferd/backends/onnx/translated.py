"""TranslatedBackend: models of libraries for tables that ask to be run as ONNX models."""

from dataclasses import replace
from typing import Protocol

from inferd.backends.onnx.backend import CPU
from inferd.backends.onnx.converted import ConvertedBackend
from inferd.compiled import override
from inferd.config.model import ModelConfig
from inferd.config.parameter_names import CONVERT_SAMPLE, TABLE
from inferd.core.interfaces import BackendContext, ModelFiles
from inferd.core.shared import fingerprint
from inferd.errors import InferdError

MOST_ROWS = 4096
"""The max_batch_size of a model that gives none; the library would take any number of rows."""


class ConvertingLibrary(Protocol):
    """A backend that can convert its models."""

    def connect(self, context: BackendContext) -> None:
        """See ConnectedBackend.connect."""

    def convert(self, files: ModelFiles, config: ModelConfig) -> bytes:
        """Return the model as ONNX, with the names and datatypes in `config`, or its own.

        Raises InferdError, also if it answers otherwise.
        """
        ...


class TranslatedBackend(ConvertedBackend):
    """Runs models of `library`, which converts them when they load, in ONNX Runtime."""

    def __init__(self, library: ConvertingLibrary) -> None:
        super().__init__()
        self._default_max_batch_size = MOST_ROWS
        self._library = library

    @override
    def connect(self, context: BackendContext) -> None:
        super().connect(context)
        self._library.connect(context)

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See Backend.complete. Requests have to be as metadata say: ONNX has no tables."""
        # The conversion reads it: a model that took a table with named columns gets a plain input.
        config = replace(config, parameters={**config.parameters, TABLE: "false"})
        loaded = self._load(files, config, CPU)
        completed = super().complete(files, config)
        self._load(files, completed, CPU, loaded)  # no need to convert again for what is found now
        return completed

    def _key(self, files: ModelFiles, config: ModelConfig) -> object:
        # The sample decides whether a conversion is accepted, so a changed one must convert again.
        sample = files.folder / config.parameters.get(CONVERT_SAMPLE, ".")
        return super()._key(files, config), fingerprint([sample] if sample.is_file() else [])

    def _convert(self, files: ModelFiles, config: ModelConfig) -> bytes:
        try:
            return self._library.convert(files, config)
        except InferdError as error:
            # The caller, _model, puts the model's name before every error of a conversion.
            error.args = (error.message.removeprefix(f"model '{config.name}': "),)
            raise
