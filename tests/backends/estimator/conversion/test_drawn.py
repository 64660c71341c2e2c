import numpy as np

from inferd.backends.estimator.conversion.drawn import drawn_rows, rows_of_training, thresholds_in

NONE = np.zeros((0, 2))


def test_values_are_drawn_at_thresholds_beside_them_and_beyond():
    rows, count = drawn_rows({0: np.array([0.1, 2.0, 2.0])}, NONE, 2, 500)
    assert rows.shape == (500, 2)
    assert rows.dtype == np.float32
    assert count == 2
    at = np.float32(0.1)
    beside = {float(np.nextafter(at, np.float32(end))) for end in (-np.inf, np.inf)}
    values = set(rows[:, 0].tolist())
    assert {float(at), 2.0} | beside <= values
    assert min(values) < 0
    assert max(values) > 3


def test_the_same_model_is_compared_on_the_same_rows():
    one, other = (drawn_rows({1: np.array([3.0])}, NONE, 2, 9).rows for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_rows_of_training_are_among_those_of_a_model_that_keeps_them():
    class Neighbours:
        def __init__(self):
            self._fit_X = np.array([[1e9, 5.0], [1e9 + 64, 6.0]])

    kept = rows_of_training([Neighbours()], 2)
    rows = drawn_rows({}, kept, 2, 50).rows
    assert rows[:2].tolist() == kept.tolist()


def test_what_has_no_trees_has_no_thresholds():
    assert thresholds_in([object(), {}]) == {}
