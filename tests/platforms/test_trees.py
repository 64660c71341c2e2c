"""Forests of XGBoost and LightGBM in the FIL backend, against what these libraries predict."""

import lightgbm
import numpy as np
import pytest
import xgboost

from inferd.backends.onnx.trees import FilBackend
from inferd.config.model import ModelConfig
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.request import InferRequest
from inferd.errors import Unsupported
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

NUMBERS = np.random.default_rng(0)
ROWS = NUMBERS.normal(size=(300, 6)).astype(np.float32)
ROWS[NUMBERS.random(ROWS.shape) < 0.1] = np.nan
SUMS = np.nan_to_num(ROWS).sum(axis=1)
CLASSES = np.digitize(SUMS, [-1.5, 1.5])
BINARY = (SUMS > 0).astype(int)
POSITIVE = np.exp(SUMS / 4)


KINDS = {".ubj": "xgboost_ubj", ".json": "xgboost_json", ".txt": "lightgbm"}


def answer(folder, name, rows=ROWS):
    files = ModelFiles(folder, 1, folder, folder / name)
    backend, parameters = FilBackend(), {"model_type": KINDS[files.file.suffix]}
    said = ModelConfig("m", max_batch_size=1000, default_model_filename=name, parameters=parameters)
    config = backend.complete(files, said)
    instance = backend.open(files, config, Placement("m_0"))
    given = Tensor.from_numpy("input__0", rows, DataType.FP32)
    [response] = instance.execute([InferRequest("m", inputs=[given])])
    if isinstance(response, Exception):
        raise response
    return response.outputs[0].numpy()


@pytest.mark.parametrize("suffix", ["ubj", "json"])
@pytest.mark.parametrize(
    ("objective", "labels"),
    [
        ("reg:squarederror", SUMS),
        ("reg:absoluteerror", SUMS),
        ("reg:logistic", BINARY),
        ("binary:logistic", BINARY),
        ("binary:logitraw", BINARY),
        ("binary:hinge", BINARY),
        ("count:poisson", POSITIVE),
        ("reg:gamma", POSITIVE),
        ("reg:tweedie", POSITIVE),
        ("multi:softprob", CLASSES),
        ("multi:softmax", CLASSES),
        ("rank:pairwise", BINARY),
    ],
)
def test_xgboost_predicts_the_same(tmp_path, objective, labels, suffix):
    data = xgboost.DMatrix(ROWS, labels)
    if objective.startswith("rank"):
        data.set_group([100, 200])
    settings = {"objective": objective, "max_depth": 4, "nthread": 1}
    if objective.startswith("multi"):
        settings["num_class"] = 3
    booster = xgboost.train(settings, data, 12)
    booster.save_model(tmp_path / f"m.{suffix}")
    expected = booster.predict(xgboost.DMatrix(ROWS))
    got = answer(tmp_path, f"m.{suffix}")
    np.testing.assert_allclose(got, expected.reshape(len(ROWS), -1), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"booster": "dart", "rate_drop": 0.5},
        {"num_parallel_tree": 3, "subsample": 0.5},
        {"tree_method": "exact", "gamma": 5.0},
        {"base_score": 0.3, "objective": "binary:logistic"},
    ],
)
def test_xgboosts_other_trees_predict_the_same(tmp_path, settings):
    booster = xgboost.train({"nthread": 1, **settings}, xgboost.DMatrix(ROWS, BINARY), 8)
    booster.save_model(tmp_path / "m.ubj")
    expected = booster.predict(xgboost.DMatrix(ROWS)).reshape(-1, 1)
    got = answer(tmp_path, "m.ubj")
    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=2e-6)


def test_several_outputs_of_xgboost_predict_the_same(tmp_path):
    labels = np.stack([SUMS, -SUMS, SUMS * 2], axis=1)
    booster = xgboost.train({"nthread": 1}, xgboost.DMatrix(ROWS, labels), 5)
    booster.save_model(tmp_path / "m.json")
    got = answer(tmp_path, "m.json")
    np.testing.assert_allclose(got, booster.predict(xgboost.DMatrix(ROWS)), rtol=2e-6, atol=2e-6)


def test_a_linear_booster_is_told(tmp_path):
    settings = {"booster": "gblinear", "nthread": 1}
    xgboost.train(settings, xgboost.DMatrix(ROWS, SUMS), 3).save_model(tmp_path / "m.json")
    with pytest.raises(Unsupported, match=r"^model 'm': 'm\.json': booster 'gblinear'"):
        answer(tmp_path, "m.json")


@pytest.mark.parametrize(
    ("objective", "labels", "more"),
    [
        ("regression", SUMS, {}),
        ("regression_l1", SUMS, {}),
        ("huber", SUMS, {}),
        ("quantile", SUMS, {}),
        ("binary", BINARY, {}),
        ("binary", BINARY, {"sigmoid": 0.7}),
        ("binary", BINARY, {"use_missing": False}),
        ("binary", BINARY, {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}),
        ("regression", SUMS, {"boosting": "dart"}),
        ("poisson", POSITIVE, {}),
        ("gamma", POSITIVE, {}),
        ("tweedie", POSITIVE, {}),
        ("multiclass", CLASSES, {"num_class": 3}),
        ("multiclassova", CLASSES, {"num_class": 3}),
        ("cross_entropy", BINARY, {}),
        ("cross_entropy_lambda", BINARY, {}),
    ],
)
def test_lightgbm_predicts_the_same(tmp_path, objective, labels, more):
    settings = {"objective": objective, "verbose": -1, "num_threads": 1, "num_leaves": 7, **more}
    booster = lightgbm.train(settings, lightgbm.Dataset(ROWS, labels), 10)
    booster.save_model(tmp_path / "m.txt")
    expected = booster.predict(ROWS).reshape(len(ROWS), -1)
    got = answer(tmp_path, "m.txt")
    np.testing.assert_allclose(got, expected, rtol=5e-6, atol=5e-6)


def with_categories(count):
    """Return rows whose first two features are categories, labels, and rows to ask."""
    random = np.random.default_rng(count)
    rows = np.nan_to_num(random.normal(size=(600, 4))).astype(np.float32)
    rows[:, :2] = random.integers(0, count, (600, 2))
    effects = random.normal(size=(2, count))
    labels = effects[0][rows[:, 0].astype(int)] + effects[1][rows[:, 1].astype(int)] + rows[:, 2]
    asked = rows.copy()
    asked[::5, 0] = random.choice([-1, -0.5, 0.5, count - 0.25, count, count + 99, np.nan], 120)
    asked[1::7, 1] = np.nan
    return rows, labels, asked


@pytest.mark.parametrize("count", [3, 9, 70])
@pytest.mark.parametrize("one_hot", [1, 50])
def test_xgboosts_splits_by_category_predict_the_same(tmp_path, count, one_hot):
    rows, labels, asked = with_categories(count)
    kinds = ["c", "c", "q", "q"]
    data = xgboost.DMatrix(rows, labels, feature_types=kinds, enable_categorical=True)
    settings = {"tree_method": "hist", "max_cat_to_onehot": one_hot, "nthread": 1}
    booster = xgboost.train(settings, data, 10)
    asked[:, 0] = np.clip(asked[:, 0], 0, count - 1)  # XGBoost itself refuses to be asked others
    for suffix in ("json", "ubj"):
        booster.save_model(tmp_path / f"m.{suffix}")
        given = xgboost.DMatrix(asked, feature_types=kinds, enable_categorical=True)
        expected = booster.predict(given).reshape(-1, 1)
        got = answer(tmp_path, f"m.{suffix}", asked)
        np.testing.assert_allclose(got, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("count", [3, 9, 70])
@pytest.mark.parametrize("use_missing", [True, False])
def test_lightgbms_splits_by_category_predict_the_same(tmp_path, count, use_missing):
    rows, labels, asked = with_categories(count)
    settings = {"verbose": -1, "num_threads": 1, "min_data_per_group": 1, "cat_smooth": 1}
    settings["use_missing"] = use_missing
    data = lightgbm.Dataset(rows, labels, categorical_feature=[0, 1])
    booster = lightgbm.train(settings, data, 10)
    booster.save_model(tmp_path / "m.txt")
    got = answer(tmp_path, "m.txt", asked)
    expected = booster.predict(asked).reshape(-1, 1)
    np.testing.assert_allclose(got, expected, rtol=5e-6, atol=5e-6)


NEAR_ZERO = [0.0, -0.0, 1e-36, -1e-36, 1e-35, -1e-35, 2e-35, -2e-35, 1.0, -1.0, np.nan, np.inf]


@pytest.mark.parametrize("use_missing", [True, False])
def test_zeros_that_mean_missing_go_where_lightgbm_sends_them(tmp_path, use_missing):
    settings = {"verbose": -1, "num_threads": 1, "zero_as_missing": True}
    settings["use_missing"] = use_missing
    random = np.random.default_rng(3)
    rows = random.normal(size=(600, 4)).astype(np.float32)
    rows[random.random(rows.shape) < 0.4] = 0
    labels = np.where(rows[:, 0] == 0, 3, rows[:, 0]) + np.where(rows[:, 1] == 0, -3, rows[:, 1])
    lightgbm.train(settings, lightgbm.Dataset(rows, labels), 20).save_model(tmp_path / "m.txt")
    rows[:120, 0], rows[60:180, 1] = NEAR_ZERO * 10, NEAR_ZERO * 10
    expected = lightgbm.Booster(model_file=tmp_path / "m.txt").predict(rows).reshape(-1, 1)
    got = answer(tmp_path, "m.txt", rows)
    np.testing.assert_allclose(got, expected, rtol=5e-6, atol=5e-6)


STUMP = """tree
version=v4
num_class=1
num_tree_per_iteration=1
label_index=0
max_feature_idx=3
objective=regression
feature_names=a b c d
feature_infos=none none none none
tree_sizes=300

Tree=0
num_leaves=2
num_cat=0
split_feature=0
split_gain=1
threshold={threshold}
decision_type={kind}
left_child=-1
right_child=-2
leaf_value=1 2
leaf_weight=1 1
leaf_count=1 1
internal_value=0
internal_weight=0
internal_count=2
is_linear=0
shrinkage=1


end of trees
"""


@pytest.mark.parametrize("threshold", [-1, -2e-35, -1e-35, -1e-36, 0, 1e-36, 1e-35, 2e-35, 1])
@pytest.mark.parametrize("kind", [0, 2, 4, 6, 8, 10])
def test_thresholds_near_zero_compare_as_in_lightgbm(tmp_path, threshold, kind):
    text = STUMP.format(threshold=threshold, kind=kind)
    (tmp_path / "m.txt").write_text(text)
    rows = np.zeros((len(NEAR_ZERO), 4), np.float32)
    rows[:, 0] = NEAR_ZERO
    expected = lightgbm.Booster(model_str=text).predict(rows).reshape(-1, 1)
    assert np.array_equal(answer(tmp_path, "m.txt", rows), expected)
