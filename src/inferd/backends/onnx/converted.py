"""ConvertedBackend: models of other formats, converted to ONNX at load."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from inferd.backends.onnx.backend import OnnxBackend, fingerprint_beside
from inferd.backends.onnx.doors.guard import Guarded, guard
from inferd.config.model import CONTROL_TYPES, ModelConfig, ModelInput
from inferd.core.interfaces import ModelFiles
from inferd.errors import InferdError, InvalidConfig
from inferd.formats.onnx_model import OnnxPort


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


def read_bytes(files: ModelFiles, file: Path, limit: int) -> bytes:
    """Return the bytes of `file`. Raises InvalidConfig if it is missing or exceeds `limit`."""
    name = file.relative_to(files.folder)
    if not file.is_file():
        msg = f"there is no file '{name}', which belongs to the model"
        raise InvalidConfig(msg)
    # Asked before reading, so that a huge file costs no memory.
    size = file.stat().st_size
    if size > limit:
        msg = f"'{name}' has {size} bytes, more than {limit}"
        raise InvalidConfig(msg)
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
            msg = (
                f"the model's files do not tell type and dims of its input '{name}': "
                f"config.pbtxt has to list it"
            )
            raise InvalidConfig(msg)
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
