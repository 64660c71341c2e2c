"""FilBackend: forests as Triton's FIL backend has them, converted to ONNX at load."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from inferd.backends.onnx.converted import ConvertedBackend, read_bytes
from inferd.config.model import ModelConfig
from inferd.config.parameter import MAX_SHOWN, is_on, number
from inferd.core.interfaces import ModelFiles
from inferd.errors import InferdError, InvalidConfig
from inferd.formats.trees.ensemble import CLASS, PAIR, VALUES, Ensemble, encode_ensemble
from inferd.formats.trees.lightgbm import read_lightgbm
from inferd.formats.trees.treelite import read_treelite
from inferd.formats.trees.xgboost import read_xgboost, read_xgboost_binary

INPUT, OUTPUT = "input__0", "output__0"
"""The default names of the tensors, those of Triton's FIL backend."""

_MAX_BYTES = (1 << 31) - 1


class _Format(NamedTuple):
    filename: str
    read: Callable[[bytes], Ensemble]


_FORMATS = {
    "xgboost": _Format("xgboost.model", read_xgboost_binary),
    "xgboost_json": _Format("xgboost.json", read_xgboost),
    "xgboost_ubj": _Format("xgboost.ubj", read_xgboost),
    "lightgbm": _Format("model.txt", read_lightgbm),
    "treelite_checkpoint": _Format("checkpoint.tl", read_treelite),
}
"""`model_type` -> the file's default name, and its reader."""


class FilBackend(ConvertedBackend):
    """Runs forests of XGBoost, LightGBM and Treelite (scikit-learn, cuML) as Triton's FIL does.

    Parameters: `model_type`, a key of _FORMATS; `is_classifier`, formerly `output_class`, to
    answer with class numbers; `predict_proba` to answer with probabilities; `threshold`, above
    which a probability means class 1. There is one input, FP32 [features], and one output, FP32.
    """

    def _key(self, files: ModelFiles, config: ModelConfig) -> object:
        # How it answers is written into the graph, so other parameters need another session.
        return super()._key(_with_file(files, config), config), _answer(config)

    def _convert(self, files: ModelFiles, config: ModelConfig) -> bytes:
        files = _with_file(files, config)
        content = read_bytes(files, files.file, _MAX_BYTES)
        name = str(files.file.relative_to(files.folder))
        try:
            ensemble = _format(config).read(content)
            _settle(ensemble, config)
            inputs = [tensor.name for tensor in config.input] or [INPUT]
            outputs = [tensor.name for tensor in config.output] or [OUTPUT]
            return encode_ensemble(ensemble, inputs[0], outputs[0])
        except InferdError as error:
            error.args = (f"'{name}': {error.message}",)
            raise


def _settle(ensemble: Ensemble, config: ModelConfig) -> None:
    """Have `ensemble` answer as the configuration asks; by default as the file says."""
    ensemble.answer, ensemble.threshold = _answer(config)
    # XGBoost's multi:softmax has answered with the class by itself; its scores are the same.
    if is_on(config, "predict_proba") and ensemble.transform == "argmax":
        ensemble.transform = "softmax"
    # Two numbers in the configuration, but the file has as many classes: those are the answer.
    if ensemble.answer == PAIR and len(ensemble.base) != 1:
        ensemble.answer = VALUES


def _answer(config: ModelConfig) -> tuple[str, float]:
    """Return the kind of answer to each row, and the threshold. Raises InvalidConfig."""
    threshold = number(config, "threshold", most=1.0, default=0.5)
    if is_on(config, "predict_proba"):
        # FIL gives the probabilities of both classes; a model with
        # one number keeps that of class 1.
        is_pair = bool(config.output) and config.output[0].dims == (2,)
        return PAIR if is_pair else VALUES, threshold
    is_classifier = is_on(config, "is_classifier", default=is_on(config, "output_class"))
    return CLASS if is_classifier else VALUES, threshold


def _with_file(files: ModelFiles, config: ModelConfig) -> ModelFiles:
    """Return `files` with the model file, named by the configuration, or else by `model_type`."""
    is_named = Path(config.default_model_filename or ".") != Path()
    if is_named:
        return files
    return msgspec.structs.replace(files, file=files.file / _format(config).filename)


def _format(config: ModelConfig) -> _Format:
    name = config.parameters.get("model_type") or "xgboost"
    if name not in _FORMATS:
        raise InvalidConfig(
            f"model '{config.name}': parameter model_type is '{name[:MAX_SHOWN]}', expected one of "
            f"{', '.join(_FORMATS)}"
        )
    return _FORMATS[name]
