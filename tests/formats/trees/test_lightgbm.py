import numpy as np
import pytest

from inferd.errors import InvalidConfig, Unsupported
from inferd.formats.trees.lightgbm import read_lightgbm

HEAD = """tree
version=v4
num_class=1
num_tree_per_iteration=1
max_feature_idx=3
objective={objective}

"""
TREE = """Tree=0
num_leaves=3
split_feature=2 1
threshold=0.1 -7
decision_type={kinds}
left_child=1 -1
right_child=-2 -3
leaf_value=1 2 3
is_linear=0

"""


CATEGORIES = (
    TREE.replace("=0.1 -7", "=0 -7").replace("{kinds}", "1 2")
    + "cat_boundaries=0 1 3\ncat_threshold=13 0 2\n"
)


def text(objective="regression", kinds="2 2", tree=TREE, head="", end="end of trees\n"):
    body = tree.replace("{kinds}", kinds)
    return (HEAD.format(objective=objective) + head + body + end).encode()


def test_a_model_is_read():
    found = read_lightgbm(text())
    assert (found.feature_count, found.base, found.transform) == (4, [0.0], "")
    [tree] = found.trees
    assert tree.left.tolist() == [1, 2, -1, -1, -1]
    assert tree.right.tolist() == [3, 4, -1, -1, -1]
    assert tree.value[2:].tolist() == [1, 2, 3]


def test_thresholds_compare_as_their_doubles_do():
    [tree] = read_lightgbm(text()).trees
    nearest = np.float32(0.1)
    assert float(nearest) > 0.1
    assert tree.value[0] == np.nextafter(nearest, np.float32(-1))


@pytest.mark.parametrize(
    ("kinds", "nan_left"),
    [
        ("2 2", [True, False]),
        ("0 0", [True, False]),
        ("8 8", [False, False]),
        ("10 10", [True] * 2),
    ],
)
def test_nan_is_zero_or_goes_its_own_way(kinds, nan_left):
    assert read_lightgbm(text(kinds=kinds)).trees[0].nan_left[:2].tolist() == nan_left


ZERO = np.float32(1e-35)
BELOW = np.nextafter(-ZERO, np.float32(-1))


@pytest.mark.parametrize(
    ("kind", "threshold", "values"),
    [
        (6, "-7", [-7, BELOW, ZERO]),  # zeros go left, with what is at most -7
        (6, "-1e-36", [ZERO]),
        (6, "7", [7]),
        (4, "-7", [-7]),
        (4, "1e-36", [BELOW]),
        (4, "7", [BELOW, ZERO, 7]),
    ],
)
def test_zeros_that_are_missing_go_their_own_way(kind, threshold, values):
    found = read_lightgbm(text(kinds=f"2 {kind}", tree=TREE.replace("=0.1 -7", f"=1 {threshold}")))
    [tree] = found.trees
    assert tree.value[0] == 1
    assert np.array_equal(tree.bounds.get(1, tree.value[1:2]), values)
    assert tree.nan_left[1] == (kind == 6)


def test_a_set_of_categories_becomes_bounds():
    [tree] = read_lightgbm(text(tree=CATEGORIES)).trees
    assert np.nextafter(tree.bounds[0], np.float32(9)).round(6).tolist() == [-1, 1, 2, 4]
    assert (tree.left[0], tree.right[0]) == (3, 1)
    assert tree.nan_left[0]
    [tree] = read_lightgbm(text(tree=CATEGORIES.replace("=0 -7", "=1 -7"))).trees
    assert np.nextafter(tree.bounds[0], np.float32(99)).round(4).tolist() == [33, 34]


def test_scales_are_kept():
    assert read_lightgbm(text("binary sigmoid:0.5")).scale == 0.5
    twice = TREE + TREE
    assert read_lightgbm(text(tree=twice, head="average_output\n")).scale == 0.5


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (text("magic"), "objective 'magic'"),
        (text("regression sqrt"), "objective 'regression sqrt'"),
        (text(tree=TREE.replace("is_linear=0", "is_linear=1")), "linear leaves"),
    ],
)
def test_what_would_not_be_the_same_is_refused(content, what):
    with pytest.raises(Unsupported, match=what):
        read_lightgbm(content)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"tree\n",
        b"\xff\xfe",
        text(end=""),
        text(kinds="1 2"),
        *(text(tree=CATEGORIES.replace("=0 1 3", wrong)) for wrong in ("=0", "=2 1 3", "=0 1 9")),
        text(tree=CATEGORIES.replace("=0 1 3", "=-1 1 3")),
        text(tree=CATEGORIES.replace("=0 -7", "=-1 -7")),
        text(tree=CATEGORIES.replace("=0 -7", "=nan -7")),
        text(tree=CATEGORIES.replace("=0 -7", "=7 -7")),
        text(tree=TREE.replace("left_child=1 -1", "left_child=1")),
        text(tree=TREE.replace("left_child=1 -1", "left_child=1 -9")),
        text(tree=TREE.replace("0.1 -7", "0.1 x")),
        text(tree=TREE.replace("leaf_value=1 2 3", "leaf_value=1")),
        text().replace(b"num_tree_per_iteration=1", b"num_tree_per_iteration=0"),
        text().replace(b"num_tree_per_iteration=1", b"num_tree_per_iteration=9999999999"),
    ],
)
def test_other_files_are_refused(content):
    with pytest.raises(InvalidConfig, match="no text model of LightGBM"):
        read_lightgbm(content)
