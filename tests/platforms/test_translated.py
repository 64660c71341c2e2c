"""Models that ask to be converted when they load: the library's names, datatypes and answers."""

import json

import lightgbm
import numpy as np
import pytest
import skops.io as skops
import xgboost
from asking import HERE, Repository, asked, check, serve
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

CONVERT = 'parameters { key: "inferd_convert" value { string_value: "onnx" } }\n'
SAMPLE = 'parameters { key: "inferd_convert_sample" value { string_value: "rows.npz" } }\n'
STRICT = 'parameters { key: "inferd_convert_tolerance" value { string_value: "1e-13" } }\n'
WORKER = 'parameters { key: "inferd_process" value { string_value: "worker" } }\n'
OWN_NAMES = """
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: 4 }
output { name: "y" data_type: TYPE_FP32 dims: 1 }
"""

ROWS = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
NUMBERS = (ROWS[:, 0] > 0).astype(int) + (ROWS[:, 1] > 0)
TEXTS = np.array(["a", "b", "c"])[NUMBERS]
ANSWERS = {
    "forest": RandomForestClassifier(10, random_state=0).fit(ROWS, NUMBERS > 0),
    "xgb": xgboost.XGBClassifier(n_estimators=5).fit(ROWS, NUMBERS),
    "lgbm": lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(ROWS, TEXTS),
}
MISSING = np.where(np.random.default_rng(1).random(ROWS.shape) < 0.1, np.nan, ROWS)
MISSING[:, 1] = ROWS[:, 1]
FILLED = make_pipeline(
    ColumnTransformer([("some", SimpleImputer(), [0, 2, 3])], remainder="passthrough"), Ridge()
).fit(MISSING, ROWS[:, 0])
LINEAR = make_pipeline(StandardScaler(), LogisticRegression()).fit(ROWS, NUMBERS)
ENCODER = ColumnTransformer([("texts", OneHotEncoder(), [0, 1])])


NUMBERED = make_pipeline(OrdinalEncoder(), LogisticRegression())


def table_of(rows):
    return np.array([[str(number % 3), f"c{number % 2}"] for number in rows], object)


TABLE = table_of(range(30))
OF_TEXTS = make_pipeline(ENCODER, LogisticRegression()).fit(TABLE, NUMBERS[:30])


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    found = Repository(tmp_path_factory.mktemp("translated"))
    for name, estimator in ANSWERS.items():
        found.add(name, estimator, CONVERT)
        found.add(f"{name}_itself", estimator, HERE)
    found.add("narrowed", Ridge().fit(ROWS, ROWS[:, 0]), CONVERT + OWN_NAMES)
    found.add("filled", FILLED, CONVERT)
    found.add("linear", LINEAR, CONVERT)
    found.add("strict", LINEAR, CONVERT + STRICT)
    found.add("in_worker", LINEAR, CONVERT + WORKER)
    found.add("wrong_word", LINEAR, CONVERT.replace("onnx", "fast"))
    found.add("texts", OF_TEXTS, CONVERT + SAMPLE)
    found.add("numbered", NUMBERED.fit(TABLE, NUMBERS[:30]), CONVERT + SAMPLE)
    for name in ("texts", "numbered"):
        np.savez(found.folder / name / "rows.npz", x=TABLE.astype(str))
    mlserver = found.folder / "mlserver"
    mlserver.mkdir()
    skops.dump(LINEAR, mlserver / "model.skops")
    settings = {
        "name": "mlserver",
        "implementation": "mlserver_sklearn.SKLearnModel",
        "parameters": {"uri": "./model.skops", "extra": {"inferd_convert": "onnx"}},
    }
    (mlserver / "model-settings.json").write_text(json.dumps(settings))
    return found


@pytest.fixture(scope="module")
def ask(repository):
    with serve(repository.folder) as asking:
        yield asking


def test_what_cannot_be_is_said(ask):
    reasons = ask.reasons()
    assert "it would answer values of column 0 of 'input' that the" in reasons.pop("numbered")
    assert "2000 rows differ by more than 1e-13" in reasons.pop("strict")
    assert reasons["in_worker"].count("model 'in_worker'") == 1
    assert "a parameter of it needs a process of its own" in reasons.pop("in_worker")
    assert "parameter inferd_convert is 'fast', expected onnx" in reasons.pop("wrong_word")
    assert reasons == {}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("count", [1, 7])
def test_both_ways_give_the_same_answers_under_the_same_names_and_datatypes(ask, name, count):
    got, datatypes = asked(ask, name, ROWS[:count])
    want, expected = asked(ask, f"{name}_itself", ROWS[:count])
    assert datatypes == expected
    for output, array in want.items():
        if array.dtype == object:
            assert got[output].tolist() == array.tolist()
        else:
            np.testing.assert_allclose(got[output], array, atol=1e-5)


def test_metadata_say_what_the_library_tells(ask):
    found, itself = ask.metadata("forest"), ask.metadata("forest_itself")
    assert found["inputs"] == itself["inputs"]
    assert found["outputs"] == itself["outputs"][:2]  # no predict_log_proba


def test_the_configurations_own_names_and_datatypes_count(ask):
    got, datatypes = asked(ask, "narrowed", ROWS[:7], name="x")
    assert datatypes == {"y": "FP32"}
    check(got["y"], ROWS[:7, :1], tolerance=1e-2)


def test_rows_in_another_datatype_are_refused_not_rounded(ask):
    status, text = ask.rest("forest", {"input": ROWS[:1].astype(np.float64)})
    assert status == 400
    assert "FP64" in text


def test_missing_numbers_are_answered_as_the_library_does_or_refused(ask):
    some = MISSING[:40].astype(np.float32)
    assert np.isnan(some).any()
    got, _ = asked(ask, "filled", some)
    check(got["predict"], FILLED.predict(some), tolerance=1e-4)
    some = ROWS[:3].copy()
    some[1, 1] = np.nan
    for name in ("filled", "linear", "forest"):
        status, text = ask.rest(name, {"input": some})
        assert status == 400
        assert "refused because only the library could answer it" in text
    got, _ = asked(ask, "xgb", some)
    check(got["predict"], ANSWERS["xgb"].predict(some))


def test_infinity_is_refused_where_the_library_does(ask):
    some = ROWS[:3].copy()
    some[1, 2] = -np.inf
    for name in ("filled", "linear", "forest"):
        assert ask.rest(name, {"input": some})[0] == 400


def test_texts_are_compared_on_a_sample(ask):
    got, _ = asked(ask, "texts", TABLE[:6])
    check(got["predict"], OF_TEXTS.predict(TABLE[:6]))
    assert ask.rest("texts", {"input": np.array([["7", "c0"]], object)})[0] >= 400


def test_a_folder_of_mlserver_asks_for_it_too(ask):
    got, _ = asked(ask, "mlserver", ROWS[:7], name="anything")
    assert list(got) == ["predict"]
    check(got["predict"], LINEAR.predict(ROWS[:7]))
