"""CatboostBackend: CatBoost's own files, run as the class that their loss function belongs to."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from inferd.backends.estimator.backend import EstimatorBackend
from inferd.backends.estimator.model import (
    LOG_PROBABILITY,
    PREDICT,
    PROBABILITY,
    Features,
    LoadedModel,
    Method,
    Unreadable,
    by_name,
    counted_names,
    thread_count,
)
from inferd.backends.estimator.rows import framed
from inferd.config.model import ModelConfig
from inferd.config.parameter_names import MODEL_CLASS
from inferd.core.interfaces import ModelFiles
from inferd.core.rows import INDEPENDENT, Verdict
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType, datatype_of

_BASE = "CatBoost"
"""CatBoost's class for any loss function, which predicts raw values."""

_FORMATS = {".json": "json"}
"""Ending of a file's name -> CatBoost's word for its format; all others are "cbm"."""

_CLASSIFIES = (
    "Logloss",
    "CrossEntropy",
    "MultiClass",
    "MultiClassOneVsAll",
    "MultiLogloss",
    "MultiCrossEntropy",
)
"""The loss functions of classifiers; a regressor answers as a ranker does."""

_INDEPENDENT = Verdict(INDEPENDENT, "trees are applied to each row by itself")


class CatboostBackend(EstimatorBackend):
    """Runs files of CatBoost.save_model, in its formats cbm and json."""

    packages = ("catboost",)

    def _read(self, files: ModelFiles, config: ModelConfig) -> LoadedModel:
        catboost = import_module("catboost")
        file = files.file
        where, kind = str(file), _FORMATS.get(file.suffix, "cbm")
        try:
            # Twice: only the file tells the loss function, and so the
            # class that it has to be read by.
            model = catboost.CatBoost().load_model(where, kind)
            if config.parameters.get(MODEL_CLASS) == _BASE:
                return catboost_model(model, thread_count(config))
            # The parameters of a loss follow after a colon: "Quantile:alpha=0.9".
            loss = str(model.get_all_params().get("loss_function", "")).partition(":")[0]
            # Files that other tools converted to cbm may lack the training's parameters.
            is_classifier = loss in _CLASSIFIES if loss else len(model.classes_) > 0
            found = catboost.CatBoostClassifier if is_classifier else catboost.CatBoostRegressor
            model = found().load_model(where, kind)
        # CatBoost's reader, in C++, raises errors of its own and plain
        # ones, depending on the release.
        except Exception as error:
            raise Unreadable(file, error) from error
        return catboost_model(model, thread_count(config))


def catboost_model(model: Any, threads: int) -> LoadedModel:
    """Return a CatBoostClassifier, CatBoostRegressor or CatBoostRanker as a model."""
    more = {"thread_count": threads} if threads else {}
    names = tuple(str(name) for name in model.feature_names_)
    # CatBoost calls columns without names by their numbers: these are
    # no names that a client has to know.
    are_counted = names == counted_names("", len(names))
    features = Features(len(names), () if are_counted else names)
    predict = partial(_called, model.predict, more)
    outputs = [Method(PREDICT, DataType.FP64, (-1,), predict)]
    classes = np.asarray(model.classes_)
    if classes.size and hasattr(model, "predict_proba"):
        chances = partial(_called, model.predict_proba, more)
        logarithms = partial(_called, model.predict_log_proba, more)
        outputs = [
            Method(PREDICT, datatype_of(classes.dtype), (1,), predict),
            Method(PROBABILITY, DataType.FP64, (len(classes),), chances),
            Method(LOG_PROBABILITY, DataType.FP64, (len(classes),), logarithms),
        ]

    def rows(array: Array) -> Any:
        return array

    faults = (ValueError, TypeError, import_module("catboost").CatBoostError)
    return LoadedModel(by_name(*outputs), features, rows, framed, faults, _INDEPENDENT, model)


def _called(method: Callable[..., object], more: dict[str, int], rows: Any) -> Any:
    return method(rows, **more)
