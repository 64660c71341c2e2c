"""Ensemble: decision trees whose leaves are summed, and the ONNX model that does the same."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from inferd.errors import InvalidConfig
from inferd.formats.onnx_model import TREES, OnnxNode, OnnxPort, encode_model
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType, datatype_of

LESS, AT_MOST = "BRANCH_LT", "BRANCH_LEQ"
LEAF = "LEAF"

VALUES, CLASS, PAIR = "values", "class", "pair"
"""The answer for a row: its transformed sums; the index of its class; or the probabilities of both
classes, where the only sum is that of class 1."""

MAX_TARGETS = 1_000_000
"""The most outputs that are accepted; a file may claim any number."""
MAX_NODES = 20_000_000
"""More are refused: the ONNX model would exceed the 2 GiB of its format."""


@dataclass(frozen=True, slots=True)
class Tree:
    """One tree as arrays with one element per node; node 0 is the root.

    An inner node goes to `left` if its feature is less than `value` (or at most, depending on the
    ensemble's comparison), or if it is NaN and `nan_left` is set. A leaf has no children (-1) and
    adds `value` to `target`. An inner node in `bounds` has several thresholds in ascending order:
    it goes left below the first, right below the second, and so on, also beyond the last.
    """

    feature: Array
    value: Array
    left: Array
    right: Array
    nan_left: Array
    target: int
    bounds: Mapping[int, Array] = field(default_factory=dict)


@dataclass(slots=True)
class Ensemble:
    """Trees over `feature_count` features whose sums, plus `base`, are scaled and transformed.

    `transform` is a key of _TRANSFORMS, "" for none; `scale` multiplies the sums before it.
    `answer` is VALUES, CLASS or PAIR; a single value above `threshold` means class 1. `names` are
    those of the features, if the file has any. `labels` are what classes are called, numbers or
    bytes, where somebody knows: the model then has the label of the likeliest as another output.
    """

    feature_count: int
    base: list[float]
    comparison: str
    transform: str = ""
    scale: float = 1.0
    trees: list[Tree] = field(default_factory=list)
    answer: str = VALUES
    threshold: float = 0.5
    names: list[str] = field(default_factory=list)
    labels: Array | None = None

    @property
    def columns(self) -> int:
        """The number of values in the answer for a row."""
        if self.answer == PAIR:
            return 2
        return 1 if self.answer == CLASS or self.transform == "argmax" else len(self.base)


@contextmanager
def refusing(kind: str) -> Iterator[None]:
    """Raise InvalidConfig, which says that the file is no `kind`, for what its reader stumbles on.

    Whatever parts of the wrong kind raise when they are read: checking each before would say it all
    twice.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise InvalidConfig(f"the file is no {kind}: {type(error).__name__} {error}") from error


def check_trees(ensemble: Ensemble) -> None:
    """Check that every tree is well formed. Raises InvalidConfig.

    ONNX Runtime does not check: on a cycle it would never stop.
    """
    if sum(_node_count(tree) for tree in ensemble.trees) > MAX_NODES:
        raise InvalidConfig(f"the trees have more than {MAX_NODES} nodes")
    for number, tree in enumerate(ensemble.trees):
        if complaint := _complaint(tree, ensemble):
            raise InvalidConfig(f"tree {number}: {complaint}")


def category_bounds(categories: Array) -> Array:
    """Return the start and the exclusive end of each run of consecutive `categories`, in order.

    The empty set is one run that ends where it starts.
    """
    sorted_once = np.unique(categories)
    if not len(sorted_once):
        return np.zeros(2, np.int64)
    # A run ends where the next category is not the next integer.
    last = np.append(np.diff(sorted_once) > 1, True)
    first = np.insert(last[:-1], 0, True)
    return np.stack([sorted_once[first], sorted_once[last] + 1], axis=1).ravel()


def encode_ensemble(
    ensemble: Ensemble, input_name: str, output_name: str, label_name: str = ""
) -> bytes:
    """Return the ONNX model: FP32 [n, features] to FP32 [n, columns]. Raises InvalidConfig.

    If the ensemble has labels, the output `label_name`, [n, 1], comes first.
    """
    check_trees(ensemble)
    steps = [*_TRANSFORMS[ensemble.transform], *_answer_steps(ensemble)]
    nodes = [_trees_node(ensemble, input_name)]
    constants: dict[str, Array] = {
        "scale": np.array(ensemble.scale, np.float32),
        "base": np.array(ensemble.base, np.float32),
    }
    # Not the operator's own base_values: it would omit that of a target without trees.
    nodes.append(OnnxNode("Add", ("sums", "base"), ("based",), {}))
    nodes.append(OnnxNode("Mul", ("based", "scale"), ("step 0",), {}))
    for number, (op, attributes, constant) in enumerate(steps):
        inputs = (f"step {number}", *((f"constant {number}",) if constant is not None else ()))
        if constant is not None:
            constants[f"constant {number}"] = np.asarray(constant)
        nodes.append(OnnxNode(op, inputs, (f"step {number + 1}",), attributes))
    nodes.append(OnnxNode("Identity", (f"step {len(steps)}",), (output_name,), {}))
    outputs = [OnnxPort(output_name, DataType.FP32, (-1, ensemble.columns))]
    if ensemble.labels is not None:
        constants["labels"] = ensemble.labels
        nodes.append(OnnxNode("ArgMax", (output_name,), ("likeliest",), {"axis": 1, "keepdims": 1}))
        nodes.append(OnnxNode("Gather", ("labels", "likeliest"), (label_name,), {}))
        outputs.insert(0, OnnxPort(label_name, datatype_of(ensemble.labels.dtype), (-1, 1)))
    return encode_model(
        nodes,
        constants,
        [OnnxPort(input_name, DataType.FP32, (-1, ensemble.feature_count))],
        outputs,
    )


def at_most(thresholds: Any) -> Any:
    """Return the largest float32 at most each threshold: float32 features compare the same."""
    # The largest float32: beyond it, a threshold compares the same with every float32.
    limited = np.clip(thresholds, -3.4028235e38, 3.4028235e38)
    single = limited.astype(np.float32)
    above = single > limited
    with np.errstate(over="ignore"):  # below the least finite number is -inf
        return np.where(above, np.nextafter(single, np.float32(-np.inf)), single)


Step = tuple[str, dict[str, Any], Any]
"""An operator as (name, attributes, second input or None)."""

_ARGMAX: list[Step] = [("ArgMax", {"axis": 1, "keepdims": 1}, None), ("Cast", {"to": 1}, None)]

_TRANSFORMS: dict[str, list[Step]] = {
    "": [],
    "sigmoid": [("Sigmoid", {}, None)],
    "softmax": [("Softmax", {"axis": 1}, None)],
    "exp": [("Exp", {}, None)],
    "softplus": [("Softplus", {}, None)],
    "positive": [("Greater", {}, np.float32(0)), ("Cast", {"to": 1}, None)],
    "argmax": _ARGMAX,
}
"""Name of a transform -> its operators in order."""


def _answer_steps(ensemble: Ensemble) -> list[Step]:
    if ensemble.answer == PAIR:
        # [p] times [-1, 1] plus [1, 0] is [1 - p, p].
        both = np.array([[-1, 1]], np.float32), np.array([1, 0], np.float32)
        return [("MatMul", {}, both[0]), ("Add", {}, both[1])]
    if ensemble.answer == VALUES or ensemble.transform in ("argmax", "positive"):
        return []
    if len(ensemble.base) > 1:
        return _ARGMAX
    return [("Greater", {}, np.float32(ensemble.threshold)), ("Cast", {"to": 1}, None)]


def reached(tree: Tree) -> Array:
    """Return for each node whether it can be reached from the root."""
    found = np.zeros(len(tree.left), bool)
    level = np.zeros(1, np.int64)
    while len(level):
        found[level] = True
        # By levels and not node by node: trees have millions of
        # nodes, and NumPy takes them at once.
        inner = level[tree.left[level] >= 0]
        level = np.concatenate([tree.left[inner], tree.right[inner]])
        # Without those seen before, so that it ends on a cycle, too.
        level = level[~found[level]]
    return found


def _complaint(tree: Tree, ensemble: Ensemble) -> str:
    count = len(tree.feature)
    lengths = {len(one) for one in (tree.value, tree.left, tree.right, tree.nan_left)}
    if count == 0 or lengths != {count}:
        return "its lists of nodes have different lengths"
    inner = tree.left >= 0
    if not np.array_equal(inner, tree.right >= 0) or min(tree.left.min(), tree.right.min()) < -1:
        return "a node has one child"
    children = np.concatenate([tree.left[inner], tree.right[inner]])
    # Every node but the root is a child exactly once, and all are reached from it: no cycles.
    if not np.array_equal(np.sort(children), np.arange(1, count)) or not reached(tree).all():
        return "its nodes are not a tree"
    if not all(0 <= node < count and inner[node] for node in tree.bounds):
        return "a leaf has several values"
    features = tree.feature[inner]
    if len(features) and not 0 <= features.min() <= features.max() < ensemble.feature_count:
        return f"it reads a feature outside of 0 to {ensemble.feature_count - 1}"
    if not 0 <= tree.target < len(ensemble.base):
        return f"it is for output {tree.target} of {len(ensemble.base)}"
    values = [tree.value, *tree.bounds.values()]
    is_finite = all(np.isfinite(one).all() for one in values)
    return "" if is_finite else "a threshold or leaf is no finite number"


def _node_count(tree: Tree) -> int:
    return len(tree.feature) + sum(len(bounds) - 1 for bounds in tree.bounds.values())


def _with_chains(tree: Tree) -> Tree:
    """Return `tree` with each node in `bounds` replaced by a chain of nodes.

    Children then have several parents, which ONNX Runtime accepts if all parents but one lead to
    them by the true branch.
    """
    lists = [
        one.tolist() for one in (tree.feature, tree.value, tree.left, tree.right, tree.nan_left)
    ]
    feature, value, left, right, nan_left = lists
    for node, bounds in tree.bounds.items():
        children, at = (left[node], right[node]), node
        for place, bound in enumerate(bounds.tolist()):
            if place:
                right[at] = at = len(feature)
                for column in lists:
                    column.append(column[node])
            value[at], left[at] = bound, children[place % 2]
            nan_left[at] = bool(tree.nan_left[node]) == (place == 0)
        right[at] = children[len(bounds) % 2]
    return Tree(
        *(np.array(feature), np.array(value), np.array(left), np.array(right)),
        np.array(nan_left),
        tree.target,
    )


def _trees_node(ensemble: Ensemble, input_name: str) -> OnnxNode:
    trees = [_with_chains(tree) if tree.bounds else tree for tree in ensemble.trees]
    sizes = [len(tree.feature) for tree in trees]
    inner = _joined([tree.left >= 0 for tree in trees], bool)
    tree_ids = np.repeat(np.arange(len(trees)), sizes)
    node_ids = _joined([np.arange(size) for size in sizes], np.int64)
    values = _joined([tree.value for tree in trees], np.float32)
    leaves = ~inner
    targets = np.repeat([tree.target for tree in trees], sizes) if trees else np.zeros(0, np.int64)
    attributes = {
        "nodes_treeids": tree_ids.tolist(),
        "nodes_nodeids": node_ids.tolist(),
        "nodes_featureids": np.where(inner, _joined([t.feature for t in trees], np.int64), 0),
        "nodes_modes": [ensemble.comparison if one else LEAF for one in inner.tolist()],
        # The operator's lists have an entry for each node; what a leaf has there is ignored.
        "nodes_values": np.where(inner, values, 0).astype(float).tolist(),
        "nodes_truenodeids": np.where(inner, _joined([t.left for t in trees], np.int64), 0),
        "nodes_falsenodeids": np.where(inner, _joined([t.right for t in trees], np.int64), 0),
        "nodes_missing_value_tracks_true": _joined([t.nan_left for t in trees], np.int64).tolist(),
        "target_treeids": tree_ids[leaves].tolist(),
        "target_nodeids": node_ids[leaves].tolist(),
        "target_ids": targets[leaves].tolist(),
        "target_weights": values[leaves].astype(float).tolist(),
        "n_targets": len(ensemble.base),
        "aggregate_function": "SUM",
        "post_transform": "NONE",
    }
    plain = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in attributes.items()}
    return OnnxNode("TreeEnsembleRegressor", (input_name,), ("sums",), plain, "trees", TREES)


def _joined(arrays: Sequence[Array], dtype: Any) -> Array:
    return np.concatenate([*arrays, np.zeros(0, dtype)]).astype(dtype)
