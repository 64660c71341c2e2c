"""ConvertedBackend: models of other formats, converted to ONNX at load.

TranslatedBackend does so with models of libraries for tables that ask to be run as ONNX models.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from inferd.backends.onnx.backend import CPU, OnnxBackend, fingerprint_beside
from inferd.backends.onnx.doors.guard import Guarded, guard
from inferd.compiled import override
from inferd.config.model import CONTROL_TYPES, ModelConfig, ModelInput
from inferd.config.parameter_names import CONVERT_SAMPLE, TABLE
from inferd.core.interfaces import BackendContext, ModelFiles
from inferd.core.shared import fingerprint
from inferd.errors import InferdError, InvalidConfig
from inferd.formats.onnx_model import OnnxPort

MOST_ROWS = 4096
"""The max_batch_size of a model that gives none; the library would take any number of rows."""


class ConvertedBackend(OnnxBackend):
    """Base of the backends that convert: the configuration is part of the model.

    Most formats do not declare the types and dims of inputs, which then come from the
    configuration.
    """

    def _key(self, files: ModelFiles, config: ModelConfig) -> Any:
        # Reloaded with other dims, the same file is another graph.
        configured = (config.input, config.output, config.max_batch_size, config.batch_input)
        beside = fingerprint_beside(files.file)
        return type(self).__name__, beside, configured, config.sequence_batching

    def _model(self, files: ModelFiles, config: ModelConfig) -> Guarded:
        try:
            content = self._convert(files, config)
            found = guard(memoryview(content), files.file.name)
            return found._replace(content=found.content or content)
        except InferdError as error:
            error.args = (f"model '{config.name}': {error.message}",)
            raise

    def _convert(self, files: ModelFiles, config: ModelConfig) -> bytes:
        """Return the model as ONNX. Raises InferdError naming the file and its part."""
        raise NotImplementedError


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


def read_bytes(files: ModelFiles, file: Path, limit: int) -> bytes:
    """Return the bytes of `file`. Raises InvalidConfig if it is missing or exceeds `limit`."""
    name = file.relative_to(files.folder)
    if not file.is_file():
        raise InvalidConfig(f"there is no file '{name}', which belongs to the model")
    # Asked before reading, so that a huge file costs no memory.
    size = file.stat().st_size
    if size > limit:
        raise InvalidConfig(f"'{name}' has {size} bytes, more than {limit}")
    return file.read_bytes()


def input_ports(
    config: ModelConfig, names: Iterable[str], inferred: Mapping[str, OnnxPort]
) -> list[OnnxPort]:
    """Return the inputs called `names`, from the configuration, or else from `inferred`.

    Raises InvalidConfig if neither has one of them.
    """
    configured = _configured(config)
    ports = []
    for name in names:
        port = configured.get(name) or inferred.get(name)
        if port is None:
            raise InvalidConfig(
                f"the model's files do not tell type and dims of its input '{name}': "
                f"config.pbtxt has to list it"
            )
        ports.append(port)
    return ports


def _configured(config: ModelConfig) -> dict[str, OnnxPort]:
    batch = (-1,) if config.max_batch_size > 0 else ()
    ports = {tensor.name: _port(tensor, batch) for tensor in config.input}
    for made in config.batch_input:
        for name in made.target_name:
            # The batcher makes one for the whole batch; its dims depend on the kind
            # (config.pbtxt, batch_input), so the graph leaves them open.
            ports[name] = OnnxPort(name, made.datatype, None)
    if config.sequence_batching:
        for one in config.sequence_batching.control_input:
            for control in one.control:
                kinds = [kind for field, kind in CONTROL_TYPES.items() if getattr(control, field)]
                datatype = control.datatype or next(iter(kinds), None)
                # An author may have listed it among the inputs, with dims that are more precise.
                ports.setdefault(one.name, OnnxPort(one.name, datatype, (*batch, 1)))
        for state in config.sequence_batching.state:
            name = state.input_name
            ports.setdefault(name, OnnxPort(name, state.datatype, (*batch, *state.dims)))
    return ports


def _port(tensor: ModelInput, batch: tuple[int, ...]) -> OnnxPort:
    if tensor.allow_ragged_batch:  # the scheduler gives it a shape of its own
        return OnnxPort(tensor.name, tensor.datatype, None)
    dims = tensor.dims if tensor.reshape is None else tensor.reshape
    return OnnxPort(tensor.name, tensor.datatype, batch + dims)
