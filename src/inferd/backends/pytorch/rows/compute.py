"""Rules of ATen operators that compute: elements, products, along dims, layers of networks."""

from collections.abc import Sequence

from inferd.backends.pytorch.rows.call import AtenCall, as_rows
from inferd.backends.pytorch.rows.dims import Rule, being, constant, swapped
from inferd.rows.value import ONE, RowTensor, Size, at, times

_POINTWISE = (
    "abs", "acos", "acosh", "add", "addcdiv", "addcmul", "angle", "asin", "asinh", "atan", "atan2",
    "atanh", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "ceil", "celu", "clamp",
    "clamp_max", "clamp_min", "clip", "copysign", "cos", "cosh", "deg2rad", "div", "divide", "elu",
    "eq", "erf", "erfc", "exp", "exp2", "expm1", "fill", "floor", "floor_divide", "fmax", "fmin",
    "fmod", "frac", "ge", "gelu", "greater", "greater_equal", "gt", "hardshrink", "hardsigmoid",
    "hardswish", "hardtanh", "hypot", "isfinite", "isinf", "isnan", "ldexp", "le", "leaky_relu",
    "lerp", "less", "less_equal", "log", "log10", "log1p", "log2", "log_sigmoid", "logaddexp",
    "logical_and", "logical_not", "logical_or", "logical_xor", "logit", "lt", "masked_fill",
    "maximum", "minimum", "mish", "mul", "multiply", "nan_to_num", "ne", "neg", "negative",
    "not_equal", "pow", "rad2deg", "reciprocal", "relu", "relu6", "remainder", "round", "rsqrt",
    "rsub", "selu", "sgn", "sigmoid", "sign", "silu", "sin", "sinc", "sinh", "softplus",
    "softshrink", "sqrt", "square", "sub", "subtract", "tan", "tanh", "threshold", "true_divide",
    "trunc", "xlogy",
)  # fmt: skip

_SAME = (
    "_to_copy", "alias", "clone", "contiguous", "detach", "double", "float", "half",
    "lift_fresh_copy", "requires_grad", "to", "type_as",
)  # fmt: skip

_CONVOLUTIONS = ("convolution", "_convolution", "_convolution_mode")

_ALONG = (
    "_log_softmax", "_softmax", "cumprod", "cumsum", "log_softmax", "logcumsumexp", "softmax",
    "glu",
)  # fmt: skip

_INTERPOLATED = (
    "upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
)  # fmt: skip

_DROPOUTS = (
    "alpha_dropout", "dropout", "feature_alpha_dropout", "feature_dropout", "native_dropout",
)  # fmt: skip

_REDUCTIONS = (
    "all", "amax", "amin", "any", "argmax", "argmin", "linalg_vector_norm", "logsumexp", "mean",
    "nanmean", "nansum", "norm", "prod", "std", "sum", "var", "count_nonzero",
)  # fmt: skip


def _pointwise(call: AtenCall) -> RowTensor:
    """Sum broadcasts as all of them do, and says nothing of numbers."""
    call.raw("self")  # it may be a number
    return call.one("Sum", *call.tensors())


def _numeric(call: AtenCall) -> RowTensor:
    """Sums and products, also of numbers, which tracing makes tensors of."""
    one, other = call.rows(), call.rows("other")
    is_scaled = call.raw("alpha", 1) != 1
    # Only single numbers are followed as such: a size that was computed, say x.size(1) * 2.
    if one.numbers is None or other.numbers is None or one.shape or other.shape or is_scaled:
        return _pointwise(call)
    number, by = one.numbers[0], other.numbers[0]
    if call.name == "floor_divide" and not (_is_above(number, -1) and _is_above(by, 0)):
        return _pointwise(call)  # it may round away from 0
    return call.one(_NUMERIC[call.name], one, other)


def _is_above(number: Size | float | None, least: int) -> bool:
    return isinstance(number, Size) and number.number > least


_NUMERIC = {"add": "Add", "sub": "Sub", "mul": "Mul", "floor_divide": "Div"}


def _one_hot(call: AtenCall) -> RowTensor:
    value, count = call.rows(), call.integer("num_classes", -1)
    # -1 means the largest element plus one, and here that is taken over all rows.
    if count < 0 and not value.is_plain:
        call.mixes("makes as many classes as the largest of all rows says")
    classes = call.flow.letter() if count < 0 else Size(count)
    return value.widened(value.rank, classes)


def _dynamic(call: AtenCall) -> RowTensor:
    """A linear layer whose input is quantised by a scale of its own."""
    value = call.rows("X")
    if not call.flow.takes_scales and not value.is_plain:
        what = "is dynamic quantisation: its scale is taken from all rows together"
        call.mixes(what, is_scale=True)
    call.along(value, [value.rank - 1])
    return value.resized(value.rank - 1, call.flow.letter())


def _encoder(call: AtenCall) -> RowTensor | list[RowTensor]:
    """Attention, or a whole layer of a transformer, as one operator: batch first, rank 3."""
    names = [name for name in ("src", "query", "key", "value") if name in call.arguments]
    rows = [call.rows(name) for name in names]
    if call.raw("mask") is not None or any(value.rank != 3 for value in rows):
        call.unclear("its mask, or its inputs, are not known")
    weights = [name for name in call.arguments if "weight_" in name or "bias" in name]
    weights += [name for name in ("qkv_weight", "proj_weight") if name in call.arguments]
    call.weights(*weights)
    for value in rows:
        call.along(value, [1, 2])
    call.flow.join(*rows)
    made = call.one("Sum", *(value.resized(1, ONE).resized(2, ONE) for value in rows))
    whole = made.shaped(rows[0].dims, made.axis)
    if names[0] != "query":
        return whole
    # Averaged over the heads, the attention weights lack the dim of the heads.
    flags = [call.known(name, True) for name in ("need_weights", "average_attn_weights")]
    shares = call.flow.letters(2 if all(flags) else 3)  # else those of each head
    return [whole, made.shaped((rows[0].dims[0], *shares), made.axis)]


def _where(call: AtenCall) -> RowTensor:
    return _pointwise(call) if "self" in call.arguments else call.one("NonZero", *call.tensors())


def _prelu(call: AtenCall) -> RowTensor:
    value, weight = call.rows(), call.rows("weight")
    call.plain([weight], "weights")
    if weight.dims not in ((), (ONE,)):
        call.along(value, [1])
    return value.same()


def _same(call: AtenCall) -> RowTensor:
    call.raw("other")  # it says but the datatype
    return call.rows().same()


def _dropout(call: AtenCall) -> RowTensor:
    if call.known("train") is not False:
        call.mixes("draws random numbers, for training")
    return call.main().same()


def _slope(call: AtenCall) -> RowTensor:
    if call.known("training") is not False or call.known("generator") is not None:
        call.mixes("draws random numbers, for training")
    return call.rows().same()


def _along(call: AtenCall) -> RowTensor:
    value = call.rows()
    dim = at(call.integer("dim", -1), value.rank)
    call.along(value, [dim])
    if call.name == "glu":
        return value.resized(dim, call.flow.letter())
    return value.same()


def _reduce(call: AtenCall) -> RowTensor:
    value, dims = call.rows(), call.integers("dim")
    keeps = int(bool(call.known("keepdim", False)))
    axes = constant(*dims) if dims else None
    return call.one("ReduceSum", value.same(), axes, keepdims=keeps)


def _row_similarity(call: AtenCall) -> RowTensor:
    """The cosine of two tensors along a dim, or their distance along the last."""
    both = call.one("Sum", call.rows("x1"), call.rows("x2"))
    dim = call.integer("dim", 1) if call.name == "cosine_similarity" else -1
    keeps = int(bool(call.known("keepdim", False)))
    return call.one("ReduceSum", both, constant(dim), keepdims=keeps)


def _extreme(call: AtenCall) -> RowTensor | list[RowTensor]:
    """Max, min, median, mode: of everything, of two tensors, or along a dim with its places."""
    if call.raw("other") is not None:
        return _pointwise(call)
    made = _reduce(call)
    return made if call.raw("dim") is None else [made, made]


def _sorted(call: AtenCall) -> list[RowTensor]:
    value = call.rows()
    call.along(value, [at(call.integer("dim", -1), value.rank)])
    return [value.same(), value.same()]


def _top(call: AtenCall) -> list[RowTensor]:
    count = as_rows(call.raw("k"))
    made = call.apply("TopK", call.rows(), count, axis=call.integer("dim", -1))
    return made[:2]


def _matmul(call: AtenCall) -> RowTensor:
    other = next(name for name in ("other", "mat2", "vec", "tensor") if name in call.arguments)
    return call.one("MatMul", call.rows(), call.rows(other))


def _linear(call: AtenCall) -> RowTensor:
    weight, bias = call.rows("weight"), call.maybe("bias")
    turned = swapped(call, weight, 0, 1) if weight.rank == 2 else weight
    made = call.one("MatMul", call.rows("input"), turned)
    return made if bias is None else call.one("Sum", made, bias)


def _addmm(call: AtenCall) -> RowTensor:
    names = ("batch1", "batch2") if "batch1" in call.arguments else ("mat1", "mat2")
    added, product = call.rows(), call.one("MatMul", *(call.rows(name) for name in names))
    if added.axis is not None and product.axis is None:
        call.mixes("adds rows to a product that has one for all")
    return call.one("Sum", added, product)


def _einsum(call: AtenCall) -> RowTensor:
    tensors = [as_rows(one) for one in call.raw("tensors", [])]
    return call.one("Einsum", *tensors, equation=call.known("equation", ""))


def _attention(call: AtenCall) -> RowTensor:
    """scaled_dot_product_attention: softmax(query keys^T + mask) value."""
    if call.known("enable_gqa"):
        call.unclear("its groups of heads are not known")
    if call.known("dropout_p"):
        call.mixes("draws random numbers, for training")
    query, keys, mask = call.rows("query"), call.rows("key"), call.maybe("attn_mask")
    # A row would then attend to those before it in the batch.
    if call.known("is_causal") and query.axis == query.rank - 2:
        call.mixes("hides from each row what is behind its place in the batch")
    scores = call.one("MatMul", query, swapped(call, keys, -2, -1))
    if mask is not None:
        scores = call.one("Sum", scores, mask)
    return call.one("MatMul", call.one("Softmax", scores, axis=-1), call.rows("value"))


def _conv(call: AtenCall) -> RowTensor:
    value, weight = call.rows("input"), call.rows("weight")
    count = weight.rank - 2
    if value.rank != weight.rank or count < 1:
        call.unclear("its input is no batch of images")
    bias = call.maybe("bias")
    if call.known("transposed", "transpose" in call.name):
        for name in ("stride", "padding", "dilation"):  # images become as large as they may
            call.known(name)
        return call.one("ConvTranspose", value, weight, bias, group=call.integer("groups", 1))
    padding = call.raw("padding")
    strides, dilations = (call.integers(name) or [1] for name in ("stride", "dilation"))
    if padding == "same":
        return call.one("Conv", value, weight, bias, auto_pad="SAME_UPPER")
    # PyTorch's conv takes 'valid' and 'same' as words; ONNX has them in auto_pad.
    pads = [0] if padding == "valid" else call.integers("padding") or [0]
    wide = _spread(pads, count)
    return call.one(
        "Conv",
        value,
        weight,
        bias,
        strides=_spread(strides, count),
        dilations=_spread(dilations, count),
        # PyTorch pads both ends alike; ONNX lists all begins, then all ends.
        pads=[*wide, *wide],
    )


def _spread(numbers: Sequence[int], count: int) -> list[int]:
    # One number stands for all dims (ATen, int[2] arguments).
    return list(numbers) * count if len(numbers) == 1 else list(numbers)


def _batch_norm(call: AtenCall) -> RowTensor | list[RowTensor]:
    value = call.main()
    means = [call.maybe(name) for name in ("running_mean", "running_var")]
    # A batch norm in training mode normalises by the batch that it gets: rows depend on others.
    is_training = call.known("training", True) is not False
    trains = None in means or (is_training and "no_training" not in call.name)
    if trains and value.axis is not None:
        call.mixes("takes the mean of the whole batch, as in training")
    call.weights("running_mean", "running_var", "weight", "bias")
    call.along(value, [1])
    # The means and deviations are those of the model, or nothing.
    return [value.same(), *[RowTensor(None)] * 2] if "native" in call.name else value.same()


def _layer_norm(call: AtenCall) -> RowTensor | list[RowTensor]:
    value = call.main()
    count = len(call.known("normalized_shape", []))
    call.weights("weight", "bias")
    call.along(value, range(value.rank - count, value.rank))
    if "native" not in call.name:
        return value.same()
    start = value.rank - count
    # native_layer_norm keeps the normalised dims with length 1 in its means and deviations.
    stats = value.shaped((*value.dims[:start], *[ONE] * count), value.axis)
    return [value.same(), stats, stats]


def _group_norm(call: AtenCall) -> RowTensor | list[RowTensor]:
    value = call.main()
    call.weights("weight", "bias")
    call.along(value, range(1, value.rank))
    if "native" in call.name:
        # The kernel goes by these numbers, not by the dims: others with the same product mix rows.
        said = [as_rows(call.raw(name)).numbers for name in ("N", "C", "HxW")]
        if said != [(one,) for one in (*value.dims[:2], times(*value.dims[2:]))]:
            call.unclear("it is told of other images than it gets")
        stats = value.shaped((value.dims[0], call.flow.letter()), value.axis)
        return [value.same(), stats, stats]
    return value.same()


def _instance_norm(call: AtenCall) -> RowTensor:
    value = call.rows("input")
    call.weights("weight", "bias", "running_mean", "running_var")
    call.along(value, range(1, value.rank))
    return value.same()


def _spatial(call: AtenCall) -> int:
    """Return the number that an operator has in its name."""
    return next(int(letter) for letter in call.name if letter.isdigit())


def _pool(call: AtenCall) -> RowTensor | list[RowTensor]:
    value, window = call.rows(), call.integers("kernel_size") or []
    count = _spatial(call)
    window = _spread(window, count)
    if value.rank != count + 2 or len(window) != count:
        call.unclear("its input is no batch of images")
    pads = _spread(call.integers("padding") or [0], count)
    made = call.one(
        "MaxPool",
        value,
        kernel_shape=window,
        # An empty stride means that of the window (torch.nn.MaxPool2d).
        strides=_spread(call.integers("stride") or window, count),
        dilations=_spread(call.integers("dilation") or [1], count),
        pads=[*pads, *pads],
        ceil_mode=int(bool(call.known("ceil_mode", False))),
    )
    return [made, made] if "with_indices" in call.name else made


def _resized(call: AtenCall) -> RowTensor | list[RowTensor]:
    """Pools to a given size, and interpolation: along all dims but the first two."""
    value = call.main()
    count = _spatial(call)
    if value.rank != count + 2:
        call.unclear("its input is no batch of images")
    call.along(value, range(2, value.rank))
    sizes = call.raw("output_size")
    _check_sizes(call)
    is_known = isinstance(sizes, list | tuple) and all(isinstance(one, int) for one in sizes)
    if not is_known or len(sizes) != count:
        spatial: Sequence[Size] = call.flow.letters(count)
    else:
        spatial = [Size(one) for one in sizes]
    made = value.shaped((*value.dims[:2], *spatial), value.axis)
    return [made, made] if "adaptive_max" in call.name else made


def _check_sizes(call: AtenCall) -> None:
    names = ("output_size", "scale_factors", "scales", "scales_h", "scales_w", "scales_d")
    for name in names:
        given = call.raw(name, [])
        for one in given if isinstance(given, list | tuple) else [given]:
            if one is not None and not as_rows(one).is_plain:
                call.mixes("resizes as the number of rows says")


def _recurrent(call: AtenCall) -> list[RowTensor]:
    value, states = call.rows("input"), call.raw("hx")
    if "batch_sizes" in call.arguments or value.rank != 3:
        call.unclear("its sequences are packed, or no batch")
    # Without batch_first the first dim has the steps (torch.nn.LSTM).
    batch = 0 if call.known("batch_first", False) else 1
    if value.axis == 1 - batch:
        call.steps_through(1 - batch)
    call.along(value, [2])
    if value.axis is None:
        call.unclear("its sequence is the same for all rows")
    if call.known("train", False) and call.known("dropout", 0.0):
        call.mixes("draws random numbers, for training")
    call.plain([as_rows(one) for one in call.raw("params", [])], "weights")
    given = [as_rows(one) for one in (states if isinstance(states, list | tuple) else [states])]
    for state in given:
        # States are [layers, batch, features], whatever batch_first says (torch.nn.LSTM).
        if (state.axis, state.outer, state.inner) != (1, value.outer, value.inner):
            if state.axis is None and state.dims[1] == ONE:
                call.mixes("gets the state of one fixed row")
            call.unclear("its states are not those of the rows")
    call.flow.join(value, *given)
    made = value.shaped((*value.dims[:2], call.flow.letter()), value.axis)
    return [made, *(state.same() for state in given)]


_FINDING, _RANDOM = being("NonZero", "self"), being("RandomNormal")

RULES: dict[str, Rule] = {
    **dict.fromkeys(_POINTWISE, _pointwise),
    **dict.fromkeys(_NUMERIC, _numeric),
    **dict.fromkeys(_SAME, _same),
    **dict.fromkeys(_ALONG, _along),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(("max", "min", "median", "mode", "nanmedian"), _extreme),
    **dict.fromkeys(("sort", "cummax", "cummin"), _sorted),
    **dict.fromkeys(_DROPOUTS, _dropout),
    **dict.fromkeys(("cosine_similarity", "pairwise_distance"), _row_similarity),
    **dict.fromkeys(("matmul", "mm", "bmm", "mv", "linalg_matmul"), _matmul),
    **dict.fromkeys(("addmm", "baddbmm"), _addmm),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", *_CONVOLUTIONS), _conv),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _conv),
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_no_training"), _batch_norm),
    **dict.fromkeys(("layer_norm", "native_layer_norm", "rms_norm"), _layer_norm),
    **dict.fromkeys(("group_norm", "native_group_norm"), _group_norm),
    **{f"{kind}_pool{n}d": _pool for kind in ("avg", "max") for n in (1, 2, 3)},
    **{f"max_pool{n}d_with_indices": _pool for n in (2, 3)},
    **{f"adaptive_{kind}_pool{n}d": _resized for kind in ("avg", "max") for n in (1, 2, 3)},
    **{f"_adaptive_avg_pool{n}d": _resized for n in (2, 3)},
    **{f"upsample_nearest{n}d": _resized for n in (1, 2, 3)},
    **{f"_upsample_nearest_exact{n}d": _resized for n in (1, 2, 3)},
    **dict.fromkeys(_INTERPOLATED, _resized),
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _recurrent),
    **dict.fromkeys(
        ("nonzero", "masked_select", "bincount", "histc", "_unique2"), being("NonZero", "self")
    ),
    **dict.fromkeys(("rand", "randn", "randint", "rand_like", "randn_like", "bernoulli"), _RANDOM),
    **dict.fromkeys(("multinomial", "normal", "randperm", "poisson"), _RANDOM),
    "argsort": lambda call: _sorted(call)[0],
    "einsum": _einsum,
    "linear_dynamic": _dynamic,
    "linear_relu_dynamic": _dynamic,
    "one_hot": _one_hot,
    "_native_multi_head_attention": _encoder,
    "_transformer_encoder_layer_fwd": _encoder,
    "instance_norm": _instance_norm,
    "linear": _linear,
    "scaled_dot_product_attention": _attention,
    "prelu": _prelu,
    "rrelu": _slope,
    "topk": _top,
    "where": _where,
}
