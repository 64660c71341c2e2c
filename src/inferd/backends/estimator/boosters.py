"""Boosters: models of XGBoost, LightGBM and CatBoost, in their own files or as their classes.

XGBoost's files are run as the class answers that they were saved from, CatBoost's as the class that
their loss function belongs to; LightGBM's text files are run by its Booster.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from inferd.backends.estimator.backend import EstimatorBackend
from inferd.backends.estimator.model import (
    LOG_PROBABILITY,
    PREDICT,
    PROBABILITY,
    Columns,
    Features,
    LoadedModel,
    Method,
    Unreadable,
    by_name,
    counted_names,
    thread_count,
)
from inferd.backends.estimator.rows import framed, is_same, stacked
from inferd.config.model import ModelConfig
from inferd.config.parameter_names import MODEL_CLASS
from inferd.core.interfaces import ModelFiles
from inferd.core.rows import INDEPENDENT, Verdict
from inferd.errors import InvalidConfig, InvalidRequest
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType, datatype_of

_INDEPENDENT = Verdict(INDEPENDENT, "trees are applied to each row by itself")


def _columns(array: Array, names: tuple[str, ...]) -> Columns:
    """Return the columns of rows that hold texts, by number if they have no names."""
    keys = names or [str(number) for number in range(array.shape[-1])]
    return dict(zip(keys, array.T, strict=True))


_XGBOOST_CLASSES = {
    "classifier": "XGBClassifier",
    "regressor": "XGBRegressor",
    "ranker": "XGBRanker",
}
"""What a file says of the class that saved it -> that class."""

_XGBOOST_CATEGORY = "c"

_XGBOOST_COUNTED = "f"
"""How XGBoost begins the names of columns that have none, in its dumps and scores."""

_XGBOOST_VERDICT = Verdict(INDEPENDENT, "trees, or weights, are applied to each row by itself")


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
                return xgboost_model(_AloneBooster(booster), thread_count(config))
            saved = msgspec.json.decode(booster.attr("scikit_learn") or "{}")
            kind = saved.get("_estimator_type", "regressor")
            model = getattr(xgboost, _XGBOOST_CLASSES.get(kind, "XGBRegressor"))()
            model.load_model(str(files.file))
        except Exception as error:
            raise Unreadable(files.file, error) from error
        return xgboost_model(model, thread_count(config))


class _AloneBooster:
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
    features = Features(booster.num_features(), names, counted=_XGBOOST_COUNTED)
    by_category = _xgboost_categories(booster)

    def rows(array: Array) -> Any:
        return array if array.dtype != object else table(_columns(array, names))

    def table(columns: Columns) -> Any:
        for name, column in columns.items():
            if column.dtype == object and name not in by_category:
                msg = f"column '{name}' holds texts, and the model's file names no categories of it"
                raise InvalidRequest(msg)
        return framed(columns, by_category) if by_category else stacked(columns)

    return LoadedModel(
        by_name(*outputs), features, rows, table, (ValueError, TypeError), _XGBOOST_VERDICT, model
    )


def _xgboost_categories(booster: Any) -> list[str]:
    """Return the columns whose categories the file names: those that have others are numbers."""
    names, kinds = booster.feature_names, booster.feature_types
    if not names or not kinds or not hasattr(booster, "get_categories"):
        return []
    if booster.get_categories().empty():
        return []
    return [name for name, kind in zip(names, kinds, strict=True) if kind == _XGBOOST_CATEGORY]


_LIGHTGBM_COUNTED = "Column_"
"""How LightGBM begins the names of columns that have none."""

_LIGHTGBM_FIRST, _LIGHTGBM_LAST = b"tree", b"end of trees"


class LightgbmBackend(EstimatorBackend):
    """Runs files of Booster.save_model."""

    packages = ("lightgbm",)

    def _read(self, files: ModelFiles, config: ModelConfig) -> LoadedModel:
        lightgbm = import_module("lightgbm")
        _check_whole(files.file)
        try:
            booster = lightgbm.Booster(model_file=str(files.file))
        except Exception as error:
            raise Unreadable(files.file, error) from error
        threads = thread_count(config)
        more = {"num_threads": threads} if threads else {}

        def predict(rows: Any) -> Any:
            return booster.predict(rows, **more)

        width = booster.num_model_per_iteration()
        return _lightgbm_model(booster, [Method(PREDICT, DataType.FP64, (width,), predict)])


def _check_whole(file: Path) -> None:
    """Raise InvalidConfig unless `file` is a text with LightGBM's first and last words.

    LightGBM itself reads some other files for ever.
    """
    content = file.read_bytes()
    if not content.startswith(_LIGHTGBM_FIRST) or _LIGHTGBM_LAST not in content or b"\0" in content:
        raise InvalidConfig(
            f"'{file.name}' is no whole text file of LightGBM's, from "
            f"'{_LIGHTGBM_FIRST.decode()}' to '{_LIGHTGBM_LAST.decode()}': save it with "
            f"Booster.save_model"
        )


def lightgbm_model(model: Any, threads: int) -> LoadedModel:
    """Return an LGBMModel, one of LightGBM's scikit-learn classes, as a model."""
    if threads:
        # The scikit-learn classes read it at each call.
        model.n_jobs = threads
    booster = model.booster_
    classes = getattr(model, "classes_", None)
    if classes is None:
        width = booster.num_model_per_iteration()
        return _lightgbm_model(model, [Method(PREDICT, DataType.FP64, (width,), model.predict)])
    outputs = [
        Method(PREDICT, datatype_of(np.asarray(classes).dtype), (1,), model.predict),
        Method(PROBABILITY, DataType.FP64, (len(classes),), model.predict_proba),
    ]
    return _lightgbm_model(model, outputs)


def _lightgbm_model(model: Any, outputs: list[Method]) -> LoadedModel:
    """Return a Booster, or an LGBMModel with one, as a model."""
    booster = getattr(model, "booster_", model)
    names = tuple(booster.feature_name())
    by_category = _lightgbm_categories(booster, names)
    if not by_category and names == counted_names(_LIGHTGBM_COUNTED, len(names)):
        names = ()
    features = Features(booster.num_feature(), names, counted=_LIGHTGBM_COUNTED)

    def rows(array: Array) -> Any:
        return _floats(array) if array.dtype != object else table(_columns(array, names))

    def table(columns: Columns) -> Any:
        kinds = {name for name, column in columns.items() if column.dtype == object}
        kinds.update(by_category)
        if not kinds:
            return _floats(stacked(columns))
        # LightGBM matches categories by the position among such columns: with another number of
        # them, each would be read by another's table.
        if len(kinds) != len(booster.pandas_categorical or ()):
            raise InvalidRequest(
                f"columns {', '.join(sorted(kinds))} hold texts, and the model's file names "
                f"categories of {len(booster.pandas_categorical or ())} columns"
            )
        return framed(columns, kinds)

    faults = (ValueError, TypeError, import_module("lightgbm").basic.LightGBMError)
    return LoadedModel(by_name(*outputs), features, rows, table, faults, _INDEPENDENT, model)


def _floats(array: Array) -> Array:
    """Return numbers as LightGBM takes them: it would make float32 of integers.

    Raises InvalidRequest for integers that float64 cannot hold.
    """
    if array.dtype in (np.float32, np.float64):
        return array
    whole = array.astype(np.float64)
    if not is_same(whole, array):
        msg = f"the rows hold numbers of {array.dtype} that LightGBM's float64 cannot hold"
        raise InvalidRequest(msg)
    return whole


def _lightgbm_categories(booster: Any, names: tuple[str, ...]) -> list[str]:
    """Return the columns that the model was given as pandas' categories, by name."""
    if not booster.pandas_categorical:
        return []
    # Only the text form tells which columns these are; one tree keeps it short.
    text = booster.model_to_string(num_iteration=1)
    line = next((one for one in text.splitlines() if one.startswith("feature_infos=")), "")
    kinds = dict(zip(names, line.partition("=")[2].split(" "), strict=False))
    # "[low:high]" is a number, "1:0:2" are categories, "none" is a column of one value, of any kind
    found = [name for name, kind in kinds.items() if kind != "none" and not kind.startswith("[")]
    constant = [name for name, kind in kinds.items() if kind == "none"]
    if len(found) + len(constant) == len(booster.pandas_categorical):
        return [name for name in names if name in found or name in constant]
    return found


_CATBOOST_BASE = "CatBoost"
"""CatBoost's class for any loss function, which predicts raw values."""

_CATBOOST_FORMATS = {".json": "json"}
"""Ending of a file's name -> CatBoost's word for its format; all others are "cbm"."""

_CATBOOST_CLASSIFIES = (
    "Logloss",
    "CrossEntropy",
    "MultiClass",
    "MultiClassOneVsAll",
    "MultiLogloss",
    "MultiCrossEntropy",
)
"""The loss functions of classifiers; a regressor answers as a ranker does."""


class CatboostBackend(EstimatorBackend):
    """Runs files of CatBoost.save_model, in its formats cbm and json."""

    packages = ("catboost",)

    def _read(self, files: ModelFiles, config: ModelConfig) -> LoadedModel:
        catboost = import_module("catboost")
        file = files.file
        where, kind = str(file), _CATBOOST_FORMATS.get(file.suffix, "cbm")
        try:
            # Twice: only the file tells the loss function, and so the
            # class that it has to be read by.
            model = catboost.CatBoost().load_model(where, kind)
            if config.parameters.get(MODEL_CLASS) == _CATBOOST_BASE:
                return catboost_model(model, thread_count(config))
            # The parameters of a loss follow after a colon: "Quantile:alpha=0.9".
            loss = str(model.get_all_params().get("loss_function", "")).partition(":")[0]
            # Files that other tools converted to cbm may lack the training's parameters.
            is_classifier = loss in _CATBOOST_CLASSIFIES if loss else len(model.classes_) > 0
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
