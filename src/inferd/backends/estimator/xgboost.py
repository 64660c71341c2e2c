"""XgboostBackend: XGBoost's own files, as the class answers that they were saved from."""

from importlib import import_module
from typing import Any

import msgspec
import numpy as np

from inferd.backends.estimator.backend import EstimatorBackend
from inferd.backends.estimator.model import (
    PREDICT,
    PROBABILITY,
    Columns,
    Features,
    LoadedModel,
    Method,
    Unreadable,
    by_name,
    thread_count,
)
from inferd.backends.estimator.rows import framed, stacked
from inferd.config.model import ModelConfig
from inferd.config.parameter_names import MODEL_CLASS
from inferd.core.interfaces import ModelFiles
from inferd.core.rows import INDEPENDENT, Verdict
from inferd.errors import InvalidRequest
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType, datatype_of

_CLASSES = {
    "classifier": "XGBClassifier",
    "regressor": "XGBRegressor",
    "ranker": "XGBRanker",
}
"""What a file says of the class that saved it -> that class."""

_CATEGORY = "c"

_COUNTED = "f"
"""How XGBoost begins the names of columns that have none, in its dumps and scores."""

_INDEPENDENT = Verdict(INDEPENDENT, "trees, or weights, are applied to each row by itself")


class XgboostBackend(EstimatorBackend):
    """Runs files of Booster.save_model and of XGBoost's scikit-learn classes.

    A file of a Booster is run as MLServer does, by an XGBRegressor, which stops at the best
    iteration of early stopping. Where MODEL_CLASS is a Booster, any file is, by Booster.predict.
    """

    packages = ("xgboost",)

    def _read(self, files: ModelFiles, config: ModelConfig) -> LoadedModel:
        xgboost = import_module("xgboost")
        try:
            booster = xgboost.Booster(model_file=str(files.file))
            if config.parameters.get(MODEL_CLASS, "").endswith(".Booster"):
                return xgboost_model(_Alone(booster), thread_count(config))
            saved = msgspec.json.decode(booster.attr("scikit_learn") or "{}")
            kind = saved.get("_estimator_type", "regressor")
            model = getattr(xgboost, _CLASSES.get(kind, "XGBRegressor"))()
            model.load_model(str(files.file))
        except Exception as error:
            raise Unreadable(files.file, error) from error
        return xgboost_model(model, thread_count(config))


class _Alone:
    """A Booster, asked as its own documentation does: all its trees count."""

    def __init__(self, booster: Any) -> None:
        self._booster = booster

    def get_booster(self) -> Any:
        return self._booster

    def predict(self, rows: Any) -> Any:
        xgboost = import_module("xgboost")
        config = {"enable_categorical": True, "feature_types": None}
        if not hasattr(rows, "columns"):
            config |= {
                "feature_names": self._booster.feature_names,
                "feature_types": self._booster.feature_types,
            }
        return self._booster.predict(xgboost.DMatrix(rows, **config))


def xgboost_model(model: Any, threads: int) -> LoadedModel:
    """Return an XGBModel, or what has `predict` and `get_booster`, as a model."""
    booster = model.get_booster()
    if threads:
        # Both: the one is the Booster's, with the other the scikit-learn classes make its data.
        booster.set_param({"nthread": threads})
        model.n_jobs = threads
    learner = msgspec.json.decode(booster.save_config())["learner"]
    shape = learner["learner_model_param"]
    width = max(int(shape["num_class"]), int(shape["num_target"]), 1)
    classes = getattr(model, "classes_", None)
    if classes is None:
        is_class = learner["objective"]["name"] == "multi:softmax"
        outputs = [Method(PREDICT, DataType.FP32, (1 if is_class else width,), model.predict)]
    else:
        datatype = datatype_of(np.asarray(classes).dtype)
        targets = int(shape["num_target"]) or 1
        width = targets if targets > 1 else len(classes)
        outputs = [
            Method(PREDICT, datatype, (targets,), model.predict),
            Method(PROBABILITY, DataType.FP32, (width,), model.predict_proba),
        ]
    names = tuple(booster.feature_names or ())
    features = Features(booster.num_features(), names, counted=_COUNTED)
    by_category = _categories(booster)

    def rows(array: Array) -> Any:
        if array.dtype != object:
            return array
        keys = names or [str(number) for number in range(array.shape[-1])]
        return table(dict(zip(keys, array.T, strict=True)))

    def table(columns: Columns) -> Any:
        for name, column in columns.items():
            if column.dtype == object and name not in by_category:
                msg = f"column '{name}' holds texts, and the model's file names no categories of it"
                raise InvalidRequest(msg)
        return framed(columns, by_category) if by_category else stacked(columns)

    return LoadedModel(
        by_name(*outputs), features, rows, table, (ValueError, TypeError), _INDEPENDENT, model
    )


def _categories(booster: Any) -> list[str]:
    """Return the columns whose categories the file names: those that have others are numbers."""
    names, kinds = booster.feature_names, booster.feature_types
    if not names or not kinds or not hasattr(booster, "get_categories"):
        return []
    if booster.get_categories().empty():
        return []
    return [name for name, kind in zip(names, kinds, strict=True) if kind == _CATEGORY]
