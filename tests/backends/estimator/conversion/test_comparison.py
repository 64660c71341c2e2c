import numpy as np
import pytest

from inferd.backends.estimator.conversion.conversion import differences

SHARES = np.array([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]])
LABELS = np.array([["a"], ["a"], ["b"]], object)


def test_numbers_differ_as_a_share_of_large_ones_and_as_they_are_below_one():
    got = np.array([[0.1001], [1000.5], [np.nan], [np.inf]], np.float32)
    want = np.array([[0.1], [1000.0], [np.nan], [np.inf]])
    [found] = differences({"predict": got}, {"predict": want}, 1e-3)
    assert found.largest == pytest.approx(5e-4, rel=1e-3)
    assert (found.row, found.differing) == (1, 0)
    assert "row 1: 1000.5 for 1000.0" in str(found)


def test_nan_for_a_number_is_a_difference_without_end():
    [found] = differences({"y": np.array([[np.nan]])}, {"y": np.array([[1.0]])}, 1e9)
    assert found.largest == np.inf


def test_a_label_may_be_the_other_one_where_both_are_as_likely():
    want = {"predict": LABELS, "predict_proba": SHARES}
    tied = np.array([[b"b"], [b"a"], [b"b"]], object)
    label, shares = differences({"predict": tied, "predict_proba": SHARES}, want, 1e-4)
    assert (str(label), str(shares)) == ("all equal", "all equal")
    wrong = np.array([[b"a"], [b"b"], [b"b"]], object)
    [label] = differences({"predict": wrong}, want, 1e-4)
    assert (label.largest, label.row, label.got, label.want, label.differing) == (1, 1, "b", "a", 1)


def test_another_number_of_values_is_a_difference():
    [found] = differences({"y": np.zeros((3, 2))}, {"y": np.zeros((3, 1))}, 1.0)
    assert (found.largest, found.got, found.want) == (np.inf, "shape (3, 2)", "shape (3, 1)")
