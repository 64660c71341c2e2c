"""What is known of an estimator's rows by what it consists of."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import NMF
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier, VotingClassifier, VotingRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from sklearn.linear_model import LinearRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from inferd.backends.estimator.parts import parts_of, verdict_on

ROWS = np.abs(np.random.default_rng(0).normal(size=(20, 4)))
LABELS = np.arange(20) % 2


class Own(BaseEstimator):
    def predict(self, rows):
        return rows


def nearness(a, b):
    return abs(a - b).sum()


@pytest.mark.parametrize(
    ("estimator", "rows", "words"),
    [
        (StandardScaler(), "independent", ""),
        (RandomForestClassifier(2), "independent", ""),
        (make_pipeline(StandardScaler(), KMeans(2)), "independent", ""),
        (NMF(2), "dependent", "NMF solves for all rows"),
        (make_pipeline(StandardScaler(with_mean=False), NMF(2)), "dependent", "NMF"),
        (ColumnTransformer([("a", NMF(2), [0, 1])]), "dependent", "NMF"),
        (make_pipeline(FunctionTransformer(), LinearRegression()), "open", "FunctionTransformer"),
        (VotingRegressor([("a", Own()), ("b", LinearRegression())]), "open", "Own is not"),
        (KNeighborsClassifier(metric=nearness), "open", "it calls the function nearness"),
        (TransformedTargetRegressor(LinearRegression(), func=np.log1p, inverse_func=np.expm1),
         "open", "FunctionTransformer"),
        (DummyClassifier(), "independent", ""),
        (DummyClassifier(strategy="uniform"), "dependent", "DummyClassifier draws"),
        (DummyClassifier(strategy="stratified"), "dependent", "DummyClassifier draws"),
        (IterativeImputer(), "independent", ""),
        (IterativeImputer(sample_posterior=True), "dependent", "IterativeImputer draws"),
        (VotingClassifier([("a", GaussianNB())], voting="soft"), "independent", ""),
        (VotingClassifier([("a", GaussianNB())], voting="soft", flatten_transform=False),
         "dependent", "not for each row"),
    ],
    ids=lambda one: one if isinstance(one, str) else type(one).__name__,  # the same each time
)  # fmt: skip
def test_the_verdict_is_that_of_the_worst_part(estimator, rows, words):
    if not isinstance(estimator, VotingRegressor):
        estimator.fit(ROWS, LABELS)
    verdict = verdict_on(estimator)
    assert verdict.rows == rows
    assert words in verdict.reason


def test_circles_end():
    one, other = Own(), Own()
    one.other, other.other = other, {"back": [one]}
    assert list(parts_of(one)) == [one, other]
