"""LightGBM's text models (v2 to v4), read into an Ensemble without LightGBM."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from inferd.errors import Unsupported
from inferd.formats.trees.ensemble import (
    AT_MOST,
    MAX_TARGETS,
    Ensemble,
    Tree,
    at_most,
    category_bounds,
    refusing,
)

_CATEGORY, _DEFAULT_LEFT = 1, 2
_SIDES = ("left", "right")
_MISSING_SHIFT, _MISSING_NONE, _MISSING_ZERO = 2, 0, 1
_ZERO = np.float32(1e-35)  # features no farther from 0 count as 0
_BELOW_ZERO = np.nextafter(-_ZERO, np.float32(-np.inf))

_TRANSFORMS = {
    "binary": "sigmoid", "multiclass": "softmax", "multiclassova": "sigmoid",
    "cross_entropy": "sigmoid", "cross_entropy_lambda": "softplus", "regression": "",
    "regression_l1": "", "huber": "", "fair": "", "quantile": "", "mape": "", "lambdarank": "",
    "rank_xendcg": "", "poisson": "exp", "gamma": "exp", "tweedie": "exp", "": "",
}  # fmt: skip

Section = Mapping[str, str]


def read_lightgbm(content: bytes) -> Ensemble:
    """Return the model in `content`. Raises InvalidConfig, Unsupported if it cannot be exact."""
    with refusing("text model of LightGBM"):
        sections = _sections(content.decode())
        return _ensemble(sections[0], sections[1:])


def _sections(text: str) -> list[dict[str, str]]:
    """Return the header and each tree as key -> value."""
    lines = text.splitlines()
    if not lines or lines[0].strip() != "tree":
        raise ValueError("its first line is not 'tree'")
    if "end of trees" not in lines:
        raise ValueError("it is cut off before 'end of trees'")
    sections: list[dict[str, str]] = [{}]
    for line in lines[1 : lines.index("end of trees")]:
        key, _, value = line.partition("=")
        if key == "Tree":
            sections.append({})
        elif key.strip():
            sections[-1][key.strip()] = value
    return sections


def _ensemble(head: Section, trees: list[dict[str, str]]) -> Ensemble:
    name, *settings = head.get("objective", "").split() or [""]
    # reg_sqrt trains on roots, and the answer is squared with its
    # sign: no transform here does that.
    if name not in _TRANSFORMS or "sqrt" in settings:
        raise Unsupported(f"objective '{head.get('objective')}' of LightGBM is not supported")
    options = dict(setting.partition(":")[::2] for setting in settings)
    per_iteration = int(head["num_tree_per_iteration"])
    if not 1 <= per_iteration <= MAX_TARGETS:
        raise ValueError(f"num_tree_per_iteration is {per_iteration}, expected 1 to {MAX_TARGETS}")
    ensemble = Ensemble(
        int(head["max_feature_idx"]) + 1, [0.0] * per_iteration, AT_MOST, _TRANSFORMS[name]
    )
    names = head.get("feature_names", "").split()
    if names != [f"Column_{number}" for number in range(len(names))]:  # its default names
        ensemble.names = names
    ensemble.scale = float(options.get("sigmoid", 1)) if _TRANSFORMS[name] == "sigmoid" else 1.0
    if "average_output" in head:
        # Random forests: the mean of the trees instead of their sum.
        ensemble.scale /= max(1, len(trees) // per_iteration)
    for number, tree in enumerate(trees):
        # Of several classes, the trees of an iteration follow one another.
        ensemble.trees.append(_tree(tree, number % per_iteration))
    return ensemble


def _tree(tree: Section, target: int) -> Tree:
    """Return a tree. In the file, a child is an inner node, or the bitwise complement of a leaf."""
    if tree.get("is_linear", "0").strip() == "1":
        raise Unsupported("trees with linear leaves are not supported")
    leaves = _numbers(tree["leaf_value"], np.float64)
    features = _numbers(tree.get("split_feature", ""), np.int64)
    thresholds = _numbers(tree.get("threshold", ""), np.float64)
    # Bit 0: categorical. Bit 1: what is missing goes left. Bits 2 and 3: what counts as missing.
    kinds = _numbers(tree.get("decision_type", ""), np.int64)
    inner, count = len(features), len(leaves)
    if not inner == len(thresholds) == len(kinds) == count - 1:
        raise ValueError("a tree's lists have different lengths")
    missing = kinds >> _MISSING_SHIFT & 3
    by_category = np.append(kinds & _CATEGORY, np.zeros(count, np.int64)) != 0
    # If nothing can be missing, NaN counts as 0.
    nan_left = np.where(missing == _MISSING_NONE, thresholds >= 0, kinds & _DEFAULT_LEFT)
    zero_goes_astray = (missing == _MISSING_ZERO) & ~by_category[:inner]
    values, around_zero = _with_missing_zeros(
        _around_zero(at_most(thresholds)),
        kinds & _DEFAULT_LEFT != 0,
        np.flatnonzero(zero_goes_astray).tolist(),
    )
    left, right = (_children(tree.get(f"{side}_child", ""), inner, count) for side in _SIDES)
    return Tree(
        np.concatenate([features, np.zeros(count, np.int64)]),
        np.concatenate([values, leaves.astype(np.float32)]),
        # In the file, a category in the set goes left, in a Tree right; NaN is in no set.
        np.where(by_category, right, left),
        np.where(by_category, left, right),
        np.concatenate([nan_left.astype(bool), np.zeros(count, bool)]) | by_category,
        target,
        _category_sets(tree, thresholds, np.flatnonzero(by_category).tolist()) | around_zero,
    )


def _around_zero(values: Any) -> Any:
    """Return `values`, those within _ZERO of 0 moved to the edge: such features count as 0."""
    return np.where(np.abs(values) > _ZERO, values, np.where(values < 0, _BELOW_ZERO, _ZERO))


def _with_missing_zeros(
    values: Any, default_left: Any, nodes: list[int]
) -> tuple[Any, dict[int, Any]]:
    """Return thresholds, and bounds of nodes, with which `nodes` send 0 their default way."""
    values, bounds = values.copy(), {}
    for node in nodes:
        value = values[node]
        if default_left[node]:
            if value < _BELOW_ZERO:
                bounds[node] = np.array([value, _BELOW_ZERO, _ZERO])
            else:
                values[node] = max(value, _ZERO)
        elif value > _ZERO:
            bounds[node] = np.array([_BELOW_ZERO, _ZERO, value])
        else:
            values[node] = min(value, _BELOW_ZERO)
    return values, bounds


def _category_sets(tree: Section, thresholds: Any, nodes: list[int]) -> dict[int, Any]:
    """Return the bounds of the category sets of `nodes`; a threshold is the index of its set."""
    if not nodes:
        return {}
    words = _numbers(tree["cat_threshold"], np.uint32)
    ends = _numbers(tree["cat_boundaries"], np.int64)
    if len(ends) < 2 or ends[0] < 0 or (np.diff(ends) < 0).any() or ends[-1] > len(words):
        raise ValueError("its sets of categories are not there")
    sets = []
    for first, end in itertools.pairwise(ends.tolist()):
        # A set is a bit field in words of 32 bits.
        bits = np.unpackbits(words[first:end].view(np.uint8), bitorder="little")
        bounds = category_bounds(np.flatnonzero(bits)).astype(np.float64)
        # Features are truncated to integers: anything above -1 becomes 0.
        sets.append(at_most(np.where(bounds == 0, -1.0, np.nextafter(bounds, -np.inf))))
    numbers = {node: int(thresholds[node]) for node in nodes}
    if min(numbers.values()) < 0:
        raise ValueError("a set of categories is not there")
    return {node: sets[number] for node, number in numbers.items()}


def _children(text: str, inner: int, count: int) -> Any:
    numbers = _numbers(text, np.int64)
    if len(numbers) != inner or (len(numbers) and numbers.min() < -count):
        raise ValueError("a tree has a child that is not there")
    # Leaves come after the inner nodes here; ~n is LightGBM's number of leaf n.
    return np.concatenate([np.where(numbers < 0, inner + ~numbers, numbers), np.full(count, -1)])


def _numbers(text: str, dtype: Any) -> Any:
    return np.array(text.split(), dtype)
