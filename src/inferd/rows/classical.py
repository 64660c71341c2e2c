"""Rules of operators of classical machine learning, of texts, of quantisation and of chance."""

from collections.abc import Sequence

from inferd.rows.elementwise import broadcast
from inferd.rows.flow import MICROSOFT, ML, RowCall, Rule, Rules, named
from inferd.rows.maths import product, softmax
from inferd.rows.nets import recurrent
from inferd.rows.pieces import concat
from inferd.rows.value import ONE, RowTensor, side_by_side


def _always(what: str, *, has_batch_dim: bool = True) -> Rule:
    """Return the rule of an operator that mixes whatever rows it gets."""

    def rule(call: RowCall) -> Sequence[RowTensor]:
        if call.is_plain:
            return [RowTensor(None)] * len(call.node.outputs)
        call.mixes(what, has_batch_dim=has_batch_dim)

    return rule


def _random(call: RowCall) -> RowTensor:
    call.mixes("draws random numbers for all rows together")


_SCALES = "is dynamic quantisation: its scale is taken from all rows together"


def _quantize(call: RowCall) -> Sequence[RowTensor]:
    value = call.needed(0)
    if not call.flow.takes_scales and not value.is_plain:
        call.mixes(_SCALES, is_scale=True)
    # The scale and its zero point are scalars (ONNX, DynamicQuantizeLinear).
    return [value.same(), RowTensor(()), RowTensor(())][: len(call.node.outputs)]


def _quantized_product(call: RowCall) -> RowTensor:
    """DynamicQuantizeMatMul: A, B, and the scale, zero point and bias of B."""
    one, other = call.needed(0), call.needed(1)
    if not call.flow.takes_scales and not (one.is_plain and other.is_plain):
        call.mixes(_SCALES, is_scale=True)
    call.plain(call.values[2:], "scales")
    return product(call, one, other)


def _quantized_recurrence(call: RowCall) -> Sequence[RowTensor]:
    """DynamicQuantizeLSTM: an LSTM with scales and zero points of its weights behind."""
    if not call.flow.takes_scales and not call.is_plain:
        call.mixes(_SCALES, is_scale=True)
    # ONNX's LSTM has eight inputs; the four behind them are the weights'
    # scales and zero points (com.microsoft).
    call.plain(call.values[8:], "scales")
    return recurrent(call.having(call.values[:8]))


def _regressor(call: RowCall) -> RowTensor:
    """A model of rows [n, features], which gives scores, [n, any]."""
    value = call.needed(0)
    # With one dim, ONNX Runtime takes the tensor for a single row of features.
    if value.rank != 2:
        call.unclear(f"its input has {value.rank} dims")
    # With the batch along the features, one row's number would be a feature of another's.
    call.along(value, [1])
    return value.resized(1, call.flow.letter())


def _classifier(call: RowCall) -> Sequence[RowTensor]:
    """A model that gives labels, [n], and scores."""
    scores = _regressor(call)
    return [scores.narrowed([1]), scores][: len(call.node.outputs)]


def _per_column(call: RowCall) -> RowTensor:
    value = call.needed(0)
    call.along(value, [value.rank - 1])
    return value.same()


def _extracted(call: RowCall) -> RowTensor:
    value, chosen = call.needed(0), call.needed(1)
    call.along(value, [value.rank - 1])
    if chosen.axis is not None:
        if value.axis is not None:
            call.crosses(value, chosen)
        call.unclear("it looks up columns that the rows say")
    count = chosen.dims[-1] if chosen.rank else ONE
    # ArrayFeatureExtractor makes [1, n] of a vector (ai.onnx.ml).
    if value.rank == 1:
        return value.shaped((ONE, count))
    return value.resized(value.rank - 1, count)


def _feature_vector(call: RowCall) -> RowTensor:
    for value in call.taken:
        # FeatureVectorizer flattens everything but dim 0, so rows elsewhere would be torn apart.
        if value.rank != 2 or value.axis != 0:
            call.unclear("not all of its inputs are rows")
    first = side_by_side(call.taken)
    return call.joined(first.resized(1, call.flow.letter()), *call.taken)


def _one_hot(call: RowCall) -> RowTensor:
    value = call.needed(0)
    return value.widened(value.rank, call.flow.letter())


def _tf_idf(call: RowCall) -> RowTensor:
    value = call.needed(0)
    call.along(value, [value.rank - 1])
    return value.resized(value.rank - 1, call.flow.letter())


def _string_normalizer(call: RowCall) -> RowTensor:
    value = call.needed(0)
    # Without stop words each text becomes one text, which keeps its place.
    if call.attribute("stopwords"):
        call.mixes("leaves out elements, so that those of other rows move up")
    return value.same()


def _quantized_binary(call: RowCall) -> RowTensor:
    call.plain((*call.values[1:3], *call.values[4:]), "scales")
    return broadcast(call, call.needed(0), call.needed(3))


def _quantized_softmax(call: RowCall) -> RowTensor:
    value = call.needed(0)
    call.plain(call.values[1:], "scales")
    # Which Softmax it replaces is an attribute.
    return softmax(call, call.axis(value, -1), call.attribute("opset", 0))


def _quantized_concat(call: RowCall) -> RowTensor:
    call.plain((*call.values[:2], *call.values[3::3], *call.values[4::3]), "scales")
    # Y's scale and zero point come first, then tensor, scale and zero point of each input.
    return concat(call.having(call.values[2::3]))


def _grid_sample(call: RowCall) -> RowTensor:
    value, grid = call.needed(0), call.needed(1)
    if value.axis != 0 or grid.axis != 0 or (value.outer, value.inner) != (ONE, ONE):
        call.unclear("not both of its inputs are rows")
    if (grid.outer, grid.inner) != (ONE, ONE):
        call.unclear("its inputs have their rows in different places")
    # The grid is [batch, heights, widths, 2]; its last dim has the coordinates (ONNX, GridSample).
    shape = (*value.dims[:2], *grid.dims[1:-1])
    return call.joined(value.shaped(shape, 0), value, grid)


# Maps are no tensors, and nothing splits a list of them.
def _zip_map(call: RowCall) -> RowTensor:
    call.unclear("it makes a list of maps")


_NUMBERS_ROWS = "finds elements in the whole batch: their number is not that of the rows"

_TAKES_REGIONS = (
    "takes boxes out of images by number: the first dims of its inputs are not one batch"
)

RULES: Rules = {
    **named(_random, "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike"),
    **named(_random, "RandomUniform", "RandomUniformLike"),
    **named(_always(_NUMBERS_ROWS), "Compress", "NonMaxSuppression", "NonZero", "Unique"),
    **named(_quantize, "DynamicQuantizeLinear"),
    **named(_grid_sample, "GridSample"),
    **named(_always(_TAKES_REGIONS, has_batch_dim=False), "MaxRoiPool", "RoiAlign"),
    **named(_string_normalizer, "StringNormalizer"),
    **named(_always("makes as many parts of each text as the longest of all has"), "StringSplit"),
    **named(_tf_idf, "TfIdfVectorizer"),
    **named(_extracted, "ArrayFeatureExtractor", domain=ML),
    **named(_zip_map, "CastMap", "ZipMap", domain=ML),
    **named(_feature_vector, "FeatureVectorizer", domain=ML),
    # Of Imputer and Scaler, there is a parameter for each column, the last dim.
    **named(_per_column, "Imputer", "Normalizer", "Scaler", domain=ML),
    **named(_classifier, "LinearClassifier", "SVMClassifier", domain=ML),
    **named(_classifier, "TreeEnsembleClassifier", domain=ML),
    **named(_regressor, "LinearRegressor", "SVMRegressor", domain=ML),
    **named(_regressor, "TreeEnsemble", "TreeEnsembleRegressor", domain=ML),
    **named(_one_hot, "OneHotEncoder", domain=ML),
    **named(_quantized_recurrence, "DynamicQuantizeLSTM", domain=MICROSOFT),
    **named(_quantized_product, "DynamicQuantizeMatMul", domain=MICROSOFT),
    **named(_quantized_binary, "QLinearAdd", "QLinearMul", domain=MICROSOFT),
    **named(_quantized_concat, "QLinearConcat", domain=MICROSOFT),
    **named(_quantized_softmax, "QLinearSoftmax", domain=MICROSOFT),
}
