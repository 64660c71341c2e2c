"""Files of XGBoost and LightGBM, run by these libraries, against what they answer themselves."""

import lightgbm
import numpy as np
import pytest
import xgboost
from asking import HERE, Repository, asked, check, serve

pytestmark = pytest.mark.filterwarnings("ignore")
NUMBERS = np.random.default_rng(0)
ROWS = NUMBERS.normal(size=(300, 5)).astype(np.float32)
ROWS[NUMBERS.random(ROWS.shape) < 0.1] = np.nan
SUMS = np.nan_to_num(ROWS).sum(axis=1)
LABELS = {
    "sum": SUMS,
    "class": np.digitize(SUMS, [-1, 1]),
    "truth": (SUMS > 0).astype(int),
    "positive": np.exp(SUMS / 4),
    "share": 1 / (1 + np.exp(-SUMS)),
    "several": np.stack([SUMS, -SUMS, SUMS * 2], axis=1),
}
MANY = {"num_class": 3}

XGBOOST = [
    ("reg:squarederror", "sum", {}),
    ("reg:squarederror", "several", {}),
    ("reg:squarederror", "several", {"multi_strategy": "multi_output_tree"}),
    ("reg:squarederror", "sum", {"booster": "dart", "rate_drop": 0.5}),
    ("reg:squarederror", "sum", {"booster": "gblinear"}),
    ("reg:squarederror", "sum", {"num_parallel_tree": 3, "subsample": 0.5}),
    ("reg:squaredlogerror", "positive", {}),
    ("reg:logistic", "truth", {}),
    ("reg:pseudohubererror", "sum", {}),
    ("reg:absoluteerror", "sum", {}),
    ("reg:quantileerror", "sum", {"quantile_alpha": [0.1, 0.9]}),
    ("reg:gamma", "positive", {}),
    ("reg:tweedie", "positive", {}),
    ("count:poisson", "positive", {}),
    ("binary:logistic", "truth", {}),
    ("binary:logitraw", "truth", {}),
    ("binary:hinge", "truth", {}),
    ("multi:softmax", "class", MANY),
    ("multi:softprob", "class", MANY),
    ("multi:softprob", "class", {**MANY, "booster": "gblinear"}),
    ("rank:pairwise", "truth", {}),
    ("rank:ndcg", "truth", {}),
    ("rank:map", "truth", {}),
    ("survival:cox", "positive", {}),
    ("survival:aft", "positive", {}),
]

LIGHTGBM = [
    ("regression", "sum", {}),
    ("regression", "sum", {"boosting": "dart"}),
    ("regression", "sum", {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}),
    ("regression", "sum", {"linear_tree": True}),
    ("regression_l1", "sum", {}),
    ("huber", "sum", {}),
    ("fair", "sum", {}),
    ("poisson", "positive", {}),
    ("quantile", "sum", {}),
    ("mape", "positive", {}),
    ("gamma", "positive", {}),
    ("tweedie", "positive", {}),
    ("binary", "truth", {}),
    ("binary", "truth", {"use_missing": False}),
    ("multiclass", "class", MANY),
    ("multiclassova", "class", MANY),
    ("cross_entropy", "share", {}),
    ("cross_entropy_lambda", "share", {}),
    ("lambdarank", "truth", {}),
    ("rank_xendcg", "truth", {}),
]


def xgboost_booster(objective, labels, more):
    data = xgboost.DMatrix(ROWS, LABELS[labels])
    if objective.startswith("rank"):
        data.set_group([100, 200])
    if objective == "survival:aft":
        data.set_float_info("label_lower_bound", LABELS[labels])
        data.set_float_info("label_upper_bound", LABELS[labels] * 2)
    settings = {"objective": objective, "max_depth": 3, "nthread": 1, **more}
    return xgboost.train(settings, data, 6)


def lightgbm_booster(objective, labels, more):
    groups = [100, 200] if "rank" in objective else None
    data = lightgbm.Dataset(ROWS, LABELS[labels], group=groups)
    settings = {"objective": objective, "verbose": -1, "num_threads": 1, "num_leaves": 7, **more}
    return lightgbm.train(settings, data, 6)


def name_of(library, number):
    return f"{library}_{number}"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    found = Repository(tmp_path_factory.mktemp("boosters"))
    for number, described in enumerate(XGBOOST):
        booster = xgboost_booster(*described)
        file, config = (
            ("model.ubj", "") if number % 2 else ("xgboost.json", 'platform: "xgboost_json"\n')
        )
        found.add(name_of("xgboost", number), booster, HERE + config, file, booster.save_model)
    for number, described in enumerate(LIGHTGBM):
        booster = lightgbm_booster(*described)
        save = booster.save_model
        found.add(name_of("lightgbm", number), booster, HERE, "lightgbm.txt", save)
    for name, model in CLASSES.items():
        found.add(name, model, HERE, "model.ubj", model.save_model)
    return found


def early(kind, labels):
    """Return a model that goes on for some rounds after its best one."""
    model = kind(n_estimators=60, learning_rate=0.8, max_depth=5, early_stopping_rounds=3)
    noisy = np.where(NUMBERS.random(300) < 0.4, NUMBERS.permutation(labels), labels)
    asked_of = [(ROWS[150:], noisy[150:])]
    return model.fit(ROWS[:150], noisy[:150], eval_set=asked_of, verbose=False)


CLASSES = {
    "classifier": xgboost.XGBClassifier(n_estimators=5).fit(ROWS, LABELS["class"]),
    "early_classifier": early(xgboost.XGBClassifier, LABELS["truth"]),
    "early_regressor": early(xgboost.XGBRegressor, SUMS),
    "forest": xgboost.XGBRFClassifier(n_estimators=5).fit(ROWS, LABELS["truth"]),
    "labels": xgboost.XGBClassifier(n_estimators=3).fit(
        ROWS, np.stack([LABELS["truth"], 1 - LABELS["truth"]], axis=1)
    ),
    "ranker": xgboost.XGBRanker(n_estimators=3).fit(ROWS, LABELS["truth"], group=[100, 200]),
}


@pytest.fixture(scope="module")
def ask(repository):
    with serve(repository.folder) as asking:
        yield asking


@pytest.mark.parametrize("number", range(len(XGBOOST)), ids=[one[0] for one in XGBOOST])
def test_xgboosts_boosters_answer_the_same(ask, repository, number):
    booster = repository.models[name_of("xgboost", number)]
    for count in (1, 7, 300):
        got, kinds = asked(ask, name_of("xgboost", number), ROWS[:count])
        assert kinds == {"predict": "FP32"}
        # DART weighs its trees in another order when it gets an array.
        check(got["predict"], booster.predict(xgboost.DMatrix(ROWS[:count])), 1e-5)


@pytest.mark.parametrize("number", range(len(LIGHTGBM)), ids=[one[0] for one in LIGHTGBM])
def test_lightgbms_boosters_answer_the_same(ask, repository, number):
    booster = repository.models[name_of("lightgbm", number)]
    for count in (1, 7, 300):
        got, kinds = asked(ask, name_of("lightgbm", number), ROWS[:count])
        assert kinds == {"predict": "FP64"}
        check(got["predict"], booster.predict(ROWS[:count]))


@pytest.mark.parametrize("name", CLASSES)
def test_files_of_xgboosts_classes_answer_as_the_class_does(ask, name):
    model = CLASSES[name]
    got, _ = asked(ask, name, ROWS[:7])
    check(got["predict"], model.predict(ROWS[:7]))
    assert ("predict_proba" in got) is hasattr(model, "predict_proba")
    if hasattr(model, "predict_proba"):
        check(got["predict_proba"], model.predict_proba(ROWS[:7]))
    shapes = {one["name"]: one["shape"][1:] for one in ask.metadata(name)["outputs"]}
    assert shapes == {output: list(array.shape[1:]) for output, array in got.items()}


def test_early_stopping_leaves_trees_that_do_not_count():
    for name in ("early_classifier", "early_regressor"):
        model = CLASSES[name]
        assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()


@pytest.mark.parametrize("kind", ["f4", "f8", "i8", "i4", "u1", "?", "f2"])
@pytest.mark.parametrize("name", ["xgboost_0", "lightgbm_0"])
def test_numbers_of_any_datatype_are_taken(ask, repository, name, kind):
    rows = np.abs(np.nan_to_num(ROWS[:7] * 2)).astype(kind)
    model = repository.models[name]
    given = rows.astype("f8")
    expected = model.predict(xgboost.DMatrix(given) if name == "xgboost_0" else given)
    got, _ = asked(ask, name, rows)
    check(got["predict"], expected)


@pytest.mark.parametrize("name", ["xgboost_1", "lightgbm_0"])
def test_what_does_not_fit_is_the_clients_fault(ask, name):
    for rows in (ROWS[:2, :4], np.array([["a"] * 5], object), ROWS[:0]):
        status, text = ask.rest(name, {"input": rows})
        assert status == 400, text


def test_integers_that_lightgbm_cannot_hold_are_refused(ask):
    status, text = ask.rest("lightgbm_0", {"input": np.full((1, 5), 2**53 + 1)})
    assert status == 400
    assert "cannot hold" in text


@pytest.mark.parametrize(
    ("file", "words"),
    [("model.ubj", "cannot be loaded"), ("lightgbm.txt", "is no whole text file")],
)
def test_another_file_is_refused(tmp_path, file, words):
    found = Repository(tmp_path)
    found.add("m", None, HERE, file, lambda path: path.write_bytes(b"tree\nno\x00"))
    with serve(tmp_path) as ask:
        assert f"'{file}' {words}" in ask.reasons()["m"]
