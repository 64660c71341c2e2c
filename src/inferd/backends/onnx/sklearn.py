"""ConvertedSklearn: scikit-learn models, converted to ONNX at load, or else run natively.

Converted, a small model takes 5 µs where scikit-learn takes 70 to 3000. A model that cannot be
converted, or gives different results on a few rows, is run by scikit-learn itself.
"""

from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import numpy as np

from inferd.backends.onnx.converted import ConvertedBackend
from inferd.backends.onnx.estimator import column_names, feature_count, load_estimator
from inferd.backends.onnx.settings import onnxruntime
from inferd.config.model import ModelConfig
from inferd.core.arrays import Array, ArrayInstance
from inferd.core.interfaces import Instance, ModelFiles, Placement
from inferd.core.signature import Declared, Signature, check_config
from inferd.errors import InvalidConfig, Unsupported
from inferd.tensor.dtype import DataType, datatype_of

INPUT, PREDICT, PROBABILITY, TRANSFORM = "input", "predict", "predict_proba", "transform"
"""The names of the tensors. Outputs are named after the estimator's methods; the configuration may
name the input."""

_RENAMED = {"label": PREDICT, "probabilities": PROBABILITY}
_TOLERANCE = 1e-4
_MAX_KNOWN = 1000
_MOST_TRIED = 64


class ConvertedSklearn(ConvertedBackend):
    """Runs .skops files, and pickles where the configuration allows them."""

    def __init__(self) -> None:
        super().__init__()
        for package in ("sklearn", "skl2onnx", "skops"):  # imported with the first model
            if find_spec(package) is None:
                raise ModuleNotFoundError(name=package)

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See Backend.complete. The input is FP32 [features], or BYTES [1] for texts."""
        try:
            return super().complete(files, config)
        except NotConvertible:
            signature = Native(load_estimator(files.file, config), config).signature
            return self._with_columns(files, self._complete_checked(config, signature))

    def open(self, files: ModelFiles, config: ModelConfig, placement: Placement) -> Instance:
        """See Backend.open."""
        try:
            return super().open(files, config, placement)
        except NotConvertible:
            native = Native(load_estimator(files.file, config), config)
            check_config(config, native.signature)
            return ArrayInstance(config, files.version, native.run)

    def _convert(self, files: ModelFiles, config: ModelConfig) -> bytes:
        estimator = load_estimator(files.file, config)
        self._note_columns(files, column_names(estimator))
        native = Native(estimator, config)
        if native.count is None:
            msg = "it does not tell how many features it takes"
            raise NotConvertible(msg)
        try:
            content = _onnx(native, native.count)
            _check_same(native, native.count, content)
        except NotConvertible:
            raise
        except Exception as error:
            raise NotConvertible(str(error)) from error
        return content


class NotConvertible(Unsupported):
    """The model must be run by scikit-learn itself."""


class Native:
    """An estimator run by scikit-learn.

    `count` is how many columns it takes, None if unknown. `takes_texts` is true if that is unknown
    and it takes texts rather than numbers.
    """

    def __init__(self, estimator: Any, config: ModelConfig) -> None:
        """Raises InvalidConfig if it cannot be determined what the estimator takes."""
        self.estimator = estimator
        self.count = feature_count(estimator)
        self.takes_texts = False
        self.input_name = config.input[0].name if config.input else INPUT
        # An estimator that only transforms, such as a scaler, is a model, too.
        self._main = PREDICT if callable(getattr(estimator, PREDICT, None)) else TRANSFORM
        rows = self._tried(config) if self.count is None else _zeros(self.count)
        self.outputs = [self._main, *([PROBABILITY] if _has_probabilities(estimator, rows) else [])]
        found = self._run(rows, self.outputs)
        datatype = DataType.BYTES if self.takes_texts else DataType.FP32
        width = 1 if self.takes_texts else self.count or -1
        taken = Declared(self.input_name, datatype.value, (-1, width), datatype)
        declared = {
            name: Declared(name, str(array.dtype), (-1, *array.shape[1:]), datatype_of(array.dtype))
            for name, array in zip(self.outputs, found, strict=True)
        }
        self.signature = Signature({self.input_name: taken}, {}, declared)

    def run(self, feed: dict[str, Array], names: Sequence[str]) -> Sequence[Array]:
        """Return the estimator's results, probabilities as FP32. See inferd.core.arrays.Run."""
        rows = feed[self.input_name]
        if self.takes_texts:
            rows = np.array([text.decode() for text in rows.ravel()], object)
        return self._run(rows, names)

    def _run(self, rows: Array, names: Sequence[str]) -> Sequence[Array]:
        arrays = []
        for name in names:
            if name == self._main:
                result = _dense(getattr(self.estimator, name)(rows))
                single = result.dtype == np.float64
                arrays.append(result.astype(np.float32) if single else _texts(result))
            else:
                arrays.append(np.asarray(self.estimator.predict_proba(rows), np.float32))
        return arrays

    def _tried(self, config: ModelConfig) -> Array:
        """Return a row that the estimator accepts, found by trial: it declares no inputs."""
        dims = config.input[0].dims if config.input else ()
        counts = [dims[-1]] if dims and dims[-1] > 0 else range(1, _MOST_TRIED + 1)
        is_text = bool(config.input) and config.input[0].datatype is DataType.BYTES
        numbers = [] if is_text else [_zeros(count) for count in counts]
        for row in (*numbers, np.array(["a"], object)):
            with suppress(Exception):  # any exception means that it does not take this row
                getattr(self.estimator, self._main)(row)
                self.takes_texts = row.ndim == 1
                return row
        msg = (
            f"a {type(self.estimator).__name__} does not tell how many features it takes, and "
            f"takes neither texts nor 1 to {_MOST_TRIED} numbers"
        )
        raise InvalidConfig(msg)


def _zeros(count: int) -> Array:
    return np.zeros((1, count), np.float32)


def _has_probabilities(estimator: Any, rows: Array) -> bool:
    """Return whether there is one array of probabilities: a multi-output estimator has a list."""
    if not callable(getattr(estimator, "predict_proba", None)):
        return False
    return not isinstance(estimator.predict_proba(rows), list)


def _dense(result: Any) -> Array:
    """Return an estimator's result as a dense array; many transform to sparse SciPy matrices."""
    return np.asarray(result.toarray() if hasattr(result, "toarray") else result)


def _texts(array: Array) -> Array:
    return array.astype(object) if array.dtype.kind in "US" else array


def _onnx(native: Native, count: int) -> bytes:
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType

    estimator = native.estimator
    model = convert_sklearn(
        estimator,
        initial_types=[(native.input_name, FloatTensorType([None, count]))],
        options={id(estimator): {"zipmap": False}} if hasattr(estimator, "classes_") else None,
        target_opset={"": 18, "ai.onnx.ml": 3},
    )
    renamed = {**_RENAMED, "variable": native.outputs[0]}
    names = {output.name: renamed.get(output.name, "") for output in model.graph.output}
    if not all(names.values()):
        msg = f"it has outputs {', '.join(names)}"
        raise NotConvertible(msg)
    for node in model.graph.node:
        node.output[:] = [names.get(name, name) for name in node.output]
        node.input[:] = [names.get(name, name) for name in node.input]
    for output in model.graph.output:
        output.name = names[output.name]
    content: bytes = model.SerializeToString()
    return content


def _check_same(native: Native, count: int, content: bytes) -> None:
    """Raise NotConvertible unless the converted model gives the same results for a few rows."""
    options = onnxruntime().SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime().InferenceSession(content, options, providers=["CPUExecutionProvider"])
    rows = np.random.default_rng(0).normal(size=(32, count)).astype(np.float32)
    known = getattr(native.estimator, "_fit_X", None)
    if isinstance(known, np.ndarray) and known.shape[1:] == rows.shape[1:]:
        # A neighbours model: among its training rows some are equally near, and order decides.
        rows = np.concatenate([rows, known[:_MAX_KNOWN].astype(np.float32)])
    feed = {native.input_name: rows}
    names = [output.name for output in session.get_outputs()]
    expected = native.run(feed, native.outputs)
    if names != native.outputs:
        msg = f"it gives {', '.join(names)}, not {', '.join(native.outputs)}"
        raise NotConvertible(msg)
    for name, got, wanted in zip(names, session.run(names, feed), expected, strict=True):
        same = (
            np.allclose(got.reshape(wanted.shape), wanted, rtol=_TOLERANCE, atol=_TOLERANCE)
            if wanted.dtype.kind == "f"
            else np.array_equal(got.reshape(wanted.shape), wanted)
        )
        if not same:
            msg = f"its {name} is not the same as scikit-learn's"
            raise NotConvertible(msg)
