"""Models that were fitted on data frames, asked column by column."""

import json

import joblib
import lightgbm
import numpy as np
import pandas
import pytest
import xgboost
from asking import HERE, Repository, check, serve
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

pytestmark = pytest.mark.filterwarnings("ignore")
NUMBERS = np.random.default_rng(0)
CITIES = ["rome", "oslo", "bern"]
FRAME = pandas.DataFrame(
    {
        "age": NUMBERS.integers(20, 60, 90),
        "city": np.array(CITIES)[NUMBERS.integers(0, 3, 90)],
        "income": NUMBERS.random(90),
    }
)
RICH = ((FRAME.income * FRAME.age > 20) ^ (FRAME.city == "oslo")).to_numpy()
CATEGORIES = FRAME.assign(city=FRAME.city.astype("category"))


def by_name(city_of, others):
    return make_pipeline(
        ColumnTransformer([("a", OneHotEncoder(), city_of), ("b", StandardScaler(), others)]),
        LogisticRegression(),
    ).fit(FRAME, np.where(RICH, "rich", "poor"))


PIPELINE = by_name(["city"], ["age", "income"])
XGBOOST = xgboost.XGBClassifier(n_estimators=5, enable_categorical=True).fit(CATEGORIES, RICH)
LIGHTGBM = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1, min_child_samples=2).fit(
    CATEGORIES, RICH
)


def mlserver(folder, name, file, package, save):
    """Write a model as MLServer has it."""
    (folder / name).mkdir()
    save(folder / name / file)
    extra = {"inferd_allow_pickle": "true", "inferd_process": "server"}
    settings = {"name": name, "implementation": f"{package}.Model"}
    (folder / name / "model-settings.json").write_text(
        json.dumps(settings | {"parameters": {"uri": file, "extra": extra}})
    )


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    found = Repository(tmp_path_factory.mktemp("models"))
    found.add("pipeline", PIPELINE, HERE)
    found.add("object", LIGHTGBM, HERE)
    folder = found.folder
    mlserver(folder, "foreign", "m.joblib", "mlserver_sklearn", lambda p: joblib.dump(PIPELINE, p))
    mlserver(folder, "xgboost", "model.json", "mlserver_xgboost", XGBOOST.save_model)
    save = LIGHTGBM.booster_.save_model
    mlserver(folder, "lightgbm", "model.txt", "mlserver_lightgbm", save)
    with serve(folder) as asking:
        yield asking


def columns(frame, order=("city", "income", "age")):
    return {
        name: frame[name].to_numpy().astype(object) if name == "city" else frame[name].to_numpy()
        for name in order
    }


@pytest.mark.parametrize("count", [1, 7, 90])
def test_pipelines_select_columns_by_name(ask, count):
    given = columns(FRAME[:count])
    got = ask.rpc("pipeline", given)
    check(got["predict"], PIPELINE.predict(FRAME[:count]))
    check(got["predict_proba"], PIPELINE.predict_proba(FRAME[:count]))
    assert list(ask.rest("foreign", given)) == ["predict"]
    check(ask.rest("foreign", given)["predict"], PIPELINE.predict(FRAME[:count]))


@pytest.mark.parametrize("count", [1, 7, 90])
def test_categories_are_those_of_the_training(ask, count):
    given = columns(FRAME[:count])
    some = CATEGORIES[:count]
    check(ask.rpc("xgboost", given)["predict"], XGBOOST.predict(some))
    check(
        ask.rpc("xgboost", given, ["predict_proba"])["predict_proba"], XGBOOST.predict_proba(some)
    )
    check(ask.rpc("lightgbm", given)["predict"], LIGHTGBM.booster_.predict(some))
    check(ask.rpc("object", given)["predict_proba"], LIGHTGBM.predict_proba(some))


def test_categories_by_number_are_taken_in_one_array(ask):
    codes = CATEGORIES.assign(city=CATEGORIES.city.cat.codes).to_numpy().astype("f4")[:7]
    check(ask.rest("xgboost", {"x": codes})["predict"], XGBOOST.predict(codes))


def test_categories_may_be_halves(tmp_path):
    frame = pandas.DataFrame({"kind": FRAME.age % 4, "income": FRAME.income})
    some = frame.assign(kind=frame.kind.astype("category"))
    model = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1, min_child_samples=2).fit(some, RICH)
    found = Repository(tmp_path)
    found.add("halves", model, HERE)
    with serve(tmp_path) as asking:
        given = {"kind": frame.kind.to_numpy("f2")[:7], "income": frame.income.to_numpy()[:7]}
        check(asking.rpc("halves", given)["predict_proba"], model.predict_proba(some[:7]))


def test_unknown_categories_are_as_the_library_has_them(ask):
    frame = FRAME[:2].assign(city=["paris", "oslo"])
    status, text = ask.rest("pipeline", columns(frame))
    assert status == 400
    assert "Found unknown categories ['paris']" in text
    unknown = frame.assign(city=frame.city.astype("category"))
    check(ask.rest("xgboost", columns(frame))["predict"], XGBOOST.predict(unknown))
    check(ask.rest("lightgbm", columns(frame))["predict"], LIGHTGBM.booster_.predict(unknown))


def test_columns_are_all_needed_and_no_others(ask):
    given = columns(FRAME[:2])
    for wrong in ({"age": given["age"]}, {**given, "more": given["age"]}):
        status, text = ask.rest("pipeline", wrong)
        assert status == 400
    assert "the model takes 'age', 'city', 'income', each once" in text


def test_numbers_where_texts_were_are_refused(ask):
    status, _ = ask.rest("pipeline", {**columns(FRAME[:2]), "city": np.array([1, 2])})
    assert status == 400


def test_without_pandas_only_models_that_need_it_do_not_load(tmp_path, monkeypatch):
    import inferd.backends.estimator.rows
    import inferd.backends.estimator.sklearn

    found = Repository(tmp_path)
    found.add("pipeline", PIPELINE, HERE)
    plain = LogisticRegression().fit(FRAME[["age", "income"]], RICH)
    found.add("plain", plain, HERE)
    for module in (inferd.backends.estimator.rows, inferd.backends.estimator.sklearn):
        monkeypatch.setattr(module, "has_pandas", lambda: False)
    with serve(tmp_path) as ask:
        assert "pip install 'inferd[pandas]'" in ask.reasons()["pipeline"]
        given = {"income": FRAME.income[:3].to_numpy(), "age": FRAME.age[:3].to_numpy()}
        check(ask.rest("plain", given)["predict"], plain.predict(FRAME[["age", "income"]][:3]))
