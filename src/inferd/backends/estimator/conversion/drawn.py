"""Rows that a converted model is compared on: drawn ones if nobody gives a sample of their own.

Two ways to compute the same trees differ first where a value equals a threshold, or nearly does: a
float32 beside a float64, `<` for `<=`. So values are drawn at the model's own thresholds, at the
neighbouring floats, between them and beyond. A model without trees is given values around those
that it has kept of its training: means, centres, support vectors.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from inferd.backends.estimator.model import Columns
from inferd.errors import InvalidConfig
from inferd.tensor.array import Array

_TRAINED = (
    "_fit_X",
    "X_train_",
    "X_fit_",
    "support_vectors_",
    "cluster_centers_",
    "centroids_",
    "means_",
    "theta_",
)
"""Attributes of scikit-learn's estimators with rows, or with something like rows, of training."""

# Nearest neighbours keep the whole training set; each row costs a prediction of the library.
_MOST_TRAINED = 1000

Known = Mapping[int, Array]
"""Number of a column -> values that matter for it, in any order."""


class Drawn(NamedTuple):
    """Rows, FP32 [rows, columns], and how many thresholds they were drawn around."""

    rows: Array
    threshold_count: int


def drawn_rows(known: Known, trained: Array, column_count: int, row_count: int) -> Drawn:
    """Return `row_count` rows of `column_count` columns, the same for the same model.

    `known` are thresholds, `trained` rows of training, [any, columns].
    """
    # A fixed seed: whether a conversion is accepted must not change from one start to the next.
    random = np.random.default_rng(0)
    columns = [
        random.choice(_candidates(known.get(n), trained[:, n], random), row_count)
        for n in range(column_count)
    ]
    rows = np.stack(columns, axis=1) if columns else np.zeros((row_count, 0), np.float32)
    # Whole rows of training as well: columns drawn apart are never seen together in real data.
    rows[: len(trained)] = trained[: len(rows)]
    count = sum(len(np.unique(one)) for one in known.values())
    return Drawn(rows.astype(np.float32), count)


def _candidates(thresholds: Array | None, trained: Array, random: np.random.Generator) -> Array:
    """Return float32 values for one column."""
    if thresholds is not None and len(thresholds):
        at = np.unique(thresholds.astype(np.float32))
        at = at[np.isfinite(at)]
        if len(at):
            span = np.float32(max(at[-1] - at[0], 1.0))
            # Halved first: the sum of two large float32 overflows.
            between = at[:-1] / 2 + at[1:] / 2
            beyond = np.array([at[0] - span, at[-1] + span], np.float32)
            below, above = (np.nextafter(at, np.float32(end)) for end in (-np.inf, np.inf))
            return np.concatenate([at, below, above, between, beyond])
    middle, spread = (trained.mean(), trained.std() or 1.0) if len(trained) else (0.0, 1.0)
    some = random.normal(middle, 2 * spread, 200)
    return np.concatenate([some, trained, [middle]]).astype(np.float32)


def rows_of_training(parts: Iterable[Any], column_count: int) -> Array:
    """Return what `parts` of an estimator have kept of its training, [any, columns]."""
    found = []
    for part in parts:
        for name in _TRAINED:
            rows = getattr(part, "__dict__", {}).get(name)
            if isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.shape[1] == column_count:
                found.append(np.asarray(rows[:_MOST_TRAINED], np.float64))
        mean, scale = (getattr(part, name, None) for name in ("mean_", "scale_"))
        if isinstance(mean, np.ndarray) and mean.shape == (column_count,):
            wide = scale if isinstance(scale, np.ndarray) else np.ones(column_count)
            found.append(np.stack([mean - 2 * wide, mean, mean + 2 * wide]))
    return np.concatenate([np.zeros((0, column_count)), *found])[:_MOST_TRAINED]


def thresholds_in(parts: Iterable[Any]) -> dict[int, Array]:
    """Return the thresholds of scikit-learn's trees among `parts`, by the number of the column."""
    features, values = [], []
    for part in parts:
        kind = type(part).__name__
        if kind == "Tree":  # of sklearn.tree; a leaf has no children
            inner = part.children_left >= 0
            features.append(part.feature[inner])
            values.append(part.threshold[inner])
        elif kind == "TreePredictor":  # of histogram gradient boosting
            inner = part.nodes["is_leaf"] == 0
            features.append(part.nodes["feature_idx"][inner].astype(np.int64))
            values.append(part.nodes["num_threshold"][inner])
    return by_column(features, values)


def by_column(features: list[Array], values: list[Array]) -> dict[int, Array]:
    """Return `values` by their `features`, both lists of arrays of the same lengths."""
    if not features:
        return {}
    feature, value = np.concatenate(features), np.concatenate(values)
    return {int(one): value[feature == one] for one in np.unique(feature)}


def read_sample(file: Path, what: str) -> Columns:
    """Return one array of shape [rows, columns], or an array [rows] for each column, by name.

    Texts are object arrays of `str`. Raises InvalidConfig, which calls the file `what`.
    """
    try:
        # A sample is only data: a pickled array in it could run code.
        with np.load(file, allow_pickle=False) as opened:
            arrays = {name: opened[name] for name in opened.files}
    except (OSError, ValueError, AttributeError) as error:
        raise InvalidConfig(f"{what}: {getattr(error, 'strerror', None) or error}") from error
    lengths = {array.shape[:1] for array in arrays.values()}
    if len(lengths) != 1 or lengths == {()} or lengths == {(0,)}:
        raise InvalidConfig(f"{what}: expected arrays of the same number of rows, at least one row")
    most = 2 if len(arrays) == 1 else 1
    for name, array in arrays.items():
        if array.ndim > most:
            raise InvalidConfig(
                f"{what}: '{name}' has shape {list(array.shape)}, expected [rows] for each column, "
                f"or a single array [rows, columns]"
            )
    return {name: _texts(array) for name, array in arrays.items()}


def _texts(array: Array) -> Array:
    return array.astype(str).astype(object) if array.dtype.kind in "SU" else array
