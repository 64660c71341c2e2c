"""scikit-learn's models, against what scikit-learn itself predicts."""

import importlib
import pickle
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import joblib
import numpy as np
import pytest
import skops.io
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.tree import DecisionTreeRegressor

from inferd.backends.onnx.estimator import ALLOW_PICKLE, load_estimator
from inferd.backends.onnx.instance import OnnxInstance
from inferd.backends.onnx.sklearn import SklearnBackend
from inferd.config.model import ModelConfig
from inferd.core.arrays import ArrayInstance
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.request import InferRequest
from inferd.errors import BackendFailed, InvalidConfig, Unsupported
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

pytestmark = pytest.mark.filterwarnings("ignore")  # of fits that did not converge
ROWS, LABELS = load_digits(return_X_y=True)
ROWS = ROWS[:300].astype(np.float32)
LABELS = LABELS[:300]
TARGETS = ROWS.sum(axis=1) + ROWS[:, 20]
WORDS = np.array(["zero", "one", "two", "three"])[LABELS % 4]


def files(folder, name="model.skops"):
    return ModelFiles(folder, 1, folder, folder / name)


def saved(folder, estimator):
    found = files(folder)
    skops.io.dump(estimator, found.file)
    return found


def opened(found, **parameters):
    backend = SklearnBackend()
    config = ModelConfig("m", parameters=parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return backend.open(found, backend.complete(found, config), Placement("m_0"))


def answer(instance, rows=ROWS):
    given = Tensor.from_numpy("input", rows, DataType.FP32)
    [response] = instance.execute([InferRequest("m", inputs=[given])])
    if isinstance(response, Exception):
        raise response
    return {tensor.name: tensor.numpy() for tensor in response.outputs}


CLASSIFIERS = [
    LogisticRegression(max_iter=50),
    RandomForestClassifier(20, max_depth=6, random_state=0),
    MLPClassifier((16,), max_iter=60, random_state=0),
    make_pipeline(StandardScaler(), LogisticRegression(max_iter=50)),
    HistGradientBoostingClassifier(max_iter=5),
    KNeighborsClassifier(3),
    SVC(probability=True, random_state=0),
]


@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("labels", [LABELS, WORDS], ids=["numbers", "words"])
def test_classifiers_predict_the_same(tmp_path, estimator, labels):
    estimator.fit(ROWS, labels)
    got = answer(opened(saved(tmp_path, estimator)))
    expected = estimator.predict(ROWS)
    if labels is WORDS:
        assert [word.decode() for word in got["predict"].ravel()] == expected.tolist()
    else:
        assert got["predict"].ravel().tolist() == expected.tolist()
    np.testing.assert_allclose(got["predict_proba"], estimator.predict_proba(ROWS), atol=1e-5)


@pytest.mark.parametrize(
    "estimator",
    [
        KNeighborsClassifier(3),  # few features: neighbours are looked for in a tree
        VotingClassifier([("a", GaussianNB()), ("b", LogisticRegression())]),
        VotingClassifier([("a", GaussianNB()), ("b", LogisticRegression())], voting="soft"),
    ],
)
def test_types_that_hold_only_numbers_and_names_are_trusted(tmp_path, estimator):
    rows = ROWS[:, 20:24]
    found = saved(tmp_path, estimator.fit(rows, LABELS > 4))
    got = answer(opened(found), rows)["predict"].ravel()
    assert got.astype(bool).tolist() == estimator.predict(rows).tolist()


def test_who_predicts_several_classes_gives_no_probabilities(tmp_path):
    labels = np.stack([LABELS % 3, LABELS % 2], axis=1)
    estimator = RandomForestClassifier(5, random_state=0).fit(ROWS, labels)
    got = answer(opened(saved(tmp_path, estimator)))
    assert list(got) == ["predict"]
    assert got["predict"].tolist() == estimator.predict(ROWS).tolist()


REGRESSORS = [LinearRegression(), Ridge(), DecisionTreeRegressor(max_depth=4), SVR()]


@pytest.mark.parametrize("estimator", REGRESSORS, ids=lambda one: type(one).__name__)
def test_regressors_predict_the_same(tmp_path, estimator):
    estimator.fit(ROWS, TARGETS)
    got = answer(opened(saved(tmp_path, estimator)))["predict"].ravel()
    np.testing.assert_allclose(got, estimator.predict(ROWS), rtol=1e-5)


def test_what_converts_runs_in_onnx_runtime(tmp_path):
    found = saved(tmp_path, LogisticRegression(max_iter=50).fit(ROWS, LABELS))
    assert isinstance(opened(found), OnnxInstance)


KNOT = """
import importlib._bootstrap, threading

for _ in range(30):  # until another thread, which has begun with what comes next, waits for this
    if any(importlib._bootstrap._blocking_on.values()):
        break
    threading.Event().wait(0.01)
from knot import inner

class Model(inner.Model):
    pass
"""
INNER = """
import knot

class Model:
    n_features_in_ = 4

    def predict(self, rows):
        return rows
"""


@pytest.fixture
def knot(tmp_path, monkeypatch):
    """Pickles of models whose modules import one another, each as "m.pickle" in its folder."""
    folder = tmp_path / "path" / "knot"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(KNOT)
    (folder / "inner.py").write_text(INNER)
    monkeypatch.syspath_prepend(folder.parent)
    found = {}
    for module in ("knot", "knot.inner"):
        (tmp_path / module).mkdir()
        found[module] = tmp_path / module / "m.pickle"
        found[module].write_bytes(pickle.dumps(importlib.import_module(module).Model()))
    for module in found:
        del sys.modules[module]
    yield found
    for module in found:
        sys.modules.pop(module, None)


def side_by_side(first, second):
    """Call both in threads, the second when the first imports "knot"; return what they give."""
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(first)
        for _ in range(1000):
            if "knot" in sys.modules:
                break
            threading.Event().wait(0.01)
        other = pool.submit(second)
        return one.result(60), other.result(60)


def test_models_whose_modules_import_one_another_load_side_by_side(knot):
    config = ModelConfig("m", parameters={ALLOW_PICKLE: "true"})
    models = side_by_side(
        lambda: load_estimator(knot["knot"], config),
        lambda: load_estimator(knot["knot.inner"], config),
    )
    assert [type(model).__module__ for model in models] == ["knot", "knot.inner"]


def test_a_model_loads_while_others_import_its_modules(knot):
    config = ModelConfig("m", parameters={ALLOW_PICKLE: "true"})

    def other():
        with suppress(Exception):  # it may lose, and that is for it to mend
            importlib.import_module("knot.inner")

    model, _ = side_by_side(lambda: load_estimator(knot["knot"], config), other)
    assert type(model).__module__ == "knot"


class Constant(ClassifierMixin, BaseEstimator):
    def fit(self, rows, labels):
        self.n_features_in_ = rows.shape[1]
        self.classes_ = np.unique(labels)
        return self

    def predict(self, rows):
        return np.full(len(rows), 7)


def test_what_does_not_convert_runs_in_scikit_learn_if_it_is_trusted(tmp_path):
    found = saved(tmp_path, Constant().fit(ROWS, LABELS))
    with pytest.raises(InvalidConfig, match=r"types that are not trusted: .*Constant"):
        opened(found)
    name = f"{Constant.__module__}.Constant"
    instance = opened(found, inferd_trusted_types=f"a.b, {name}")
    assert isinstance(instance, ArrayInstance)
    assert answer(instance)["predict"].ravel().tolist() == [7] * len(ROWS)


@pytest.mark.parametrize("name", ["model.joblib", "model.pkl"])
def test_a_pickle_has_to_be_allowed(tmp_path, name):
    estimator = LogisticRegression(max_iter=50).fit(ROWS, LABELS)
    found = files(tmp_path, name)
    joblib.dump(estimator, found.file)
    with pytest.raises(Unsupported, match="inferd_allow_pickle to true if you trust it"):
        opened(found)
    got = answer(opened(found, inferd_allow_pickle="true"))["predict"].ravel()
    assert got.tolist() == estimator.predict(ROWS).tolist()


def test_what_is_not_allowed_does_not_run(tmp_path):
    marker = tmp_path / "ran"

    class Evil:
        def __reduce__(self):
            return open, (str(marker), "w")

    found = files(tmp_path, "model.joblib")
    found.file.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(Unsupported):
        opened(found)
    assert not marker.exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x02}q\0."])
def test_another_file_is_refused(tmp_path, content):
    found = files(tmp_path)
    found.file.write_bytes(content)
    with pytest.raises(BackendFailed, match=r"^model 'm': 'model\.skops' cannot be loaded"):
        opened(found)


def test_what_cannot_predict_is_refused(tmp_path):
    with pytest.raises(InvalidConfig, match="holds a StandardScaler, which cannot predict"):
        opened(saved(tmp_path, StandardScaler().fit(ROWS)))
