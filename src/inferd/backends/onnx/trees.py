"""XgboostBackend and LightgbmBackend: tree ensembles, converted to ONNX at load."""

from collections.abc import Callable

from inferd.backends.onnx.converted import ConvertedBackend, read_bytes
from inferd.config.model import ModelConfig
from inferd.convert.trees.ensemble import Ensemble, encode_ensemble
from inferd.convert.trees.lightgbm import read_lightgbm
from inferd.convert.trees.xgboost import read_xgboost
from inferd.core.interfaces import ModelFiles
from inferd.errors import InferdError

INPUT, OUTPUT = "input__0", "output__0"
"""The default names of the tensors, those of Triton's FIL backend."""

_MAX_BYTES = (1 << 31) - 1


class TreesBackend(ConvertedBackend):
    """Base of both: one input, FP32 [features], and one output, FP32."""

    _read: Callable[[bytes], Ensemble]

    def _convert(self, files: ModelFiles, config: ModelConfig) -> bytes:
        content = read_bytes(files, files.file, _MAX_BYTES)
        name = str(files.file.relative_to(files.folder))
        try:
            ensemble = self._reader(config)(content)
            self._note_columns(files, ensemble.names)
            self._settle(ensemble, config)
            inputs = [tensor.name for tensor in config.input] or [INPUT]
            outputs = [tensor.name for tensor in config.output] or [OUTPUT]
            return encode_ensemble(ensemble, inputs[0], outputs[0])
        except InferdError as error:
            error.args = (f"'{name}': {error.message}",)
            raise

    def _reader(self, config: ModelConfig) -> Callable[[bytes], Ensemble]:
        """Return what reads the model's file."""
        del config
        return self._read

    def _settle(self, ensemble: Ensemble, config: ModelConfig) -> None:
        """Have `ensemble` answer as the configuration asks; by default as the file says."""


class XgboostBackend(TreesBackend):
    """Runs XGBoost's .ubj and .json files; XGBoost itself is not needed."""

    _read = staticmethod(read_xgboost)


class LightgbmBackend(TreesBackend):
    """Runs LightGBM's text files; LightGBM itself is not needed."""

    _read = staticmethod(read_lightgbm)
