"""CatBoost's files, run by CatBoost, against what it answers itself."""

import catboost
import numpy as np
import pytest
from asking import HERE, Repository, asked, check, serve

NUMBERS = np.random.default_rng(0)
ROWS = NUMBERS.normal(size=(80, 3))
SUMS = ROWS.sum(axis=1)
CITIES = np.array(["rome", "oslo", "bern"])[NUMBERS.integers(0, 3, 80)]
MIXED = np.stack([ROWS[:, 0].astype(object), CITIES.astype(object)], axis=1)
QUIET = {"iterations": 4, "verbose": 0, "allow_writing_files": False}

MODELS = {
    "words": catboost.CatBoostClassifier(**QUIET).fit(ROWS, np.where(SUMS > 0, "up", "down")),
    "many": catboost.CatBoostClassifier(**QUIET).fit(ROWS, np.digitize(SUMS, [-1, 1])),
    "sum": catboost.CatBoostRegressor(**QUIET).fit(ROWS, SUMS),
    "counts": catboost.CatBoostRegressor(**QUIET, loss_function="Poisson").fit(ROWS, abs(SUMS)),
    "several": catboost.CatBoostRegressor(**QUIET, loss_function="MultiRMSE").fit(
        ROWS, np.stack([SUMS, -SUMS], axis=1)
    ),
    "ranks": catboost.CatBoostRanker(**QUIET).fit(ROWS, SUMS, group_id=np.arange(80) // 10),
    "cities": catboost.CatBoostClassifier(**QUIET, cat_features=[1]).fit(MIXED, SUMS > 0),
}


MLFLOW = """flavors:
  catboost:
    data: model.cb
    model_type: CatBoost
    save_format: cbm
"""


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    found = Repository(tmp_path_factory.mktemp("models"))
    for name, model in MODELS.items():
        found.add(name, model, HERE if name != "words" else "", "model.cbm", model.save_model)
    found.add("bad", None, HERE, "model.cbm", lambda path: path.write_bytes(b"CBM1\0\0"))
    (found.folder / "raw").mkdir()
    MODELS["many"].save_model(found.folder / "raw" / "model.cb")
    (found.folder / "raw" / "MLmodel").write_text(MLFLOW)
    (found.folder / "raw" / "config.pbtxt").write_text(HERE)
    with serve(found.folder) as asking:
        yield asking


@pytest.mark.parametrize("name", [name for name in MODELS if name != "cities"])
def test_models_answer_the_same(ask, name):
    model = MODELS[name]
    for count in (1, 7, 80):
        got, _ = asked(ask, name, ROWS[:count])
        check(got["predict"], model.predict(ROWS[:count]))
        if hasattr(model, "predict_proba"):
            check(got["predict_proba"], model.predict_proba(ROWS[:count]))


def test_categories_are_texts_beside_numbers(ask):
    expected = MODELS["cities"].predict_proba(MIXED[:5])
    columns = {"0": ROWS[:5, 0], "1": CITIES[:5].astype(object)}
    check(ask.rpc("cities", columns)["predict_proba"], expected)


def test_mlflows_class_without_a_loss_gives_raw_values(ask):
    expected = MODELS["many"].predict(ROWS[:7], prediction_type="RawFormulaVal")
    check(ask.rpc("raw", {"rows": ROWS[:7]})["predict"], expected)


def test_what_does_not_fit_is_the_clients_fault(ask):
    for model, rows in (("sum", ROWS[:2, :2]), ("cities", ROWS[:2, :2])):
        status, text = ask.rest(model, {"input": rows})
        assert status == 400, text


def test_another_file_is_refused(ask):
    assert "'model.cbm' cannot be loaded" in ask.reasons()["bad"]
