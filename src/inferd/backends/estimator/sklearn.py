"""SklearnBackend: estimators of scikit-learn, and of libraries that follow its interface."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from inferd.backends.estimator.backend import EstimatorBackend
from inferd.backends.estimator.boosters import catboost_model, lightgbm_model, xgboost_model
from inferd.backends.estimator.file import check_pickle, read_estimator
from inferd.backends.estimator.model import (
    LOG_PROBABILITY,
    PREDICT,
    PROBABILITY,
    Columns,
    Features,
    LoadedModel,
    Method,
    by_name,
    thread_count,
)
from inferd.backends.estimator.parts import parts_of, verdict_on
from inferd.backends.estimator.rows import framed, has_pandas, stacked
from inferd.config.model import ModelConfig
from inferd.core.interfaces import ModelFiles
from inferd.core.offline import OfflineReport
from inferd.errors import BackendFailed, Unsupported
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType, datatype_of

_METHODS = (
    PREDICT,
    PROBABILITY,
    LOG_PROBABILITY,
    "decision_function",
    "transform",
    "score_samples",
)
"""What an estimator may be able to do, each an output of that name."""

_PER_TARGET = (PROBABILITY, LOG_PROBABILITY)
"""Methods that return a list, an array for each target, if there are several targets."""


_COUNTED = "x"
"""How scikit-learn begins the names of columns that have none."""

_OF_LIBRARY = {
    "xgboost": xgboost_model,
    "lightgbm": lightgbm_model,
    "catboost": catboost_model,
}
"""Libraries whose classes for scikit-learn know more of their rows than scikit-learn's do."""


class SklearnBackend(EstimatorBackend):
    """Runs .skops files, and pickles where the configuration allows them."""

    packages = ("sklearn", "skops")

    def read_offline(self, files: ModelFiles, config: ModelConfig) -> OfflineReport:
        """See OfflineBackend.read_offline: a pickle must be allowed."""
        report = super().read_offline(files, config)
        check_pickle(files.file, report.config)
        return report

    def _read(self, files: ModelFiles, config: ModelConfig) -> LoadedModel:
        estimator = read_estimator(files.file, config)
        root = type(estimator).__module__.partition(".")[0]
        model_of = _OF_LIBRARY.get(root)
        if model_of is None:
            return sklearn_model(estimator)
        return model_of(estimator, thread_count(config))


def sklearn_model(estimator: object) -> LoadedModel:
    """Return `estimator` as a model. Raises Unsupported if it needs pandas, which is missing."""
    features = _features(estimator)
    is_framed = bool(features.names) and has_pandas()
    if not is_framed and _selects_by_name(estimator):
        raise Unsupported(
            "a ColumnTransformer in it selects columns by name, which needs the Python package "
            "'pandas': pip install 'inferd[pandas]'"
        )

    def rows(array: Array) -> Any:
        # Without names of its own a model takes arrays, and warns of data frames.
        if not is_framed or array.ndim != 2 or array.shape[1] != len(features.names):
            return array
        return framed(dict(zip(features.names, array.T, strict=True)))

    def table(columns: Columns) -> Any:
        # Names that the model does not know may still be what it selects by.
        return framed(columns) if is_framed else stacked(columns)

    return LoadedModel(
        by_name(*(output for name in _METHODS for output in _outputs(estimator, name))),
        features,
        rows,
        table,
        (ValueError, TypeError),
        verdict_on(estimator),
        estimator,
    )


def _features(estimator: Any) -> Features:
    count = _attribute(estimator, "n_features_in_")
    names = _attribute(estimator, "feature_names_in_")
    return Features(
        int(count) if isinstance(count, int | np.integer) else None,
        () if names is None else tuple(str(name) for name in names),
        _takes_texts(estimator),
        _COUNTED,
    )


def _attribute(estimator: Any, name: str) -> Any:
    """Return an attribute, None if it is missing or cannot be computed."""
    try:
        return getattr(estimator, name, None)
    except Exception:  # noqa: BLE001  properties of pipelines raise what their steps do
        return None


def _takes_texts(estimator: Any) -> bool:
    """Tell whether the first step makes numbers of texts, one in each row."""
    steps = getattr(estimator, "steps", None)
    # Pipelines may begin with pipelines.
    while steps:
        estimator = steps[0][1]
        steps = getattr(estimator, "steps", None)
    # Late: read_estimator has imported scikit-learn by now, and nothing else may.
    from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer

    return isinstance(estimator, CountVectorizer | HashingVectorizer)


def _selects_by_name(estimator: object) -> bool:
    from sklearn.compose import ColumnTransformer

    return any(
        isinstance(column, str)
        for part in parts_of(estimator)
        if isinstance(part, ColumnTransformer)
        for _, _, columns in part.transformers
        for column in ([columns] if isinstance(columns, str) else np.atleast_1d(columns).tolist())
    )


def _outputs(estimator: Any, name: str) -> list[Method]:
    """Return the outputs that a method gives: none if it is missing, one for each target."""
    method = _attribute(estimator, name)
    if not callable(method):
        return []
    classes = _attribute(estimator, "classes_")
    # With several targets, classes_ is a list of arrays (scikit-learn, multioutput).
    if name in _PER_TARGET and isinstance(classes, list):
        return [
            Method(
                f"{name}_{n}" if len(classes) > 1 else name,
                DataType.FP64,
                (len(some),),
                partial(_target, method, n),
            )
            for n, some in enumerate(classes)
        ]
    datatype, width = _expected(estimator, name, classes)
    return [Method(name, datatype, (width,), method)]


def _target(method: Callable[[object], object], number: int, rows: object) -> object:
    """Return what `method` gives for one of several targets."""
    result = method(rows)
    if isinstance(result, list):
        return result[number]
    return np.asarray(result)[:, number]  # a stack of classifiers: of each target, one column


def _expected(estimator: Any, name: str, classes: Any) -> tuple[DataType, int]:
    """Return datatype and width of an output as far as the estimator tells; FP64 and -1 if not."""
    if name == PREDICT:
        return _kind_of_predictions(estimator, classes), _targets(estimator, classes)
    if name in _PER_TARGET and isinstance(classes, np.ndarray):
        return DataType.FP64, len(classes)
    # For two classes there is one score, not two.
    if name == "decision_function" and (classes is None or len(classes) == 2):
        return DataType.FP64, 1
    if name == "transform":
        try:
            return DataType.FP64, len(estimator.get_feature_names_out()) or -1
        except Exception:  # noqa: BLE001  many cannot tell, each in its own way
            return DataType.FP64, -1
    return DataType.FP64, 1 if name == "score_samples" else -1


def _kind_of_predictions(estimator: object, classes: object) -> DataType:
    labels = classes if classes is not None else _attribute(estimator, "labels_")
    if isinstance(labels, list) and labels:
        # One label of each target: they decide the datatype, and together they get the common one.
        labels = np.concatenate([np.asarray(some).ravel()[:1] for some in labels])
    if not isinstance(labels, np.ndarray) or not labels.size:
        return DataType.FP64
    labels = np.asarray(labels.ravel()[:1].tolist()) if labels.dtype == object else labels
    try:
        return datatype_of(labels.dtype)
    except TypeError as error:
        raise BackendFailed(f"its classes: {error}") from error


def _targets(estimator: object, classes: object) -> int:
    """Return for how many targets it predicts, -1 if it does not tell."""
    count = _attribute(estimator, "n_outputs_")
    if isinstance(count, int | np.integer):
        return int(count)
    if isinstance(classes, list):
        return len(classes)
    coefficients = _attribute(estimator, "coef_")
    if classes is None and isinstance(coefficients, np.ndarray):
        # A row of coefficients for each target (LinearRegression.coef_).
        return 1 if coefficients.ndim == 1 else len(coefficients)
    return -1
