"""Columns sent one by one, in any order, against what each library says of the whole array."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import catboost
import lightgbm
import numpy as np
import pandas
import pytest
import xgboost
from asking import HERE, Repository, check, serve
from sklearn.linear_model import LinearRegression

pytestmark = pytest.mark.filterwarnings("ignore")
NUMBERS = np.random.default_rng(0)
ROWS = NUMBERS.normal(size=(200, 12)).astype(np.float32)
SUMS = ROWS @ (1.0 + np.arange(12))
TABLE = pandas.DataFrame(ROWS[:, :3], columns=["a b", "a_b", "c"])
CATEGORIES = pandas.DataFrame(
    {
        "same": pandas.Categorical([7] * 200),
        "city": pandas.Categorical(np.array(["oslo", "rome"])[(SUMS > 0).astype(int)]),
        "number": ROWS[:, 0],
    }
)
TOTALS = TABLE.to_numpy() @ [9.0, 1, 4]

JOINED = """max_batch_size: 2
dynamic_batching { preferred_batch_size: 2 max_queue_delay_microseconds: 300000 }
"""
MLFLOW = """flavors:
  sklearn:
    pickled_model: model.pkl
signature:
  inputs: '[{"type": "double", "name": "b"}, {"type": "double", "name": "c"}, {"type":
    "double", "name": "a"}]'
"""
COUNTED = {
    "lightgbm": "Column_",
    "lightgbm_class": "Column_",
    "xgboost": "f",
    "xgboost_class": "f",
    "catboost": "",
    "sklearn": "x",
}
"""Model -> how its library begins the names of columns without names."""

ORDERS = {
    "backwards": range(11, -1, -1),
    "as texts": sorted(range(12), key=str),  # 0, 1, 10, 11, 2, ...
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    found = Repository(tmp_path_factory.mktemp("models"))
    quiet = {"verbose": -1, "num_threads": 1}
    booster = lightgbm.train(quiet, lightgbm.Dataset(ROWS, SUMS), 5)
    found.add("lightgbm", booster, HERE, "lightgbm.txt", booster.save_model)
    found.add("lightgbm_class", lightgbm.LGBMRegressor(n_estimators=5).fit(ROWS, SUMS), HERE)
    model = xgboost.XGBRegressor(n_estimators=5).fit(ROWS, SUMS)
    found.add("xgboost", model, HERE, "model.ubj", model.save_model)
    found.add("xgboost_class", model, HERE)
    model = catboost.CatBoostRegressor(iterations=5, verbose=0, allow_writing_files=False)
    found.add("catboost", model.fit(ROWS, SUMS), HERE, "model.cbm", model.save_model)
    found.add("sklearn", LinearRegression().fit(ROWS, SUMS), HERE)
    declared = 'platform: "xgboost_json"\nmax_batch_size: 8\ninput [' + ",".join(
        f'{{name: "{name}" data_type: TYPE_FP32 dims: [1]}}' for name in ("f2", "f0", "f1")
    )
    declared += ']\noutput [{name: "predict" data_type: TYPE_FP32 dims: [1]}]\n'
    model = xgboost.XGBRegressor(n_estimators=5).fit(ROWS[:, :3], SUMS)
    found.add("declared", model, HERE + declared, "xgboost.json", model.save_model)
    wide = 'platform: "sklearn_joblib"\nmax_batch_size: 8\ninput [' + ",".join(
        f'{{name: "{name}" data_type: TYPE_FP32 dims: [6]}}' for name in ("low", "high")
    )
    wide += ']\noutput [{name: "predict" data_type: TYPE_FP64 dims: [1]}]\n'
    found.add("wide", LinearRegression().fit(ROWS, SUMS), HERE + wide)
    booster = lightgbm.train(quiet, lightgbm.Dataset(CATEGORIES, SUMS), 5)
    found.add("constant", booster, HERE, "lightgbm.txt", booster.save_model)
    found.add("single", LinearRegression().fit(TABLE[["c"]], TOTALS), HERE)
    found.add("joined", LinearRegression().fit(ROWS, SUMS), HERE + JOINED)
    found.add("kept", LinearRegression().fit(ROWS, SUMS), HERE + "response_cache { enable: true }")
    found.add("signed", LinearRegression().fit(ROWS[:, :3], TOTALS), HERE, "model.pkl")
    shutil.copytree(found.folder / "signed" / "1", found.folder / "signed", dirs_exist_ok=True)
    shutil.rmtree(found.folder / "signed" / "1")
    (found.folder / "signed" / "MLmodel").write_text(MLFLOW)
    found.add("alike", LinearRegression().fit(TABLE, TOTALS), HERE)
    return found


@pytest.fixture(scope="module")
def ask(repository):
    with serve(repository.folder, cache_config=("local,size=1000000",)) as asking:
        yield asking


def columns(beginning, order):
    return {f"{beginning}{number}": ROWS[:7, number] for number in order}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", COUNTED)
def test_columns_named_as_the_library_counts_them_may_come_in_any_order(
    ask, repository, name, order
):
    expected = repository.models[name].predict(ROWS[:7])
    for beginning in {COUNTED[name], ""}:  # data frames count with plain numbers
        got = ask.rpc(name, columns(beginning, ORDERS[order]))
        check(got["predict"], expected)


@pytest.mark.parametrize("name", COUNTED)
def test_columns_with_other_names_are_taken_as_they_come(ask, repository, name):
    expected = repository.models[name].predict(ROWS[:7, ::-1])
    check(ask.rpc(name, columns("mine", range(11, -1, -1)))["predict"], expected)


def test_counted_names_are_more_than_the_order_of_a_configuration(ask, repository):
    expected = repository.models["declared"].predict(ROWS[:7, :3])
    check(ask.rpc("declared", columns("f", (1, 2, 0)))["predict"], expected)


def test_mlflows_signature_tells_the_order_of_columns_that_the_model_does_not_know(ask, repository):
    expected = repository.models["signed"].predict(ROWS[:7, :3])
    given = {name: ROWS[:7, "bca".index(name)] for name in "abc"}
    check(ask.rpc("signed", given)["predict"], expected)
    check(ask.rpc("signed", {"rows": ROWS[:7, :3]})["predict"], expected)


def test_counted_columns_are_all_needed(ask):
    some = columns("Column_", range(1, 12))
    status, text = ask.rest("lightgbm", some)
    assert (status, "the request has 11 columns" in text) == (400, True)


def test_a_name_with_spaces_and_one_without_are_two(ask, repository):
    table = TABLE[:7]
    expected = repository.models["alike"].predict(table)
    given = {name: table[name].to_numpy() for name in ("c", "a_b", "a b")}
    check(ask.rpc("alike", given)["predict"], expected)


def test_columns_in_other_orders_are_never_joined(ask, repository):
    model = repository.models["joined"]
    orders = [range(12), range(11, -1, -1)]
    with ThreadPoolExecutor(2) as pool:
        given = [{f"c{number}": ROWS[:1, number] for number in order} for order in orders]
        answers = list(pool.map(partial(ask.rpc, "joined"), given))
    for order, got in zip(orders, answers, strict=True):
        check(got["predict"], model.predict(ROWS[:1, list(order)]))


def test_an_answer_is_not_kept_for_columns_in_another_order(ask, repository):
    for order in (range(12), range(11, -1, -1)):
        expected = repository.models["kept"].predict(ROWS[:7, list(order)])
        check(ask.rpc("kept", columns("c", order))["predict"], expected)


def test_a_table_of_one_column_has_its_name(ask, repository):
    table = TABLE[["c"]][:7]
    expected = repository.models["single"].predict(table)
    for name in ("c", "input"):
        check(ask.rpc("single", {name: table["c"].to_numpy()})["predict"], expected)


def test_inputs_of_several_columns_come_in_the_order_of_the_configuration(ask, repository):
    expected = repository.models["wide"].predict(ROWS[:7])
    given = {"high": ROWS[:7, 6:], "low": ROWS[:7, :6]}
    check(ask.rpc("wide", given)["predict"], expected)


def test_a_category_of_one_value_is_one(ask, repository):
    table = CATEGORIES[:7]
    given = {
        "number": table["number"].to_numpy(),
        "city": table["city"].to_numpy(dtype=object),
        "same": np.full(7, 7),
    }
    check(ask.rpc("constant", given)["predict"], repository.models["constant"].predict(table))
