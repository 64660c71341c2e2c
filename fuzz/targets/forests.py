"""Files of forests, by their first byte: XGBoost (j, b), LightGBM (l), Treelite (t); to ONNX."""

from corpus import files

from inferd.errors import InferdError
from inferd.formats.trees.ensemble import encode_ensemble
from inferd.formats.trees.lightgbm import read_lightgbm
from inferd.formats.trees.treelite import read_treelite
from inferd.formats.trees.xgboost import read_xgboost, read_xgboost_binary

READERS = {b"j": read_xgboost, b"b": read_xgboost_binary, b"l": read_lightgbm, b"t": read_treelite}

_JSON = (
    b'{"version":[2,1,0],"learner":{"learner_model_param":{"num_class":"0","num_feature":"2",'
    b'"num_target":"1","base_score":"5E-1"},"objective":{"name":"binary:logistic"},'
    b'"gradient_booster":{"name":"gbtree","model":{"tree_info":[0],"trees":[{'
    b'"left_children":[1,-1,-1],"right_children":[2,-1,-1],"split_indices":[1,0,0],'
    b'"split_conditions":[0.5,-1.0,1.0],"default_left":[1,0,0],"split_type":[0,0,0],'
    b'"categories":[],"categories_nodes":[],"categories_segments":[],"categories_sizes":[]}]}}}}'
)
_LIGHTGBM = (
    b"tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nmax_feature_idx=1\n"
    b"objective=binary sigmoid:1\nfeature_names=a b\n\nTree=0\nnum_leaves=2\nnum_cat=0\n"
    b"split_feature=1\nthreshold=0.5\ndecision_type=2\nleft_child=-1\nright_child=-2\n"
    b"leaf_value=-1 1\n\nend of trees\n"
)
SEEDS = [
    b"j" + _JSON,
    b"j{L\0\0\0\0\0\0\0\x07learner{}}",
    b"l" + _LIGHTGBM,
    *(b"b" + one for one in files("tests/formats/trees/files/*.model")),
    *(b"t" + one for one in files("tests/formats/trees/files/*.tl")),
]


def target(data: bytes) -> bool:
    """Read, convert; return whether it is a forest."""
    try:
        encode_ensemble(READERS.get(data[:1], read_xgboost)(data[1:]), "x", "y")
    except InferdError:
        return False
    return True
