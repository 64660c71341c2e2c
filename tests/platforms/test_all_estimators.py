"""Every estimator of scikit-learn that predicts or transforms, over REST and gRPC.

Each is fitted, saved, served and asked for each of its outputs: one row, seven rows, and seven
requests joined. Answers are compared with what scikit-learn itself gives for the same rows.
Those that are refused are listed in REFUSED, with the reason.
"""

import json
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from asking import HERE, Repository, check, serve
from sklearn.base import is_classifier, is_regressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.utils import all_estimators
from sklearn.utils._test_common.instance_generator import _construct_instances

from inferd.backends.estimator.parts import verdict_on

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
NUMBERS = np.random.default_rng(0)
ROWS = np.abs(NUMBERS.normal(size=(40, 4))) + 0.1
CLASSES = (ROWS.sum(axis=1) > ROWS.sum(axis=1).mean()).astype(int) + (ROWS[:, 0] > 1)
TRUTHS = (CLASSES > 0).astype(int)
SUMS = ROWS @ [1.0, 2, 3, 4]
TEXTS = np.array(["good day", "bad day", "a good one", "no"] * 10, object)
METHODS = (
    "predict", "predict_proba", "predict_log_proba", "decision_function", "transform",
    "score_samples",
)  # fmt: skip

ROWS_OF = {
    "CountVectorizer": TEXTS,
    "TfidfVectorizer": TEXTS,
    "HashingVectorizer": TEXTS,
    "LabelEncoder": CLASSES,
    "LabelBinarizer": CLASSES,
    "IsotonicRegression": ROWS[:, 0],
    "PatchExtractor": NUMBERS.random((20, 8, 8)),
    "SparseCoder": ROWS[:, :3],
}
"""Estimators that take other rows than numbers in four columns."""

CLASSES_WANTED = ("NeighborhoodComponentsAnalysis", "SequentialFeatureSelector")
TWO_TARGETS = (
    "CCA",
    "PLSCanonical",
    "PLSSVD",
    "MultiOutput",
    "MultiTask",
    "ClassifierChain",
    "RegressorChain",
)

REFUSED = {
    "DictVectorizer": "takes a dict for each row",
    "FeatureHasher": "takes a dict, or any number of texts, for each row",
    "MultiLabelBinarizer": "takes a set for each row",
}
"""Estimators whose rows no tensor can be."""

RANDOM = ("DummyClassifier", "BernoulliRBM")
"""Estimators that draw random numbers when they answer."""


def instance_of(name, kind):
    if kind is FrozenEstimator:
        return FrozenEstimator(Ridge().fit(ROWS, SUMS))
    instance = next(iter(_construct_instances(kind)))
    if name == "SequentialFeatureSelector":
        instance.set_params(cv=2)
    if name == "PatchExtractor":
        instance.set_params(patch_size=(3, 3), max_patches=None)
    if name == "LocalOutlierFactor":
        instance.set_params(novelty=True)
    return instance


def fitted(name, kind, *, several=False):
    """Return an estimator fitted to one target or several, with its rows; None if it cannot be."""
    estimator = instance_of(name, kind)
    if name in ("LabelEncoder", "LabelBinarizer"):
        return (estimator.fit(CLASSES), CLASSES) if not several else None
    tags = estimator.__sklearn_tags__()
    rows = ROWS_OF.get(name, ROWS)
    rows = ROWS @ ROWS.T if tags.input_tags.pairwise else rows
    gives_classes = is_classifier(estimator) or name in CLASSES_WANTED
    labels = CLASSES if gives_classes else SUMS
    if several or name.startswith(TWO_TARGETS):
        several_classes = np.stack([CLASSES, TRUTHS], axis=1)
        several_sums = np.stack([SUMS, ROWS[:, 0] ** 2], axis=1)
        labels = several_classes if is_classifier(estimator) else several_sums
    if name == "ClassifierChain":
        labels = np.stack([TRUTHS, 1 - TRUTHS], axis=1)
    if tags.classifier_tags and not tags.classifier_tags.multi_class:
        labels = TRUTHS
    if several:
        can = tags.target_tags.multi_output and (
            is_classifier(estimator) or is_regressor(estimator)
        )
        if not can or name.startswith(TWO_TARGETS):
            return None
        try:
            return estimator.fit(rows, labels), rows
        except ValueError:  # of classifiers some take several labels, but of two classes only
            return estimator.fit(rows, np.stack([TRUTHS, 1 - TRUTHS], axis=1)), rows
    return estimator.fit(rows, labels), rows


def all_models():
    """Yield name, estimator and rows of all estimators, with one target and with several."""
    for name, kind in all_estimators():
        if name in REFUSED or not any(hasattr(kind, method) for method in ("predict", "transform")):
            continue
        for several in (False, True):
            found = fitted(name, kind, several=several)
            if found is not None and any(hasattr(found[0], method) for method in METHODS):
                yield f"{name}_several" if several else name, *found


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    MODELS = {name: (estimator, rows) for name, estimator, rows in all_models()}


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    found = Repository(tmp_path_factory.mktemp("models"))
    for name, (estimator, rows) in MODELS.items():
        joining = "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 30000 }\n"
        found.add(name, estimator, HERE + (joining if rows.ndim < 3 else ""))
    with serve(found.folder) as asking:
        yield asking


def expected_of(estimator, rows):
    """Return what scikit-learn gives, by the name of the output."""
    expected = {}
    for method in METHODS:
        if not callable(getattr(estimator, method, None)):
            continue
        result = getattr(estimator, method)(rows)
        classes = getattr(estimator, "classes_", None)
        is_list = isinstance(classes, list) and len(classes) > 1 and method.endswith("proba")
        if is_list:
            parts = result if isinstance(result, list) else list(np.asarray(result).T)
            expected |= {f"{method}_{number}": part for number, part in enumerate(parts)}
        else:
            expected[method] = result
    return expected


def compare(got, expected, name):
    for output, array in expected.items():
        check(got[output], array, 1e-5 if name.startswith(("MLP", "Gaussian")) else 1e-7)


@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_scikit_learn(ask, name):
    if name.startswith(RANDOM):
        return
    estimator, rows = MODELS[name]
    given_name = ask.metadata(name)["inputs"][0]["name"]
    for count in (1, 7):
        some = rows[:count]
        expected = expected_of(estimator, some)
        assert expected.keys() == {one["name"] for one in ask.metadata(name)["outputs"]}
        compare(ask.rpc(name, {given_name: some}, list(expected)), expected, name)
        compare(ask.rest(name, {given_name: some}, list(expected)), expected, name)
    shapes = {one["name"]: tuple(one["shape"][1:]) for one in ask.metadata(name)["outputs"]}
    for output, array in ask.rpc(name, {given_name: rows[:7]}, list(shapes)).items():
        assert shapes[output] == array.shape[1:]


def test_joined_requests_get_the_same_answers(ask):
    joined = runs = 0
    wrong = []
    with ThreadPoolExecutor(7) as pool:
        for name, (estimator, rows) in MODELS.items():
            if (
                verdict_on(estimator).rows != "independent"
                or rows.ndim > 2
                or name.startswith(RANDOM)
            ):
                continue
            outputs = list(expected_of(estimator, rows[:1]))

            def one(number, name=name, rows=rows, outputs=outputs):
                return ask.rpc(name, {"input": rows[number : number + 1]}, outputs)

            for number, got in enumerate(pool.map(one, range(7))):
                try:
                    compare(got, expected_of(estimator, rows[number : number + 1]), name)
                except AssertionError as error:
                    wrong.append(f"{name}: {error}")
            counted = statistics(ask, name)
            joined += counted["inference_count"] > counted["execution_count"]
            runs += 1
    print(f"{joined} of {runs} models had their requests joined")  # noqa: T201
    assert wrong == []
    assert joined > 0.9 * runs


def statistics(ask, name):
    ask.http.request("GET", f"/v2/models/{name}/stats")
    [found] = json.loads(ask.http.getresponse().read())["model_stats"]
    return found


def test_rows_that_count_as_independent_are():
    wrong, count = [], 0
    for name, (estimator, rows) in MODELS.items():
        if verdict_on(estimator).rows != "independent" or name.startswith(RANDOM):
            continue
        count += 1
        together = expected_of(estimator, rows[:7])
        alone = [expected_of(estimator, rows[number : number + 1]) for number in range(7)]
        for output, array in together.items():
            array = np.asarray(dense(array))
            apart = np.concatenate([np.asarray(dense(one[output])) for one in alone])
            apart = apart.reshape(array.shape)  # some leave out the dim of a single row
            is_same = (
                np.allclose(array, apart, rtol=1e-6, atol=1e-9, equal_nan=True)
                if array.dtype.kind == "f"
                else np.array_equal(array, apart)
            )
            if not is_same:
                wrong.append(f"{name}.{output}")
    print(f"{count} of {len(MODELS)} models count as independent, with one target or several")  # noqa: T201
    assert wrong == []


def dense(result):
    return result.toarray() if hasattr(result, "toarray") else result


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_still_there(name):
    assert name in dict(all_estimators())
