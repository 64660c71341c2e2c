"""Writes files/: forests, and what their own libraries answer.

    pip install 'xgboost-cpu==3.0.5' treelite==4.8.1 scikit-learn lightgbm
    python tests/formats/trees/write_files.py

XGBoost 3.0 is the last that writes its binary format.
"""

from pathlib import Path

import lightgbm
import numpy as np
import treelite
import xgboost
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
)

HERE = Path(__file__).resolve().parent / "files"
NUMBERS = np.random.default_rng(0)
ROWS = NUMBERS.normal(size=(200, 4)).astype(np.float32)
SUMS = ROWS.sum(axis=1)
BINARY, CLASSES = (SUMS > 0).astype(int), np.digitize(SUMS, [-1, 1])
ASKED = NUMBERS.normal(size=(12, 4)).astype(np.float32)
GAPS = np.where(NUMBERS.random(ASKED.shape) < 0.1, np.float32("nan"), ASKED)

answers: dict[str, np.ndarray] = {}


def keep(name: str, rows: np.ndarray, values: np.ndarray) -> None:
    answers[f"{name} asked"] = rows
    answers[name] = np.asarray(values, np.float64).reshape(len(rows), -1)


for name, labels, settings in [
    ("binary", BINARY, {"objective": "binary:logistic"}),
    ("poisson", np.exp(SUMS / 3), {"objective": "count:poisson"}),
    ("classes", CLASSES, {"objective": "multi:softmax", "num_class": 3}),
    ("dart", BINARY, {"objective": "binary:logistic", "booster": "dart", "rate_drop": 0.5}),
    ("pruned", SUMS, {"gamma": 20.0, "tree_method": "exact"}),
]:
    booster = xgboost.train(
        {"max_depth": 2, "nthread": 1, **settings}, xgboost.DMatrix(ROWS, labels), 3
    )
    booster.save_model(HERE / f"{name}.deprecated")
    (HERE / f"{name}.deprecated").rename(HERE / f"{name}.model")
    keep(f"{name}.model", GAPS, booster.predict(xgboost.DMatrix(GAPS)))


def checkpoint(name: str, model: treelite.Model, rows: np.ndarray) -> None:
    model.serialize(HERE / f"{name}.tl")
    keep(f"{name}.tl", rows, treelite.gtil.predict(model, rows))


given = xgboost.train(
    {"max_depth": 2, "nthread": 1, "objective": "binary:logistic"},
    xgboost.DMatrix(ROWS, BINARY),
    3,
)
checkpoint("xgboost", treelite.frontend.from_xgboost(given), GAPS)
given = lightgbm.train(
    {"objective": "multiclass", "num_class": 3, "num_leaves": 4, "verbose": -1, "num_threads": 1},
    lightgbm.Dataset(ROWS, CLASSES),
    2,
)
checkpoint("lightgbm", treelite.frontend.from_lightgbm(given), GAPS)
KINDS = np.floor(np.abs(ROWS) * 4)
given = lightgbm.train(
    {"objective": "regression", "num_leaves": 4, "verbose": -1, "num_threads": 1,
     "min_data_per_group": 1, "max_cat_to_onehot": 1},
    lightgbm.Dataset(KINDS, SUMS, categorical_feature=[0, 1]),
    3,
)  # fmt: skip
checkpoint("kinds_lightgbm", treelite.frontend.from_lightgbm(given), GAPS * 8)
given = xgboost.train(
    {"max_depth": 2, "nthread": 1, "tree_method": "hist", "max_cat_to_onehot": 1},
    xgboost.DMatrix(KINDS, SUMS, feature_types=["c", "c", "q", "q"], enable_categorical=True),
    3,
)
checkpoint("kinds_xgboost", treelite.frontend.from_xgboost(given), np.floor(np.abs(GAPS) * 8))
few = {"n_estimators": 3, "max_depth": 2, "random_state": 0}
for name, estimator, labels in [
    ("random", RandomForestClassifier(**few), CLASSES),
    ("extra", ExtraTreesRegressor(**few), SUMS),
    ("boosted", GradientBoostingClassifier(**few), BINARY),
    ("isolation", IsolationForest(n_estimators=2, max_samples=8, random_state=0), None),
]:
    checkpoint(name, treelite.sklearn.import_model(estimator.fit(ROWS, labels)), ASKED)
np.savez_compressed(HERE / "answers.npz", **answers)
