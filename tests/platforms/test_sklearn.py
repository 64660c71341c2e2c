"""scikit-learn's models, against what scikit-learn itself predicts."""

import base64
import contextlib
import http.client
import importlib
import json
import pickle
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
import skops.io
from server_thread import server_in_thread
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.tree import DecisionTreeRegressor

from inferd.backends.estimator.file import ALLOW_PICKLE, read_estimator
from inferd.backends.estimator.sklearn import SklearnBackend
from inferd.config.model import ModelConfig
from inferd.config.server import ServerConfig
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


REGRESSORS = [LinearRegression(), Ridge(), DecisionTreeRegressor(max_depth=4), SVR()]


@pytest.mark.parametrize("estimator", REGRESSORS, ids=lambda one: type(one).__name__)
def test_regressors_predict_the_same(tmp_path, estimator):
    estimator.fit(ROWS, TARGETS)
    got = answer(opened(saved(tmp_path, estimator)))["predict"].ravel()
    np.testing.assert_allclose(got, estimator.predict(ROWS), rtol=1e-5)


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
        lambda: read_estimator(knot["knot"], config),
        lambda: read_estimator(knot["knot.inner"], config),
    )
    assert [type(model).__module__ for model in models] == ["knot", "knot.inner"]


def test_a_model_loads_while_others_import_its_modules(knot):
    config = ModelConfig("m", parameters={ALLOW_PICKLE: "true"})

    def other():
        with contextlib.suppress(Exception):  # it may lose, and that is for it to mend
            importlib.import_module("knot.inner")

    model, _ = side_by_side(lambda: read_estimator(knot["knot"], config), other)
    assert type(model).__module__ == "knot"


class Constant(ClassifierMixin, BaseEstimator):
    def fit(self, rows, labels):
        self.n_features_in_ = rows.shape[1]
        self.classes_ = np.unique(labels)
        return self

    def predict(self, rows):
        return np.full(len(rows), 7)


def test_a_class_of_ones_own_runs_if_it_is_trusted(tmp_path):
    found = saved(tmp_path, Constant().fit(ROWS, LABELS))
    with pytest.raises(InvalidConfig, match=r"types that are not trusted: .*Constant"):
        opened(found)
    name = f"{Constant.__module__}.Constant"
    instance = opened(found, inferd_trusted_types=f"a.b, {name}")
    assert instance.traits.verdict.rows == "open"
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


def test_what_can_neither_predict_nor_transform_is_refused(tmp_path):
    with pytest.raises(InvalidConfig, match="a dict, which can neither predict nor transform"):
        opened(pickled(tmp_path, {"a": 1}), inferd_allow_pickle="true")


@pytest.mark.parametrize(
    "estimator",
    [StandardScaler(), PCA(3), make_pipeline(StandardScaler(), PCA(2))],
    ids=lambda one: type(one).__name__,
)
def test_what_transforms_transforms_the_same(tmp_path, estimator):
    estimator.fit(ROWS)
    got = answer(opened(saved(tmp_path, estimator)))
    np.testing.assert_allclose(got["transform"], estimator.transform(ROWS), atol=1e-3)


def test_texts_are_transformed(tmp_path):
    texts = ["good day", "bad day"]
    estimator = TfidfVectorizer().fit(texts)
    [got] = asked_texts(
        opened(pickled(tmp_path, estimator), inferd_allow_pickle="true"), [*texts, "day"]
    )
    expected = estimator.transform([*texts, "day"]).toarray()
    np.testing.assert_allclose(got, expected, rtol=1e-6)


class Sums:
    """No estimator of scikit-learn's: all it can do is predict."""

    def predict(self, rows):
        return rows.sum(axis=1)


class Longest:
    def predict(self, rows):
        return np.array([max(text.split(), key=len) for text in rows])


def pickled(folder, estimator):
    found = files(folder, "model.pickle")
    found.file.write_bytes(pickle.dumps(estimator))
    return found


def test_who_can_do_nothing_but_predict_is_served(tmp_path):
    found = pickled(tmp_path, Sums())
    got = answer(opened(found, inferd_allow_pickle="true"), ROWS[:5])
    assert list(got) == ["predict"]
    np.testing.assert_allclose(got["predict"].ravel(), ROWS[:5].sum(axis=1))


def asked_texts(instance, texts):
    array = np.array(texts, object).reshape(-1, 1)
    given = Tensor.from_numpy("input", array, DataType.BYTES)
    [response] = instance.execute([InferRequest("m", inputs=[given])])
    return [tensor.numpy() for tensor in response.outputs]


def test_who_takes_texts_gets_texts(tmp_path):
    texts, labels = ["good day", "bad day", "good", "bäd"], [1, 0, 1, 0]
    estimator = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, labels)
    instance = opened(pickled(tmp_path, estimator), inferd_allow_pickle="true")
    predicted, probabilities, *_ = asked_texts(instance, texts)
    assert predicted.ravel().tolist() == labels
    np.testing.assert_allclose(probabilities, estimator.predict_proba(texts), rtol=1e-6)
    longest = opened(pickled(tmp_path, Longest()), inferd_allow_pickle="true")
    assert asked_texts(longest, ["a bcd", "ef g"])[0].ravel().tolist() == [b"bcd", b"ef"]


@pytest.fixture
def mlserver(tmp_path):
    """mlserver(estimator, name=value) is an HTTP connection to "m" in a folder of MLServer's."""
    with contextlib.ExitStack() as opened:

        def serve(estimator, **settings):
            folder = tmp_path / "models" / "m"
            folder.mkdir(parents=True)
            joblib.dump(estimator, folder / "model.joblib")
            told = {"name": "m", "implementation": "mlserver_sklearn.SKLearnModel", **settings}
            (folder / "model-settings.json").write_text(json.dumps(told))
            allowed = 'parameters { key: "inferd_allow_pickle" value { string_value: "true" } }'
            (folder / "config.pbtxt").write_text(allowed)
            config = ServerConfig(
                model_repository=(str(folder.parent),), http_port=0, grpc_port=0, metrics_port=0
            )
            server = opened.enter_context(server_in_thread(config))
            connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
            opened.callback(connection.close)
            return connection

        yield serve


def predicted(connection, inputs, **more):
    """Return what "m" predicts for `inputs`, name to (datatype, values), or its complaint."""
    listed = [
        {"name": name, "datatype": kind, "shape": list(np.shape(data)), "data": data}
        for name, (kind, data) in inputs.items()
    ]
    connection.request("POST", "/v2/models/m/infer", json.dumps({"inputs": listed, **more}))
    answer = json.loads(connection.getresponse().read())
    if "error" in answer:
        return answer["error"]
    [one] = answer["outputs"]  # MLServer's clients decode no more
    return one["data"]


def test_tables_of_mlservers_clients_are_taken(mlserver):
    estimator = LogisticRegression(max_iter=500).fit(ROWS, LABELS)
    connection = mlserver(estimator)
    expected = estimator.predict(ROWS).tolist()
    columns = {f"column-{i}": ("FP64", ROWS[:, i].tolist()) for i in range(ROWS.shape[1])}
    assert predicted(connection, columns, parameters={"content_type": "pd"}) == expected
    assert predicted(connection, {"rows": ("FP64", ROWS.tolist())}) == expected
    assert predicted(connection, {"rows": ("INT64", ROWS.astype(int).tolist())}) == expected
    rows, wanted = {"rows": ("FP32", ROWS.tolist())}, [{"name": "predict_proba"}]
    np.testing.assert_allclose(
        np.reshape(predicted(connection, rows, outputs=wanted), (len(ROWS), -1)),
        estimator.predict_proba(ROWS),
        atol=1e-5,
    )


@pytest.mark.parametrize("max_batch_size", [0, 8])
def test_columns_that_the_model_was_fitted_with_may_come_in_any_order(mlserver, max_batch_size):
    estimator = LinearRegression().fit(ROWS[:, 20:23], TARGETS)
    estimator.feature_names_in_ = np.array(["a", "b", "c"], object)  # as pandas' tables leave them
    settings = {"max_batch_size": max_batch_size} if max_batch_size else {}
    connection = mlserver(estimator, **settings)
    columns = {name: ("FP32", ROWS[:, 20 + i].tolist()) for i, name in enumerate("abc")}
    swapped = {name: columns[name] for name in "cab"}
    np.testing.assert_allclose(
        predicted(connection, swapped), estimator.predict(ROWS[:, 20:23]), rtol=1e-5
    )
    assert "the request has the columns 'a', 'b', the model takes" in predicted(
        connection, {name: columns[name] for name in "ab"}
    )


def test_settings_that_list_columns_name_them(mlserver):
    estimator = LinearRegression().fit(ROWS[:, 20:22], TARGETS)
    inputs = [{"name": name, "datatype": "FP64", "shape": [-1]} for name in ("a", "b")]
    outputs = [{"name": "predict", "datatype": "INT64", "shape": [-1]}]
    connection = mlserver(estimator, inputs=inputs, outputs=outputs)
    columns = {"b": ("FP32", [2.0, 3.0]), "a": ("INT32", [1, 5])}
    np.testing.assert_allclose(
        predicted(connection, columns), estimator.predict([[1, 2], [5, 3]]), rtol=1e-5
    )


def test_texts_of_mlservers_clients_are_taken(mlserver):
    texts, labels = ["good day", "bad day", "good", "bad"], [1, 0, 1, 0]
    connection = mlserver(make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, labels))
    assert predicted(connection, {"predict": ("BYTES", texts)}) == labels


def test_texts_may_come_as_base64(mlserver):
    texts, labels = ["good day", "bad day", "good", "bad"], [1, 0, 1, 0]
    connection = mlserver(make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, labels))
    data = [base64.b64encode(text.encode()).decode() for text in texts]
    given = {"name": "x", "datatype": "BYTES", "shape": [4], "data": data}
    given["parameters"] = {"content_type": "base64"}
    connection.request("POST", "/v2/models/m/infer", json.dumps({"inputs": [given]}))
    [answer] = json.loads(connection.getresponse().read())["outputs"]
    assert answer["data"] == labels
