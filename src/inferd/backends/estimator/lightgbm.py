"""LightgbmBackend: LightGBM's text files, run by its Booster."""

from importlib import import_module
from pathlib import Path
from typing import Any

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
    counted_names,
    thread_count,
)
from inferd.backends.estimator.rows import framed, is_same, stacked
from inferd.config.model import ModelConfig
from inferd.core.interfaces import ModelFiles
from inferd.core.rows import INDEPENDENT, Verdict
from inferd.errors import InvalidConfig, InvalidRequest
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType, datatype_of

_COUNTED = "Column_"
"""How LightGBM begins the names of columns that have none."""

_FIRST, _LAST = b"tree", b"end of trees"

_INDEPENDENT = Verdict(INDEPENDENT, "trees are applied to each row by itself")


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
        return _model(booster, [Method(PREDICT, DataType.FP64, (width,), predict)])


def _check_whole(file: Path) -> None:
    """Raise InvalidConfig unless `file` is a text with LightGBM's first and last words.

    LightGBM itself reads some other files for ever.
    """
    content = file.read_bytes()
    if not content.startswith(_FIRST) or _LAST not in content or b"\0" in content:
        msg = (
            f"'{file.name}' is no whole text file of LightGBM's, from '{_FIRST.decode()}' to "
            f"'{_LAST.decode()}': save it with Booster.save_model"
        )
        raise InvalidConfig(msg)


def lightgbm_model(model: Any, threads: int) -> LoadedModel:
    """Return an LGBMModel, one of LightGBM's scikit-learn classes, as a model."""
    if threads:
        # The scikit-learn classes read it at each call.
        model.n_jobs = threads
    booster = model.booster_
    classes = getattr(model, "classes_", None)
    if classes is None:
        width = booster.num_model_per_iteration()
        return _model(model, [Method(PREDICT, DataType.FP64, (width,), model.predict)])
    outputs = [
        Method(PREDICT, datatype_of(np.asarray(classes).dtype), (1,), model.predict),
        Method(PROBABILITY, DataType.FP64, (len(classes),), model.predict_proba),
    ]
    return _model(model, outputs)


def _model(model: Any, outputs: list[Method]) -> LoadedModel:
    """Return a Booster, or an LGBMModel with one, as a model."""
    booster = getattr(model, "booster_", model)
    names = tuple(booster.feature_name())
    by_category = _categories(booster, names)
    if not by_category and names == counted_names(_COUNTED, len(names)):
        names = ()
    features = Features(booster.num_feature(), names, counted=_COUNTED)

    def rows(array: Array) -> Any:
        if array.dtype != object:
            return _floats(array)
        keys = names or [str(number) for number in range(array.shape[-1])]
        return table(dict(zip(keys, array.T, strict=True)))

    def table(columns: Columns) -> Any:
        kinds = {name for name, column in columns.items() if column.dtype == object}
        kinds.update(by_category)
        if not kinds:
            return _floats(stacked(columns))
        # LightGBM matches categories by the position among such columns: with another number of
        # them, each would be read by another's table.
        if len(kinds) != len(booster.pandas_categorical or ()):
            msg = (
                f"columns {', '.join(sorted(kinds))} hold texts, and the model's file names "
                f"categories of {len(booster.pandas_categorical or ())} columns"
            )
            raise InvalidRequest(msg)
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


def _categories(booster: Any, names: tuple[str, ...]) -> list[str]:
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
