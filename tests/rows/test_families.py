"""Generated graphs: what is called independent is so, and most of what is so is proved to be."""

import numpy as np
import onnxruntime
import pytest
from rows_dependent import DEPENDENT
from rows_independent import INDEPENDENT

from inferd.rows.verdict import verdict_on

ROWS = 5


def verdict_of(case):
    return verdict_on(case.model().SerializeToString())


@pytest.mark.parametrize("name", DEPENDENT)
def test_dependent_rows_are_never_called_independent(name):
    verdict = verdict_of(DEPENDENT[name])
    assert verdict.rows != "independent"
    assert verdict.reason


def test_dependent_rows_are_known_to_be():
    others = [name for name, case in DEPENDENT.items() if verdict_of(case).rows != "dependent"]
    assert len(DEPENDENT) >= 60
    assert not others


def test_independent_rows_are_proved_to_be():
    others = [name for name, case in INDEPENDENT.items() if verdict_of(case).rows != "independent"]
    assert len(INDEPENDENT) >= 60
    assert not others


@pytest.mark.parametrize("name", INDEPENDENT)
def test_rows_together_are_as_rows_alone(name):
    case = INDEPENDENT[name]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    content = case.model().SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    feed = case.feed(np.random.default_rng(0), ROWS)
    whole = session.run(None, feed)
    for row in range(ROWS):
        alone = session.run(None, {key: array[row : row + 1] for key, array in feed.items()})
        for many, one in zip(whole, alone, strict=True):
            np.testing.assert_allclose(many[row : row + 1], one, rtol=1e-4, atol=1e-5)
