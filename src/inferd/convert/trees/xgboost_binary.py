"""XGBoost's binary models, which it wrote until 3.0, read into an Ensemble."""

from typing import Any

import numpy as np

from inferd.convert.trees.binary import BinaryReader
from inferd.convert.trees.ensemble import Ensemble, Tree
from inferd.convert.trees.xgboost import empty_ensemble, without_deleted
from inferd.errors import InvalidConfig, Unsupported

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
    try:
        return _ensemble(BinaryReader(content.removeprefix(_MAGIC)))
    except (ValueError, LookupError, ArithmeticError) as error:
        msg = f"the file is no binary model of XGBoost: {type(error).__name__} {error}"
        raise InvalidConfig(msg) from error


def _ensemble(reader: BinaryReader) -> Ensemble:
    head = reader.take(_LEARNER_BYTES)
    base, feature_count, class_count = np.frombuffer(head, _LEARNER, 1)[0].item()
    major = int.from_bytes(head[20:24], "little")
    objective, booster = reader.text(), reader.text()
    # Before version 1 the base score was written raw, as the trees sum it.
    ensemble = empty_ensemble(
        objective, feature_count, max(class_count, 1), [base], as_seen=major >= 1
    )
    if booster not in ("gbtree", "dart"):
        msg = f"booster '{booster}' of XGBoost is not supported, only trees are"
        raise Unsupported(msg)
    tree_count = int.from_bytes(reader.take(_BOOSTER_BYTES)[:4], "little")
    trees = [_nodes(reader) for _ in range(tree_count)]
    targets = reader.array("<i4", tree_count).tolist()
    weights = reader.array("<f4") if booster == "dart" else np.ones(tree_count, np.float32)
    for nodes, target, weight in zip(trees, targets, weights, strict=True):
        ensemble.trees.append(_tree(nodes, target, weight))
    return ensemble


def _nodes(reader: BinaryReader) -> Any:
    _, count, _, _, _, leaf_size = np.frombuffer(reader.take(_TREE_BYTES), "<i4", 6).tolist()
    if leaf_size > 1:
        msg = "trees with several values in a leaf are not supported"
        raise Unsupported(msg)
    nodes = reader.array(_NODE, count)
    reader.take(count * _STATISTICS_BYTES)
    return nodes


def _tree(nodes: Any, target: int, weight: Any) -> Tree:
    left = nodes["left"].astype(np.int64)
    found = Tree(
        (nodes["split"] & (_DEFAULT_LEFT - 1)).astype(np.int64),
        np.where(left < 0, nodes["value"] * weight, nodes["value"]),
        left,
        nodes["right"].astype(np.int64),
        (nodes["split"] & _DEFAULT_LEFT) != 0,
        target,
    )
    return without_deleted(found)
