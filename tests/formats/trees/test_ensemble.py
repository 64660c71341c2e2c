import numpy as np
import onnxruntime
import pytest

from inferd.errors import InvalidConfig
from inferd.formats.trees.ensemble import (
    AT_MOST,
    LESS,
    PAIR,
    Ensemble,
    Tree,
    at_most,
    category_bounds,
    encode_ensemble,
)


def tree(feature=(1, 0, 0), value=(0.5, 10, 20), left=(1, -1, -1), right=(2, -1, -1), **more):
    nan_left = more.get("nan_left", [False] * len(left))
    integers = (np.array(one, np.int64) for one in (left, right))
    return Tree(
        np.array(feature, np.int64),
        np.array(value, np.float32),
        *integers,
        np.array(nan_left),
        more.get("target", 0),
        {node: np.array(one, np.float32) for node, one in more.get("bounds", {}).items()},
    )


def run(ensemble, rows):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    model = encode_ensemble(ensemble, "x", "y")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(["y"], {"x": np.array(rows, np.float32)})[0].tolist()


@pytest.mark.parametrize(("comparison", "at_it"), [(LESS, 20), (AT_MOST, 10)])
def test_a_row_goes_down_the_tree(comparison, at_it):
    ensemble = Ensemble(2, [1.0], comparison, trees=[tree()])
    assert run(ensemble, [[9, 0], [9, 1], [9, 0.5]]) == [[11], [21], [1 + at_it]]


def test_a_threshold_becomes_the_largest_float32_at_most_it():
    thresholds = np.array([0.5, 0.1, -0.1, 6.8e38, -6.8e38])
    greatest = float(np.finfo(np.float32).max)
    below_01 = float(np.nextafter(np.float32(0.1), np.float32(0)))
    assert at_most(thresholds).tolist() == [
        0.5,
        below_01,
        float(np.float32(-0.1)),
        greatest,
        -np.inf,
    ]


@pytest.mark.parametrize(("nan_left", "goes"), [(True, 10), (False, 20)])
def test_nan_goes_where_the_tree_says(nan_left, goes):
    ensemble = Ensemble(2, [0.0], LESS, trees=[tree(nan_left=[nan_left, False, False])])
    assert run(ensemble, [[0, float("nan")]]) == [[goes]]


@pytest.mark.parametrize(("nan_left", "goes"), [(True, 10), (False, 20)])
def test_a_node_of_several_values_goes_left_and_right_by_turns(nan_left, goes):
    several = tree(nan_left=[nan_left, False, False], bounds={0: [1, 2, 5, 7]})
    ensemble = Ensemble(2, [0.0], LESS, trees=[several, tree((0,), (0,), (-1,), (-1,))])
    rows = [[0, one] for one in (-9, 0.5, 1, 1.5, 2, 4, 5, 6.5, 7, 99, float("nan"))]
    wanted = [10, 10, 20, 20, 10, 10, 20, 20, 10, 10, goes]
    assert run(ensemble, rows) == [[one] for one in wanted]


def test_nodes_of_several_values_may_follow_each_other():
    chain = tree(
        *((0, 1, 0, 0, 0), (0, 0, 10, 20, 30), (1, 2, -1, -1, -1), (4, 3, -1, -1, -1)),
        bounds={0: [1, 2, 3, 4], 1: [5, 6]},
    )
    asked = [[0, 0], [0, 5], [1, 0], [2, 5], [2, 9], [3, 5], [4, 5]]
    found = run(Ensemble(2, [0.0], LESS, trees=[chain]), asked)
    assert found == [[10], [20], [30], [20], [10], [30], [20]]


def test_a_set_becomes_where_its_runs_begin_and_end():
    assert category_bounds(np.array([5, 0, 1, 1, 7])).tolist() == [0, 2, 5, 6, 7, 8]
    assert category_bounds(np.array([], np.int64)).tolist() == [0, 0]


def test_trees_add_up_for_their_target():
    trees = [tree(), tree(target=1), tree(target=1)]
    assert run(Ensemble(2, [0.0, 5.0], LESS, trees=trees), [[0, 0]]) == [[10, 25]]


def test_a_leaf_alone_is_a_tree():
    alone = tree((0,), (3,), (-1,), (-1,))
    assert run(Ensemble(2, [0.0], LESS, trees=[alone]), [[0, 0]]) == [[3]]


@pytest.mark.parametrize(
    ("transform", "sums", "expected"),
    [
        ("", [2.0, -1.0], [2, -1]),
        ("positive", [2.0, -1.0], [1, 0]),
        ("argmax", [-1.0, 2.0], [1]),
        ("exp", [0.0, 0.0], [1, 1]),
        ("sigmoid", [0.0, 0.0], [0.5, 0.5]),
        ("softmax", [3.0, 3.0], [0.5, 0.5]),
    ],
)
def test_sums_are_transformed(transform, sums, expected):
    zero = tree((0,), (0,), (-1,), (-1,))
    assert run(Ensemble(1, sums, LESS, transform, trees=[zero]), [[0]]) == [expected]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (tree(left=(0, -1, -1)), "not a tree"),
        (tree(left=(2, -1, -1)), "not a tree"),
        (tree(left=(3, -1, -1)), "not a tree"),
        (tree(left=(-1, -1, -1)), "one child"),
        (tree(left=(-2, -1, -1)), "one child"),
        (tree((1,) * 5, (0,) * 5, (1, -1, 3, 2, -1), (4, -1, -1, -1, -1)), "one child"),
        (tree((0,) * 5, (0,) * 5, (1, 3, -1, 1, -1), (2, 4, -1, 2, -1)), "not a tree"),
        (tree(feature=(2, 0, 0)), "feature outside of 0 to 1"),
        (tree(feature=(-1, 0, 0)), "feature outside of 0 to 1"),
        (tree(target=1), "for output 1 of 1"),
        (tree(value=(float("nan"), 0, 0)), "no finite number"),
        (tree(value=(1, 2)), "different lengths"),
        (tree(bounds={1: [0, 1]}), "a leaf has several values"),
        (tree(bounds={9: [0, 1]}), "a leaf has several values"),
        (tree(bounds={0: [0, np.inf]}), "no finite number"),
        (tree((), (), (), ()), "different lengths"),
    ],
)
def test_what_is_no_tree_is_refused(wrong, text):
    with pytest.raises(InvalidConfig, match=f"tree 1: .*{text}"):
        encode_ensemble(Ensemble(2, [0.0], LESS, trees=[tree(), wrong]), "x", "y")


def test_two_trees_in_a_circle_beside_the_root_are_refused():
    circle = tree((0,) * 3, (0,) * 3, (-1, 2, 1), (-1, 2, 1))
    with pytest.raises(InvalidConfig, match="not a tree"):
        encode_ensemble(Ensemble(1, [0.0], LESS, trees=[circle]), "x", "y")


@pytest.mark.parametrize(
    "labels", [np.array([7, -3]), np.array([b"no", b"yes"], object), np.array([0.5, 1.5])]
)
def test_the_label_of_the_likeliest_class_is_an_output_of_its_own(labels):
    ensemble = Ensemble(2, [0.0], LESS, "sigmoid", trees=[tree(value=(0.5, -1, 1))])
    ensemble.answer, ensemble.labels = PAIR, labels
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    model = encode_ensemble(ensemble, "x", "probabilities", "label")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == ["label", "probabilities"]
    found, shares = session.run(None, {"x": np.array([[0, 0], [0, 1]], np.float32)})
    texts = [[one.decode()] if isinstance(one, bytes) else [one] for one in labels.tolist()]
    assert found.tolist() == texts
    np.testing.assert_allclose(shares.sum(axis=1), 1)
