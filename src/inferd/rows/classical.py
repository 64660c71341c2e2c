"""Rules of operators of classical machine learning, of texts, of quantisation and of chance."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from inferd.formats.onnx_graph import RowNode
from inferd.rows.elementwise import broadcast
from inferd.rows.flow import RowFlow, RowTensors, Rule
from inferd.rows.maths import product
from inferd.rows.nets import recurrent
from inferd.rows.pieces import concat
from inferd.rows.size import ONE
from inferd.rows.value import (
    Mixed,
    RowTensor,
    Unclear,
    along,
    at,
    mixes,
    needed,
    plain,
    scaled,
    side_by_side,
)

ML, MICROSOFT = "ai.onnx.ml", "com.microsoft"


def _always(what: str) -> Rule:
    """Return the rule of an operator that mixes whatever rows it gets."""

    def rule(flow: RowFlow, node: RowNode, values: RowTensors) -> Sequence[RowTensor]:
        del flow
        if all(value is None or value.is_plain for value in values):
            return [RowTensor(None)] * len(node.outputs)
        raise mixes(node, what)

    return rule


def _random(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    del flow, values
    raise mixes(node, "draws random numbers for all rows together")


_SCALES = "is dynamic quantisation: its scale is taken from all rows together"


def _quantize(flow: RowFlow, node: RowNode, values: RowTensors) -> Sequence[RowTensor]:
    value = needed(values, 0)
    if not flow.takes_scales and not value.is_plain:
        raise scaled(node, _SCALES)
    # The scale and its zero point are scalars (ONNX, DynamicQuantizeLinear).
    return [value.same(), RowTensor(()), RowTensor(())][: len(node.outputs)]


def _quantized_product(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    """DynamicQuantizeMatMul: A, B, and the scale, zero point and bias of B."""
    one, other = needed(values, 0), needed(values, 1)
    if not flow.takes_scales and not (one.is_plain and other.is_plain):
        raise scaled(node, _SCALES)
    plain(node, values[2:], "scales")
    return product(flow, node, one, other)


def _quantized_recurrence(flow: RowFlow, node: RowNode, values: RowTensors) -> Sequence[RowTensor]:
    """DynamicQuantizeLSTM: an LSTM with scales and zero points of its weights behind."""
    if not flow.takes_scales and not all(one is None or one.is_plain for one in values):
        raise scaled(node, _SCALES)
    # ONNX's LSTM has eight inputs; the four behind them are the weights'
    # scales and zero points (com.microsoft).
    plain(node, values[8:], "scales")
    return recurrent(flow, node, values[:8])


def _per_row(usual: int = 2) -> Callable[[RowFlow, RowNode, RowTensors], Sequence[RowTensor]]:
    """Return the rule of a model of rows [n, features]: a label, [n], or scores, [n, any]."""

    def rule(flow: RowFlow, node: RowNode, values: RowTensors) -> Sequence[RowTensor]:
        value = needed(values, 0)
        # With one dim, ONNX Runtime takes the tensor for a single row of features.
        if value.rank != 2:
            msg = f"its input has {value.rank} dims"
            raise Unclear(msg)
        # With the batch along the features, one row's number would be a feature of another's.
        along(node, value, [1])
        scores = value.shaped((value.dims[0], flow.letter()), value.axis)
        # Regressors have scores alone.
        if usual == 1:
            return [scores]
        return [value.shaped(value.dims[:1], value.axis), scores][: len(node.outputs)]

    return rule


def _same(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    del flow
    value = needed(values, 0)
    plain(node, values[1:], "parameters")
    return value.same()


def _normalizer(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    del flow
    value = needed(values, 0)
    along(node, value, [value.rank - 1])
    return value.same()


def _per_column(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    """Scaler, Imputer: a parameter for each column, the last dim."""
    return _normalizer(flow, node, values)


def _extracted(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    value, chosen = needed(values, 0), needed(values, 1)
    along(node, value, [value.rank - 1])
    if chosen.axis is not None:
        if value.axis is not None:
            raise flow.crossing(node, value, chosen)
        msg = "it looks up columns that the rows say"
        raise Unclear(msg)
    count = chosen.dims[-1] if chosen.rank else ONE
    # ArrayFeatureExtractor makes [1, n] of a vector (ai.onnx.ml).
    if value.rank == 1:
        return value.shaped((ONE, count))
    return value.shaped((*value.dims[:-1], count), value.axis)


def _feature_vector(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    taken = [value for value in values if value is not None]
    for value in taken:
        # FeatureVectorizer flattens everything but dim 0, so rows elsewhere would be torn apart.
        if value.rank != 2 or value.axis != 0:
            msg = "not all of its inputs are rows"
            raise Unclear(msg)
    first = side_by_side(taken)
    whole = first.shaped((first.dims[0], flow.letter()), 0)
    return replace(whole, sources=flow.join(*taken))


def _one_hot(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    value = needed(values, 0)
    del node
    return value.shaped((*value.dims, flow.letter()), value.axis)


def _tf_idf(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    value = needed(values, 0)
    along(node, value, [value.rank - 1])
    return value.shaped((*value.dims[:-1], flow.letter()), value.axis)


def _string_normalizer(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    del flow
    value = needed(values, 0)
    # Without stop words each text becomes one text, which keeps its place.
    if node.attributes.get("stopwords"):
        raise mixes(node, "leaves out elements, so that those of other rows move up")
    return value.same()


def _biased(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    return broadcast(flow, node, *(value for value in values if value is not None))


def _quantized_binary(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    plain(node, (*values[1:3], *values[4:]), "scales")
    return broadcast(flow, node, needed(values, 0), needed(values, 3))


def _quantized_softmax(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    del flow
    value = needed(values, 0)
    plain(node, values[1:], "scales")
    start = at(node.attributes.get("axis", -1), value.rank)
    # Which Softmax it replaces is an attribute: before opset 13 that
    # flattened all dims from axis on.
    old = node.attributes.get("opset", 0) < 13
    along(node, value, range(start, value.rank) if old else [start])
    return value.same()


def _quantized_concat(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    plain(node, (*values[:2], *values[3::3], *values[4::3]), "scales")
    # Y's scale and zero point come first, then tensor, scale and zero point of each input.
    return concat(flow, node, values[2::3])


def _regions(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    """RoiAlign: each box takes from the image that it names."""
    del flow
    if all(value is None or value.is_plain for value in values):
        return RowTensor(None)
    what = "takes boxes out of images by number: the first dims of its inputs are not one batch"
    reason = f"{node} {what}"
    raise Mixed(reason, has_batch_dim=False)


def _grid_sample(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    value, grid = needed(values, 0), needed(values, 1)
    if value.axis != 0 or grid.axis != 0 or (value.outer, value.inner) != (ONE, ONE):
        msg = "not both of its inputs are rows"
        raise Unclear(msg)
    if (grid.outer, grid.inner) != (ONE, ONE):
        msg = "its inputs have their rows in different places"
        raise Unclear(msg)
    # The grid is [batch, heights, widths, 2]; its last dim has the coordinates (ONNX, GridSample).
    shape = (*value.dims[:2], *grid.dims[1:-1])
    return replace(value.shaped(shape, 0), sources=flow.join(value, grid))


# Maps are no tensors, and nothing splits a list of them.
def _zip_map(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    del flow, node, values
    msg = "it makes a list of maps"
    raise Unclear(msg)


_NUMBERS_ROWS = "finds elements in the whole batch: their number is not that of the rows"

RULES: dict[tuple[str, str], Rule] = {
    ("", "Bernoulli"): _random,
    ("", "Compress"): _always(_NUMBERS_ROWS),
    ("", "DynamicQuantizeLinear"): _quantize,
    ("", "GridSample"): _grid_sample,
    ("", "MaxRoiPool"): _regions,
    ("", "Multinomial"): _random,
    ("", "NonMaxSuppression"): _always(_NUMBERS_ROWS),
    ("", "NonZero"): _always(_NUMBERS_ROWS),
    ("", "RandomNormal"): _random,
    ("", "RandomNormalLike"): _random,
    ("", "RandomUniform"): _random,
    ("", "RandomUniformLike"): _random,
    ("", "RoiAlign"): _regions,
    ("", "StringNormalizer"): _string_normalizer,
    ("", "StringSplit"): _always("makes as many parts of each text as the longest of all has"),
    ("", "TfIdfVectorizer"): _tf_idf,
    ("", "Unique"): _always(_NUMBERS_ROWS),
    (ML, "ArrayFeatureExtractor"): _extracted,
    (ML, "Binarizer"): _same,
    (ML, "CastMap"): _zip_map,
    (ML, "CategoryMapper"): _same,
    (ML, "FeatureVectorizer"): _feature_vector,
    (ML, "Imputer"): _per_column,
    (ML, "LabelEncoder"): _same,
    (ML, "LinearClassifier"): _per_row(),
    (ML, "LinearRegressor"): _per_row(1),
    (ML, "Normalizer"): _normalizer,
    (ML, "OneHotEncoder"): _one_hot,
    (ML, "SVMClassifier"): _per_row(),
    (ML, "SVMRegressor"): _per_row(1),
    (ML, "Scaler"): _per_column,
    (ML, "TreeEnsemble"): _per_row(1),
    (ML, "TreeEnsembleClassifier"): _per_row(),
    (ML, "TreeEnsembleRegressor"): _per_row(1),
    (ML, "ZipMap"): _zip_map,
    (MICROSOFT, "BiasGelu"): _biased,
    (MICROSOFT, "DynamicQuantizeLSTM"): _quantized_recurrence,
    (MICROSOFT, "DynamicQuantizeMatMul"): _quantized_product,
    (MICROSOFT, "FastGelu"): _biased,
    (MICROSOFT, "Gelu"): _same,
    (MICROSOFT, "QLinearAdd"): _quantized_binary,
    (MICROSOFT, "QLinearConcat"): _quantized_concat,
    (MICROSOFT, "QLinearLeakyRelu"): _same,
    (MICROSOFT, "QLinearMul"): _quantized_binary,
    (MICROSOFT, "QLinearSigmoid"): _same,
    (MICROSOFT, "QLinearSoftmax"): _quantized_softmax,
    (MICROSOFT, "QuickGelu"): _same,
}
