"""Treelite's checkpoints, version 4 of the format, read into an Ensemble without Treelite.

The format: https://treelite.readthedocs.io, Treelite Serialization Format v4.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from inferd.errors import Unsupported
from inferd.formats.trees.binary import BinaryReader
from inferd.formats.trees.ensemble import (
    AT_MOST,
    LESS,
    MAX_TARGETS,
    Ensemble,
    Tree,
    at_most,
    category_bounds,
    refusing,
)
from inferd.tensor.array import Array

_MAJOR = 4
_FLOATS = {2: "<f4", 3: "<f8"}
_LEAF, _NUMBER, _CATEGORY = 0, 1, 2  # kinds of nodes
_PLACES = ("<u8", "<u8")
_MAX_CATEGORY = 1 << 24  # above it not every integer is a float32
_COMPARISONS = {2: LESS, 3: AT_MOST}
_TRANSFORMS = {
    "identity": "", "identity_multiclass": "", "sigmoid": "sigmoid", "multiclass_ova": "sigmoid",
    "softmax": "softmax", "max_index": "argmax", "exponential": "exp", "hinge": "positive",
    "logarithm_one_plus_exp": "softplus", "exponential_standard_ratio": "exp",
}  # fmt: skip


class _Nodes(NamedTuple):
    """The arrays of a tree in the file's order, up to the last one that affects an answer."""

    kind: Array
    left: Array
    right: Array
    feature: Array
    nan_left: Array
    leaf: Array
    threshold: Array
    comparison: Array
    is_match_right: Array
    vector: Array
    begin: Array
    end: Array
    categories: Array
    first_category: Array
    end_category: Array


def read_treelite(content: bytes) -> Ensemble:
    """Return the model in `content`. Raises InvalidConfig, Unsupported if it cannot be exact."""
    with refusing("checkpoint of Treelite"):
        return _ensemble(BinaryReader(content))


def _ensemble(reader: BinaryReader) -> Ensemble:
    threshold, leaf = _types(reader)
    tree_count, feature_count = reader.number("Q"), reader.number("i")
    reader.take(1)  # the task type
    is_average, count = reader.number("?"), _class_count(reader)
    classes = reader.array("<i4").tolist()
    transform, alpha, ratio = reader.text(), reader.number("f"), reader.number("f")
    base = reader.array("<f8").tolist()
    reader.text()
    _no_more_fields(reader)
    trees = [_nodes(reader, threshold, leaf) for _ in range(tree_count)]
    if len(base) != count or len(classes) != tree_count:
        msg = f"it has {len(base)} base scores for {count} classes, {len(classes)} classes of trees"
        raise ValueError(msg)
    ensemble = Ensemble(feature_count, base, _comparison(trees), _transform(transform))
    for nodes, target in zip(trees, classes, strict=True):
        # -1: every leaf has a value for each class, so it becomes one tree for each.
        targets = range(count) if target < 0 else [target]
        ensemble.trees += [_tree(nodes, one, count, ensemble.comparison) for one in targets]
    if is_average:  # the base is added after averaging
        averaged = max(1, len(ensemble.trees) // count)
        ensemble.scale /= averaged
        ensemble.base = [one * averaged for one in base]
    if transform == "exponential_standard_ratio":
        # exp2(-x / ratio), which isolation forests are scored by.
        ensemble.scale *= -math.log(2) / ratio
    elif transform in ("sigmoid", "multiclass_ova"):
        ensemble.scale *= alpha
    return ensemble


def _types(reader: BinaryReader) -> list[str]:
    """Return the types of thresholds and of leaves."""
    version = [reader.number("i") for _ in range(3)]
    if version[0] != _MAJOR:
        msg = f"it says version {'.'.join(map(str, version))} of the format, expected {_MAJOR}"
        raise ValueError(msg)
    return [_FLOATS[reader.number("B")] for _ in range(2)]


def _class_count(reader: BinaryReader) -> int:
    target_count, counts = reader.number("i"), reader.array("<i4").tolist()
    if target_count != 1 or len(counts) != 1 or not 1 <= counts[0] <= MAX_TARGETS:
        msg = f"{target_count} targets of {counts[:10]} classes are not supported, one is"
        raise Unsupported(msg)
    reader.array("<i4")  # the shape of leaves with several values
    reader.array("<i4")  # the target of each tree
    return int(counts[0])


def _transform(name: str) -> str:
    if name not in _TRANSFORMS:
        raise Unsupported(f"the transformation '{name}' of Treelite is not supported")
    return _TRANSFORMS[name]


def _nodes(reader: BinaryReader, threshold: str, leaf: str) -> _Nodes:
    count = reader.number("i")
    reader.take(1)  # whether there are categorical splits
    types = ("i1", "<i4", "<i4", "<i4", "?", leaf, threshold, "i1", "?", leaf, *_PLACES, "<u4")
    nodes = _Nodes(*(reader.array(one) for one in (*types, *_PLACES)))
    for one in ("<u8", "?", "<f8", "?", "<f8", "?"):  # statistics
        reader.array(one)
    _no_more_fields(reader)
    _no_more_fields(reader)
    if {len(one) for one in nodes[:9]} != {count}:
        raise ValueError(f"a tree's lists of nodes have other lengths than {count}")
    return nodes


def _no_more_fields(reader: BinaryReader) -> None:
    """Raise Unsupported if a later version added fields: answers may depend on them."""
    if reader.number("i") != 0:
        raise Unsupported("it has fields of a later version")


def _comparison(trees: list[_Nodes]) -> str:
    found = {int(one) for tree in trees for one in np.unique(tree.comparison[tree.kind == _NUMBER])}
    if len(found) > 1 or not found <= set(_COMPARISONS):
        raise Unsupported("comparisons other than all < or all <= are not supported")
    return _COMPARISONS[found.pop()] if found else AT_MOST


def _tree(nodes: _Nodes, target: int, count: int, comparison: str) -> Tree:
    is_leaf = nodes.kind == _LEAF
    leaves: Any = nodes.leaf
    if len(nodes.vector):
        if (nodes.end[is_leaf] - nodes.begin[is_leaf] != count).any():
            raise ValueError(f"a leaf has not {count} values")
        leaves = np.zeros(len(nodes.kind))
        leaves[is_leaf] = nodes.vector[nodes.begin[is_leaf] + np.uint64(target)]
    with np.errstate(over="ignore"):  # infinite values are refused by check_trees
        leaves = leaves.astype(np.float32)
    # Rounded down for <=, up for <: no float32 lies between the threshold and its rounding.
    limits = at_most(nodes.threshold) if comparison == AT_MOST else -at_most(-nodes.threshold)
    left, right = nodes.left.astype(np.int64), nodes.right.astype(np.int64)
    # In a Tree, a category in the set goes right.
    is_turned = (nodes.kind == _CATEGORY) & ~nodes.is_match_right
    return Tree(
        nodes.feature.astype(np.int64),
        np.where(is_leaf, leaves, limits),
        np.where(is_turned, right, left),
        np.where(is_turned, left, right),
        # With the children exchanged, the other one is left.
        nodes.nan_left.astype(bool) ^ is_turned,
        target,
        _category_sets(nodes, comparison),
    )


def _category_sets(nodes: _Nodes, comparison: str) -> dict[int, Array]:
    sets = {}
    for node in np.flatnonzero(nodes.kind == _CATEGORY).tolist():
        first, end = int(nodes.first_category[node]), int(nodes.end_category[node])
        chosen = nodes.categories[first:end].astype(np.int64)
        if len(chosen) != end - first or (len(chosen) and chosen.max() >= _MAX_CATEGORY):
            raise ValueError(f"node {node} has no set of categories from 0 to {_MAX_CATEGORY - 1}")
        bounds = category_bounds(chosen).astype(np.float64)
        # Features are truncated to integers.
        below = at_most(np.nextafter(bounds, -np.inf))
        sets[node] = below if comparison == AT_MOST else bounds.astype(np.float32)
    return sets
