import orjson
import pytest

from inferd.errors import InvalidConfig, Unsupported
from inferd.formats.trees.ensemble import encode_ensemble
from inferd.formats.trees.xgboost import read_xgboost

TREE = {
    "left_children": [1, -1, -1],
    "right_children": [2, -1, -1],
    "split_indices": [3, 0, 0],
    "split_conditions": [0.5, -1.0, 2.0],
    "default_left": [1, 0, 0],
    "tree_param": {"size_leaf_vector": "1"},
}


CATEGORIES = TREE | {
    "split_type": [1, 0, 0],
    "categories": [0, 1, 5],
    "categories_nodes": [0],
    "categories_segments": [0],
    "categories_sizes": [3],
}


def document(objective="reg:squarederror", tree=TREE, booster=None, **params):
    model = {"trees": [tree], "tree_info": [0]}
    head = {"num_class": "0", "num_feature": "6", "base_score": "5E-1", **params}
    learner = {
        "learner_model_param": head,
        "objective": {"name": objective},
        "gradient_booster": booster or {"name": "gbtree", "model": model},
    }
    return orjson.dumps({"learner": learner})


def test_a_model_is_read():
    found = read_xgboost(document())
    assert (found.feature_count, found.base, found.transform) == (6, [0.5], "")
    [tree] = found.trees
    assert tree.value.tolist() == [0.5, -1, 2]
    assert tree.nan_left.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("objective", "text", "base"),
    [
        ("binary:logistic", "5E-1", [0]),
        ("count:poisson", "1", [0]),
        ("multi:softprob", "5E-1", [0.5, 0.5, 0.5]),
        ("multi:softprob", "[1,2,3]", [1, 2, 3]),
    ],
)
def test_the_base_is_what_trees_add_to(objective, text, base):
    classes = "3" if objective.startswith("multi") else "0"
    assert read_xgboost(document(objective, base_score=text, num_class=classes)).base == base


def test_nodes_that_pruning_cut_off_are_passed_over():
    # Node 1 was split once: 3 and 4 are what was below it.
    tree = {
        "left_children": [2, -1, -1, -1, 5, -1, -1],
        "right_children": [4, -1, -1, -1, 6, -1, -1],
        "split_indices": [3, 9, 0, 9, 1, 0, 0],
        "split_conditions": [0.5, 7.0, -1.0, 7.0, 0.25, 2.0, 3.0],
        "default_left": [1, 0, 0, 0, 0, 0, 0],
        "tree_param": {"size_leaf_vector": "1", "num_deleted": "2"},
    }
    [found] = read_xgboost(document(tree=tree)).trees
    assert found.left.tolist() == [1, -1, 3, -1, -1]
    assert found.right.tolist() == [2, -1, 4, -1, -1]
    assert found.value.tolist() == [0.5, -1, 0.25, 2, 3]
    assert found.feature.tolist() == [3, 0, 1, 0, 0]
    assert found.nan_left.tolist() == [True, False, False, False, False]


@pytest.mark.parametrize("left", [[1, 0, -1], [9, -1, -1], []])
def test_a_pruned_tree_that_is_none_is_refused(left):
    tree = {**TREE, "left_children": left}
    tree["tree_param"] = {"size_leaf_vector": "1", "num_deleted": "1"}
    with pytest.raises(InvalidConfig):
        encode_ensemble(read_xgboost(document(tree=tree)), "x", "y")


def test_a_set_of_categories_becomes_bounds():
    [tree] = read_xgboost(document(tree=CATEGORIES)).trees
    assert tree.bounds[0].tolist() == [0, 2, 5, 6]


def test_dropped_trees_count_less():
    gbtree = {"model": {"trees": [TREE], "tree_info": [0]}}
    booster = {"name": "dart", "gbtree": gbtree, "weight_drop": [0.5]}
    assert read_xgboost(document(booster=booster)).trees[0].value.tolist() == [0.5, -0.5, 1]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (document("survival:magic"), "objective 'survival:magic'"),
        (document(booster={"name": "gblinear"}), "booster 'gblinear'"),
        (document(tree=TREE | {"tree_param": {"size_leaf_vector": "3"}}), "several values"),
    ],
)
def test_what_would_not_be_the_same_is_refused(content, text):
    with pytest.raises(Unsupported, match=text):
        read_xgboost(content)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"learner": 7}',
        b'{"learner": {}}',
        document()[:-9],
        document(num_feature="many"),
        document(num_class="100000000000000"),
        document(booster={"name": "gbtree", "model": {"trees": [TREE], "tree_info": []}}),
        document(tree=TREE | {"left_children": ["a"]}),
        document(tree=TREE | {"split_type": [1, 0, 0]}),
        document(tree=CATEGORIES | {"categories_nodes": ["a"]}),
        document(tree=CATEGORIES | {"categories_nodes": [-1]}),
        document(tree=CATEGORIES | {"categories_nodes": []}),
        document(tree=CATEGORIES | {"categories_segments": [1]}),
        document(tree=CATEGORIES | {"categories_sizes": [4]}),
        document(tree=CATEGORIES | {"categories_sizes": [-1]}),
        document(tree=CATEGORIES | {"categories": [0, 1, -5]}),
        document(tree=CATEGORIES | {"categories": [0, 1, 1 << 24]}),
        document(tree=TREE | {"split_conditions": [[1], [2, 3]]}),
        b"{L\x00\x00",
    ],
)
def test_other_files_are_refused(content):
    with pytest.raises(InvalidConfig):
        read_xgboost(content)
