"""Models of scikit-learn, XGBoost, LightGBM and CatBoost, asked over real connections.

Each answer is compared with what the library itself says of the same rows.
"""

import shutil
from functools import partial

import lightgbm
import numpy as np
import pytest
import skops.io
import tritonclient.grpc
import xgboost
from asking import HERE, Repository, asked, check, serve
from sklearn.decomposition import NMF, PCA
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, PowerTransformer
from sklearn.svm import SVC

pytestmark = pytest.mark.filterwarnings("ignore")
NUMBERS = np.random.default_rng(0)
ROWS = NUMBERS.normal(size=(60, 4))
CLASSES = NUMBERS.integers(0, 3, 60)
WORDS = np.array(["low", "mid", "high"])[CLASSES]
SUMS = ROWS.sum(axis=1)
WHOLE = NUMBERS.integers(1, 4, (60, 2))
TEXTS = np.array([["a", "x"], ["b", "y"], ["a", "y"], ["b", "x"]] * 10, object)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    found = Repository(tmp_path_factory.mktemp("models"))
    add_models(found)
    return found


@pytest.fixture(scope="module")
def ask(repository):
    with serve(repository.folder) as asking:
        yield asking


def add_models(found):
    two = np.stack([CLASSES, CLASSES % 2], axis=1)
    forest = RandomForestClassifier(5, random_state=0)
    found.add("numbers", forest.fit(ROWS, CLASSES), HERE)
    found.add("words", LogisticRegression().fit(ROWS, WORDS))  # in a worker
    found.add("truths", LogisticRegression().fit(ROWS, CLASSES > 0), HERE)
    found.add("floats", LogisticRegression().fit(ROWS, CLASSES * 1.0), HERE)
    found.add("targets", RandomForestClassifier(5, random_state=0).fit(ROWS, two), HERE)
    regressor = RandomForestRegressor(3, random_state=0)
    found.add("sums", regressor.fit(ROWS, np.stack([SUMS, -SUMS], axis=1)), HERE)
    one = MultiOutputClassifier(LogisticRegression()).fit(ROWS, CLASSES.reshape(-1, 1))
    found.add("target", one, HERE)
    found.add("svc", SVC().fit(ROWS, WORDS), HERE)
    found.add("pca", PCA(2).fit(ROWS), HERE)
    large = np.array([[1e9], [1e9 + 1], [1e9 + 2]])
    found.add("line", LinearRegression().fit(large, [0.0, 1, 2]), HERE)
    counts = np.arange(100_000_001, 100_000_005).reshape(-1, 1)
    found.add("near", KNeighborsRegressor(1).fit(counts, [1.0, 2, 3, 4]), HERE)
    found.add(
        "onehot", make_pipeline(OneHotEncoder(), LogisticRegression()).fit(TEXTS, [0, 1] * 20), HERE
    )
    vectors = make_pipeline(TfidfVectorizer(), LogisticRegression())
    found.add("texts", vectors.fit(["good day", "bad day"] * 5, [1, 0] * 5), HERE)
    boxcox = make_pipeline(PowerTransformer("box-cox"), LinearRegression()).fit(WHOLE, SUMS)
    declared = (
        'platform: "sklearn_joblib"\nmax_batch_size: 8\n'
        'input [{name:"rows" data_type:TYPE_FP32 dims:[2]}]\n'
        'output [{name:"value" data_type:TYPE_FP32 dims:[1]}]\n'
    )
    found.add("declared", boxcox, HERE + declared)
    found.add("mixing", NMF(2).fit(np.abs(ROWS)), HERE)
    found.add("open", make_pipeline(FunctionTransformer(np.abs), PCA(2)).fit(ROWS), HERE)


@pytest.mark.parametrize(
    ("model", "kind"),
    [("numbers", "INT64"), ("words", "BYTES"), ("truths", "BOOL"), ("floats", "FP64")],
)
@pytest.mark.parametrize("count", [1, 7, 60])
def test_classes_have_the_type_that_they_had(ask, repository, model, kind, count):
    estimator, rows = repository.models[model], ROWS[:count]
    got, kinds = asked(ask, model, rows)
    assert kinds == {"predict": kind, "predict_proba": "FP64"}
    check(got["predict"], estimator.predict(rows))
    check(got["predict_proba"], estimator.predict_proba(rows))


def test_each_method_is_an_output(ask, repository):
    estimator = repository.models["words"]
    names = ["predict", "predict_proba", "predict_log_proba", "decision_function"]
    assert [one["name"] for one in ask.metadata("words")["outputs"]] == names
    got, _ = asked(ask, "words", ROWS[:5], names)
    for name in names:
        check(got[name], getattr(estimator, name)(ROWS[:5]))
    assert ask.rest("words", {"input": ROWS[:5]}, ["transform"])[0] == 400


def test_who_gives_no_probabilities_has_no_such_output(ask, repository):
    got, _ = asked(ask, "svc", ROWS[:5], ["decision_function"])
    check(got["decision_function"], repository.models["svc"].decision_function(ROWS[:5]))
    assert [one["name"] for one in ask.metadata("svc")["outputs"]] == [
        "predict",
        "decision_function",
    ]


def test_several_targets_have_probabilities_of_their_own(ask, repository):
    estimator = repository.models["targets"]
    got, _ = asked(ask, "targets", ROWS[:5], ["predict", "predict_proba_0", "predict_proba_1"])
    check(got["predict"], estimator.predict(ROWS[:5]))
    for number, expected in enumerate(estimator.predict_proba(ROWS[:5])):
        check(got[f"predict_proba_{number}"], expected)
    got, _ = asked(ask, "sums", ROWS[:5])
    check(got["predict"], repository.models["sums"].predict(ROWS[:5]))


def test_the_probabilities_of_a_single_target_in_a_list_have_a_row_for_each(ask, repository):
    estimator = repository.models["target"]
    got, _ = asked(ask, "target", ROWS[:5])
    check(got["predict"], estimator.predict(ROWS[:5]))
    [expected] = estimator.predict_proba(ROWS[:5])
    check(got["predict_proba"], expected)
    assert ask.metadata("target")["outputs"][1]["shape"] == [-1, expected.shape[1]]


def test_who_transforms_is_a_model(ask, repository):
    got, _ = asked(ask, "pca", ROWS[:5])
    check(got["transform"], repository.models["pca"].transform(ROWS[:5]))
    assert ask.metadata("pca")["outputs"][0]["shape"] == [-1, 2]


@pytest.mark.parametrize("kind", ["f4", "f8", "f2", "i8", "i4", "i1", "u8", "u1", "?"])
def test_numbers_reach_the_library_as_they_were_sent(ask, repository, kind):
    rows = np.abs(ROWS[:7] * 2).astype(kind)
    got, _ = asked(ask, "numbers", rows)
    check(got["predict_proba"], repository.models["numbers"].predict_proba(rows))


def test_no_number_becomes_another_one(ask):
    assert ask.rest("line", {"input": np.array([[1e9 + 1]])})["predict"][2] == [1.0]
    rows = np.array([[100_000_002], [100_000_004]])
    assert ask.rest("near", {"input": rows})["predict"][2] == [2, 4]


def test_texts_are_taken(ask, repository):
    got, _ = asked(ask, "onehot", TEXTS[:4])
    check(got["predict_proba"], repository.models["onehot"].predict_proba(TEXTS[:4]))
    words = np.array(["good", "bad day"], object)
    expected = repository.models["texts"].predict(words)
    check(ask.rest("texts", {"input": words})["predict"], expected)
    check(ask.rest("texts", {"input": words.reshape(-1, 1)})["predict"], expected)
    assert ask.metadata("texts")["inputs"][0] == {
        "name": "input", "datatype": "BYTES", "shape": [-1, 1],
    }  # fmt: skip


def test_what_the_configuration_declares_is_answered(ask, repository):
    [(name, (kind, shape, data))] = ask.rest("declared", {"rows": WHOLE[:4]}).items()
    assert (name, kind, shape) == ("value", "FP32", [4, 1])
    expected = repository.models["declared"].predict(WHOLE[:4])
    np.testing.assert_allclose(data, expected.astype("f4"), rtol=1e-7)


@pytest.mark.parametrize(
    ("model", "rows", "words"),
    [
        ("numbers", ROWS[:2, :3], r"Expected \[-1,4\], got \[2,3\]"),
        ("numbers", np.array([["a"] * 4], object), "could not convert string to float"),
        ("numbers", np.full((1, 4), np.inf), "infinity"),
        ("onehot", np.array([["a", "z"]], object), "unknown categories"),
        ("declared", np.zeros((1, 2)), "strictly positive"),
    ],
)
def test_rows_that_the_library_refuses_are_the_clients_fault(ask, model, rows, words):
    name = ask.metadata(model)["inputs"][0]["name"]
    with pytest.raises(tritonclient.grpc.InferenceServerException, match=words) as caught:
        ask.rpc(model, {name: rows})
    assert "INVALID_ARGUMENT" in caught.value.status()


def test_columns_may_come_one_by_one(ask, repository):
    columns = {f"c{n}": ROWS[:5, n] for n in range(4)}
    columns["c1"] = columns["c1"].astype("f4")
    expected = np.stack(list(columns.values()), axis=1)
    got = ask.rpc("numbers", columns)
    check(got["predict_proba"], repository.models["numbers"].predict_proba(expected))
    beyond = columns | {"c0": np.full(5, 2**53 + 1)}
    status, text = ask.rest("numbers", beyond)
    assert status == 400
    assert "column 'c0' holds numbers that float64" in text


def test_skops_trusts_types_that_are_listed(tmp_path):
    found = Repository(tmp_path)
    for name, kind in (("x", xgboost.XGBClassifier), ("l", lightgbm.LGBMClassifier)):
        model, file = kind(n_estimators=3).fit(ROWS, CLASSES), tmp_path / f"{name}.skops"
        skops.io.dump(model, file)
        types = ",".join(skops.io.get_untrusted_types(file=file))
        trusted = (
            f'parameters {{ key: "inferd_trusted_types" value {{ string_value: "{types}" }} }}'
        )
        save = partial(shutil.copy, file)
        found.add(f"{name}_not", model, HERE, "model.skops", save)
        found.add(name, model, HERE + trusted, "model.skops", save)
    with serve(tmp_path) as ask:
        reasons = ask.reasons()
        for name in ("x", "l"):
            got, _ = asked(ask, name, ROWS[:7])
            check(got["predict"], found.models[name].predict(ROWS[:7]))
            check(got["predict_proba"], found.models[name].predict_proba(ROWS[:7]))
            assert "types that are not trusted" in reasons[f"{name}_not"]
