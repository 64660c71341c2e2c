"""XGBoost's models, read into an Ensemble without XGBoost.

They are JSON or UBJSON since 1.0; until 3.0 it also wrote a binary format.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from inferd.errors import InvalidConfig, Unsupported
from inferd.formats.trees.binary import BinaryReader, decode_ubjson
from inferd.formats.trees.ensemble import (
    LESS,
    MAX_TARGETS,
    Ensemble,
    Tree,
    category_bounds,
    reached,
    refusing,
)

_SIGMOID = ("binary:logistic", "reg:logistic")
_EXP = ("count:poisson", "reg:gamma", "reg:tweedie", "survival:cox", "survival:aft")
_IDENTITY = (
    "reg:squarederror", "reg:squaredlogerror", "reg:absoluteerror", "reg:pseudohubererror",
    "reg:quantileerror", "reg:linear", "binary:logitraw", "rank:pairwise", "rank:ndcg", "rank:map",
)  # fmt: skip
_MAX_CATEGORY = 1 << 24  # XGBoost's limit: float32 cannot tell more apart

_TRANSFORMS = {
    **dict.fromkeys(_SIGMOID, "sigmoid"),
    **dict.fromkeys(_EXP, "exp"),
    **dict.fromkeys(_IDENTITY, ""),
    "multi:softprob": "softmax",
    "multi:softmax": "argmax",
    "binary:hinge": "positive",
}


def read_xgboost(content: bytes) -> Ensemble:
    """Return the model in `content`. Raises InvalidConfig, Unsupported for other kinds of model."""
    document = _document(content)
    with refusing("model of XGBoost"):
        return _ensemble(document["learner"])


def _document(content: bytes) -> Any:
    # Both begin with "{"; a quote or space follows in JSON, a size in UBJSON.
    if content[1:2] in (b"L", b"i", b"U", b"I", b"l", b"$", b"#"):
        return decode_ubjson(content)
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise InvalidConfig(f"the file is neither JSON nor UBJSON: {error}") from error


def _ensemble(learner: Mapping[str, Any]) -> Ensemble:
    params = learner["learner_model_param"]
    # One number in a text; since 3.1 a list of them in brackets.
    scores = [float(one) for one in str(params["base_score"]).strip("[]").split(",")]
    ensemble = _empty_ensemble(
        learner["objective"]["name"],
        int(params["num_feature"]),
        # num_class is 0 for everything but multi:*.
        max(int(params.get("num_class", 0)), int(params.get("num_target", 1)), 1),
        scores,
    )
    ensemble.names = [str(name) for name in learner.get("feature_names") or ()]
    booster = learner["gradient_booster"]
    _check_booster(booster["name"])
    weights = None
    if booster["name"] == "dart":
        # DART drops trees while it trains, and scales those that stay.
        weights = [float(one) for one in booster["weight_drop"]]
        booster = booster["gbtree"]
    model = booster["model"]
    targets = [int(one) for one in model["tree_info"]]
    for number, tree in enumerate(model["trees"]):
        weight = weights[number] if weights else 1.0
        ensemble.trees.append(_tree(tree, targets[number], weight))
    return ensemble


def _empty_ensemble(
    objective: str, feature_count: int, count: int, scores: list[float], *, as_seen: bool = True
) -> Ensemble:
    """Return an ensemble of `count` outputs that has no trees yet.

    `scores` are the base scores, one or `count`: transformed, `as_seen` by users, or else raw, as
    trees sum them. Raises Unsupported for other objectives, ValueError for a wrong `count`.
    """
    if objective not in _TRANSFORMS:
        raise Unsupported(f"objective '{objective}' of XGBoost is not supported")
    if not 1 <= count <= MAX_TARGETS:
        raise ValueError(f"it has {count} outputs, expected 1 to {MAX_TARGETS}")
    # The file has it as a probability, trees are summed in log odds.
    if as_seen and objective in _SIGMOID:
        scores = [math.log(score / (1 - score)) if 0 < score < 1 else 0.0 for score in scores]
    elif as_seen and objective in _EXP:
        scores = [math.log(score) if score > 0 else 0.0 for score in scores]
    base = scores * count if len(scores) == 1 else scores
    return Ensemble(feature_count, base, LESS, _TRANSFORMS[objective])


def _check_booster(name: str) -> None:
    if name not in ("gbtree", "dart"):
        raise Unsupported(f"booster '{name}' of XGBoost is not supported, only trees are")


def _check_leaves(value_count: int) -> None:
    if value_count > 1:
        raise Unsupported("trees with several values in a leaf are not supported")


def _tree(tree: Mapping[str, Any], target: int, weight: float) -> Tree:
    _check_leaves(int(tree.get("tree_param", {}).get("size_leaf_vector", 1)))
    left = np.asarray(tree["left_children"], np.int64)
    value = np.asarray(tree["split_conditions"], np.float32)
    if weight != 1.0:
        value = np.where(left < 0, value * np.float32(weight), value)
    found = Tree(
        np.asarray(tree["split_indices"], np.int64),
        value,
        left,
        np.asarray(tree["right_children"], np.int64),
        np.asarray(tree["default_left"]).astype(bool),
        target,
        _category_sets(tree),
    )
    is_pruned = int(tree.get("tree_param", {}).get("num_deleted", 0)) > 0
    return _without_deleted(found) if is_pruned else found


def _category_sets(tree: Mapping[str, Any]) -> dict[int, Any]:
    """Return the bounds of the category sets of nodes: a category in the set goes right."""
    if not np.any(np.asarray(tree.get("split_type", ()))):
        return {}
    categories = np.asarray(tree["categories"], np.int64)
    nodes, starts, sizes = (
        np.asarray(tree[f"categories_{name}"], np.int64).tolist()
        for name in ("nodes", "segments", "sizes")
    )
    if sum(sizes) > len(categories):
        raise ValueError("its sets of categories are larger than all there are")
    sets = {}
    for node, start, size in zip(nodes, starts, sizes, strict=True):
        chosen = categories[max(start, 0) : max(start, 0) + max(size, 0)]
        if min(node, start, size) < 0 or len(chosen) != size:
            raise ValueError("a set of categories is not there")
        if size and not 0 <= chosen.min() <= chosen.max() < _MAX_CATEGORY:
            raise ValueError(f"a category is not one of 0 to {_MAX_CATEGORY - 1}")
        sets[node] = category_bounds(chosen).astype(np.float32)
    return sets


def _without_deleted(tree: Tree) -> Tree:
    """Return `tree` without the nodes that pruning has cut off, which stay in the file.

    Other faults are left for check_trees to report.
    """
    is_reached = reached(tree)
    number = np.cumsum(is_reached) - 1
    left, right = (
        np.where(side[is_reached] >= 0, number[side[is_reached]], -1)
        for side in (tree.left, tree.right)
    )
    feature, value, nan_left = (
        tree.feature[is_reached],
        tree.value[is_reached],
        tree.nan_left[is_reached],
    )
    bounds = {int(number[node]): one for node, one in tree.bounds.items() if is_reached[node]}
    return Tree(feature, value, left, right, nan_left, tree.target, bounds)


_MAGIC = b"binf"
_DEFAULT_LEFT = 1 << 31
# The first fields of a learner's parameters, and the sizes of those of a learner, a booster and a
# tree, reserved space included.
_LEARNER, _LEARNER_BYTES = [("base", "<f4"), ("features", "<u4"), ("classes", "<i4")], 136
_BOOSTER_BYTES, _TREE_BYTES = 160, 148
_NODE = np.dtype(
    [("parent", "<i4"), ("left", "<i4"), ("right", "<i4"), ("split", "<u4"), ("value", "<f4")]
)
_STATISTICS_BYTES = 16


def read_xgboost_binary(content: bytes) -> Ensemble:
    """Return the model in `content`. Raises InvalidConfig, Unsupported for other kinds of model."""
    with refusing("binary model of XGBoost"):
        return _binary_ensemble(BinaryReader(content.removeprefix(_MAGIC)))


def _binary_ensemble(reader: BinaryReader) -> Ensemble:
    head = reader.take(_LEARNER_BYTES)
    base, feature_count, class_count = np.frombuffer(head, _LEARNER, 1)[0].item()
    major = int.from_bytes(head[20:24], "little")
    objective, booster = reader.text(), reader.text()
    # Before version 1 the base score was written raw, as the trees sum it.
    ensemble = _empty_ensemble(
        objective, feature_count, max(class_count, 1), [base], as_seen=major >= 1
    )
    _check_booster(booster)
    tree_count = int.from_bytes(reader.take(_BOOSTER_BYTES)[:4], "little")
    trees = [_binary_nodes(reader) for _ in range(tree_count)]
    targets = reader.array("<i4", tree_count).tolist()
    weights = reader.array("<f4") if booster == "dart" else np.ones(tree_count, np.float32)
    for nodes, target, weight in zip(trees, targets, weights, strict=True):
        ensemble.trees.append(_binary_tree(nodes, target, weight))
    return ensemble


def _binary_nodes(reader: BinaryReader) -> Any:
    _, count, _, _, _, leaf_size = np.frombuffer(reader.take(_TREE_BYTES), "<i4", 6).tolist()
    _check_leaves(leaf_size)
    nodes = reader.array(_NODE, count)
    reader.take(count * _STATISTICS_BYTES)
    return nodes


def _binary_tree(nodes: Any, target: int, weight: Any) -> Tree:
    left = nodes["left"].astype(np.int64)
    with np.errstate(over="ignore", invalid="ignore"):  # check_trees refuses what is not finite
        weighted = nodes["value"] * weight
    found = Tree(
        (nodes["split"] & (_DEFAULT_LEFT - 1)).astype(np.int64),
        np.where(left < 0, weighted, nodes["value"]),
        left,
        nodes["right"].astype(np.int64),
        (nodes["split"] & _DEFAULT_LEFT) != 0,
        target,
    )
    return _without_deleted(found)
