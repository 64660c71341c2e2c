"""inferd convert: ONNX models that answer as the libraries of the models they were made of."""

import numpy as np
import onnxruntime
import pytest

pytest.importorskip("skl2onnx")
lightgbm = pytest.importorskip("lightgbm")
skops = pytest.importorskip("skops.io")
xgboost = pytest.importorskip("xgboost")

from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.multioutput import MultiOutputClassifier  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.svm import SVC  # noqa: E402

from inferd.cli.main import main  # noqa: E402

ROWS = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
NUMBERS = (ROWS[:, 0] > 0).astype(int) + (ROWS[:, 1] > 0)
CLASSES = np.array(["a", "b", "c"])[NUMBERS]


def converted(file, capsys, *more):
    made = file.with_name("made.onnx")
    code = main(["convert", str(file), "-o", str(made), *more])
    return code, made, "".join(capsys.readouterr())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of onnx, for what skl2onnx gives it
@pytest.mark.parametrize(
    ("estimator", "classes"),
    [
        (RandomForestClassifier(10, random_state=0), CLASSES),
        (HistGradientBoostingClassifier(max_iter=10), NUMBERS),
        (make_pipeline(StandardScaler(), LogisticRegression()), CLASSES),
    ],
)
def test_estimators_answer_the_same(tmp_path, capsys, estimator, classes):
    estimator.fit(ROWS, classes)
    skops.dump(estimator, tmp_path / "model.skops")
    code, made, text = converted(tmp_path / "model.skops", capsys)
    assert code == 0, text
    session = onnxruntime.InferenceSession(str(made), providers=["CPUExecutionProvider"])
    labels, shares = session.run(["predict", "predict_proba"], {"input": ROWS})
    assert labels.ravel().tolist() == estimator.predict(ROWS).tolist()
    np.testing.assert_allclose(shares, estimator.predict_proba(ROWS), atol=1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of skl2onnx
def test_what_the_library_does_not_answer_is_left_out(tmp_path, capsys):
    estimator = SVC().fit(ROWS, NUMBERS * 2.0)
    skops.dump(estimator, tmp_path / "model.skops")
    code, made, text = converted(tmp_path / "model.skops", capsys)
    assert code == 0, text
    session = onnxruntime.InferenceSession(str(made), providers=["CPUExecutionProvider"])
    assert [(one.name, one.type) for one in session.get_outputs()] == [
        ("predict", "tensor(double)")
    ]
    [labels] = session.run(None, {"input": ROWS})
    assert labels.tolist() == estimator.predict(ROWS).reshape(-1, 1).tolist()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of onnx, for what skl2onnx gives it
@pytest.mark.parametrize("count", [2, 3])
def test_the_shares_of_several_targets_are_left_out(tmp_path, capsys, count):
    """Of targets with different numbers of classes, they are arrays of different shapes."""
    targets = np.stack([NUMBERS > 0, np.minimum(NUMBERS, count - 1)], axis=1).astype(int)
    estimator = MultiOutputClassifier(LogisticRegression()).fit(ROWS, targets)
    skops.dump(estimator, tmp_path / "model.skops")
    code, made, text = converted(tmp_path / "model.skops", capsys)
    assert code == 0, text
    session = onnxruntime.InferenceSession(str(made), providers=["CPUExecutionProvider"])
    assert [one.name for one in session.get_outputs()] == ["predict"]
    [labels] = session.run(None, {"input": ROWS})
    assert labels.tolist() == estimator.predict(ROWS).tolist()


def test_xgboost_stops_at_its_best_iteration(tmp_path, capsys):
    noise = np.random.default_rng(1).normal(size=300)
    model = xgboost.XGBRegressor(n_estimators=60, learning_rate=0.8, early_stopping_rounds=3)
    held_out = [(ROWS[150:], ROWS[150:, 0])]
    model.fit(ROWS[:150], ROWS[:150, 0] + noise[:150], eval_set=held_out, verbose=False)
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    model.save_model(tmp_path / "model.ubj")
    code, made, text = converted(tmp_path / "model.ubj", capsys)
    assert code == 0, text
    session = onnxruntime.InferenceSession(str(made), providers=["CPUExecutionProvider"])
    [found] = session.run(None, {"input": ROWS})
    np.testing.assert_allclose(found.ravel(), model.predict(ROWS), atol=1e-5)


def test_a_model_that_answers_otherwise_is_refused_and_nothing_written(tmp_path, capsys):
    model = LogisticRegression().fit(ROWS, CLASSES)
    skops.dump(model, tmp_path / "model.skops")
    code, made, text = converted(tmp_path / "model.skops", capsys, "--tolerance=1e-12")
    assert code == 1
    assert "rows differ by more than 1e-12. Nothing was written" in text
    assert not made.exists()


def test_rows_of_the_users_own_are_compared(tmp_path, capsys):
    booster = lightgbm.LGBMClassifier(n_estimators=3, verbose=-1).fit(ROWS, CLASSES).booster_
    booster.save_model(tmp_path / "model.txt")
    np.savez(tmp_path / "rows.npz", x=ROWS[:50])
    more = f"--sample={tmp_path / 'rows.npz'}"
    code, _, text = converted(tmp_path / "model.txt", capsys, "--library=lightgbm", more)
    assert code == 0, text
    assert "compared with the library on the 50 rows" in text


def test_what_has_no_counterpart_is_refused(tmp_path, capsys):
    model = xgboost.XGBRegressor(booster="gblinear", n_estimators=2).fit(ROWS, ROWS[:, 0])
    model.save_model(tmp_path / "model.ubj")
    code, made, text = converted(tmp_path / "model.ubj", capsys)
    assert (code, made.exists()) == (1, False)
    assert "gblinear" in text
