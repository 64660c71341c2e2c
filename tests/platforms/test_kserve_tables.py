"""KServe's stock runtimes for tables, each with a file as its own server has it."""

import joblib
import lightgbm
import numpy as np
import pytest
import xgboost
from catboost import CatBoost, CatBoostClassifier, CatBoostRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from stock_runtimes import MLSERVER_DEFAULTS, STOCK, Container, served

ROWS, TARGETS = [[1.0, 2.0], [3.0, 4.0]] * 20, [3.0, 7.0] * 20
TRUSTED = {"INFERD_BACKEND_CONFIG": "sklearn,inferd_allow_pickle=true"}


def write_sklearn(folder):
    joblib.dump(LinearRegression().fit(ROWS, TARGETS), folder / "model.joblib")


def write_xgboost(folder):
    data = xgboost.DMatrix(ROWS, TARGETS)
    exact = {"eta": 1.0, "lambda": 0.0, "base_score": 5.0}
    xgboost.train(exact, data, 1).save_model(folder / "model.json")


def write_lightgbm(folder):
    exact = {"verbosity": -1, "min_data_in_leaf": 1, "learning_rate": 1.0}
    data = lightgbm.Dataset(np.array(ROWS), TARGETS)
    lightgbm.train(exact, data, 2).save_model(folder / "model.bst")


def write_catboost(folder):
    model = CatBoostRegressor(
        iterations=1, learning_rate=1.0, l2_leaf_reg=0.0, verbose=False, allow_writing_files=False
    )
    model.fit(ROWS, TARGETS).save_model(str(folder / "model.cbm"))


REQUEST = {"inputs": [{"name": "input-0", "datatype": "FP64", "shape": [2, 2], "data": ROWS[:2]}]}


@pytest.mark.parametrize(
    ("runtime", "write"),
    [
        ("kserve-sklearnserver", write_sklearn),
        ("kserve-xgbserver", write_xgboost),
        ("kserve-lgbserver", write_lightgbm),
        ("kserve-catboostserver", write_catboost),
    ],
)
def test_a_stock_container_serves_its_own_format(tmp_path, runtime, write):
    write(tmp_path)
    found, said = served(STOCK[runtime].filled(tmp_path), TRUSTED, "iris", REQUEST)
    assert found == pytest.approx([3, 7], abs=1e-4)
    assert "/v1/models/NAME:predict" in said


@pytest.mark.parametrize(
    ("model_class", "write"),
    [
        ("mlserver_sklearn.SKLearnModel", write_sklearn),
        ("mlserver_xgboost.XGBoostModel", write_xgboost),
        ("mlserver_lightgbm.LightGBMModel", write_lightgbm),
    ],
)
def test_mlservers_container_serves_the_class_of_the_model(tmp_path, model_class, write):
    write(tmp_path)
    container = Container(env=dict(STOCK["kserve-mlserver"].env) | MLSERVER_DEFAULTS)
    found, _ = served(container.filled(tmp_path, model_class), TRUSTED, "iris", REQUEST)
    assert found == pytest.approx([3, 7], abs=1e-4)


# --- answers as those of KServe's own servers, where ours are others without its arguments ---

LABELS = [0, 1] * 20


def answered(runtime, folder, environ):
    found, said = served(STOCK[runtime].filled(folder), TRUSTED | environ, "iris", REQUEST)
    assert "models answer as they do there" in said
    return found


@pytest.mark.parametrize("environ", [{}, {"INFERD_BACKEND_CONFIG": "xgboost,num_threads=2"}])
def test_a_classifier_of_xgboost_gives_what_its_booster_does(tmp_path, environ):
    model = xgboost.XGBClassifier(n_estimators=3, learning_rate=0.3).fit(ROWS, LABELS)
    model.save_model(tmp_path / "model.json")
    booster = xgboost.Booster(model_file=tmp_path / "model.json")
    expected = booster.predict(xgboost.DMatrix(ROWS[:2]))
    assert set(expected) - {0, 1}
    found = answered("kserve-xgbserver", tmp_path, environ)
    assert found.ravel() == pytest.approx(expected, abs=1e-6)


def test_a_classifier_of_catboost_gives_raw_values(tmp_path):
    model = CatBoostClassifier(iterations=3, verbose=False, allow_writing_files=False)
    model.fit(ROWS, LABELS).save_model(str(tmp_path / "model.cbm"))
    expected = CatBoost().load_model(str(tmp_path / "model.cbm")).predict(ROWS[:2])
    found = answered("kserve-catboostserver", tmp_path, {})
    assert found.ravel() == pytest.approx(expected)


def test_an_estimator_answers_with_probabilities_where_its_variable_says_so(tmp_path):
    model = LogisticRegression().fit(ROWS, LABELS)
    joblib.dump(model, tmp_path / "model.joblib")
    found = answered("kserve-sklearnserver", tmp_path, {"PREDICT_PROBA": "True"})
    assert found.reshape(2, 2) == pytest.approx(model.predict_proba(ROWS[:2]))
    found = answered("kserve-sklearnserver", tmp_path, {"PREDICT_PROBA": "false"})
    assert found.ravel().tolist() == [0, 1]


def test_an_estimator_without_probabilities_predicts_all_the_same(tmp_path):
    write_sklearn(tmp_path)
    found = answered("kserve-sklearnserver", tmp_path, {"PREDICT_PROBA": "true"})
    assert found == pytest.approx([3, 7])
