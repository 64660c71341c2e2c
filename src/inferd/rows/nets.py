"""Rules of operators made for networks: convolutions, pooling, recurrence, attention."""

from collections.abc import Sequence
from math import ceil

from inferd.rows.elementwise import broadcast
from inferd.rows.flow import MICROSOFT, RowCall, Rules, named
from inferd.rows.value import ONE, RowTensor, Size


def _conv(call: RowCall) -> RowTensor:
    # A convolution sums along the channels and moves along the rest,
    # so that rows can only lie in dim 0.
    value = call.kept(1)
    weights = call.needed(3 if call.node.op == "QLinearConv" else 1)
    window = [size.number for size in weights.dims[2:]]
    is_upwards = call.node.op == "ConvTranspose"
    # Weights are [out, in, ...], those of ConvTranspose [in, out / group, ...] (ONNX).
    channels = weights.dims[1 if is_upwards else 0]
    if is_upwards:
        channels = Size(channels.number * call.attribute("group", 1))
        spatial = [call.flow.letter() for _ in window]
    else:
        spatial = _windows(call, value.dims[2:], call.attribute("kernel_shape", window))
    return value.shaped((value.dims[0], channels, *spatial), value.axis)


def _windows(call: RowCall, sizes: Sequence[Size], window: Sequence[int]) -> list[Size]:
    """Return the lengths that a window that moves over `sizes` makes."""
    count = len(window)
    strides = call.attribute("strides") or [1] * count
    dilations = call.attribute("dilations") or [1] * count
    pads = call.attribute("pads") or [0] * 2 * count
    padded = call.attribute("auto_pad", "NOTSET")
    is_up = call.flag("ceil_mode")
    # Lists of other lengths make ONNX Runtime fail at load; here they must only do no harm.
    if len(sizes) != count or not len(strides) == len(dilations) == len(pads) // 2 == count:
        return [call.flow.letter() for _ in sizes]
    found = []
    for n, size in enumerate(sizes):
        stride = strides[n]
        if size.letters or stride < 1:
            found.append(call.flow.letter())
        elif padded in ("SAME_UPPER", "SAME_LOWER"):
            # SAME pads for exactly ceil(size / stride) windows (ONNX, auto_pad).
            found.append(Size(ceil(size.number / stride)))
        else:
            added = 0 if padded == "VALID" else pads[n] + pads[n + count]
            room = size.number + added - dilations[n] * (window[n] - 1) - 1
            # How the last, partial window is counted differs between versions.
            is_sure = room % stride == 0 or not is_up
            found.append(Size(room // stride + 1) if is_sure and room >= 0 else call.flow.letter())
    return found


def _pool(call: RowCall) -> Sequence[RowTensor]:
    value = call.kept(2, "scales")
    spatial = _windows(call, value.dims[2:], call.attribute("kernel_shape", []))
    made = value.shaped((*value.dims[:2], *spatial), value.axis)
    # MaxPool's Indices count from the first element of the whole tensor (ONNX).
    if len(call.node.outputs) > 1:
        call.unclear("its second output numbers the elements of the whole batch")
    return [made]


def _global_pool(call: RowCall) -> RowTensor:
    value = call.kept(2, "scales")
    return value.shaped((*value.dims[:2], *[ONE] * (value.rank - 2)), value.axis)


def recurrent(call: RowCall) -> Sequence[RowTensor]:
    """Return what an RNN, GRU or LSTM makes of the rows of a sequence. Raises Mixed, Unclear."""
    value = call.needed(0)
    # W, R and B (ONNX, LSTM).
    call.plain(call.values[1:4], "weights")
    call.plain(call.values[7:], "weights")  # peepholes
    if value.axis is None:
        call.unclear("it gets the same sequence for all rows")
    # Layout 1, since opset 14, puts the batch before the steps.
    is_batch_first = call.flag("layout")
    batch, time = (0, 1) if is_batch_first else (1, 0)
    if value.axis == time:
        call.steps_through(time)
    call.along(value, [2])
    # The lengths of sequences are [batch], states [directions, batch, hidden].
    states = [(n, call.given(n), place) for n, place in ((4, 0), (5, batch), (6, batch))]
    for index, more, place in states:
        if more is not None:
            _check_state(call, value, more, place, is_length=index == 4)
    others = [more for _, more, _ in states if more is not None]
    both = call.attribute("direction", "forward") == "bidirectional"
    directions = Size(2 if both else 1)
    hidden = call.attribute("hidden_size")
    width = Size(hidden) if hidden else call.flow.letter()
    steps, count = value.dims[time], value.dims[batch]
    if is_batch_first:
        whole, last, axis = (count, steps, directions, width), (count, directions, width), 0
    else:
        whole, last, axis = (steps, directions, count, width), (directions, count, width), 2
    made = call.joined(value.shaped(whole, axis), value, *others)
    ended = made.shaped(last, 0 if is_batch_first else 1)
    # Y, Y_h and, of an LSTM, Y_c.
    return [made, ended, ended][: max(len(call.node.outputs), 1)]


def _reverse_sequence(call: RowCall) -> RowTensor:
    value, lengths = call.needed(0), call.needed(1)
    batch, time = call.node.number("batch_axis", 1), call.node.number("time_axis", 0)
    if value.axis is None:
        call.unclear("it turns the same sequences for all rows")
    if value.axis == time:
        call.mixes(f"turns what lies along dim {time}, the batch")
    if value.axis != batch:
        call.plain([lengths], "lengths")
        return value.same()
    _check_state(call, value, lengths, 0, is_length=True)
    return call.joined(value.same(), value, lengths)


def _check_state(
    call: RowCall, value: RowTensor, more: RowTensor, place: int, *, is_length: bool
) -> None:
    """Raise an error unless `more` has for each row of `value` its length, or state, at `place`."""
    if more.axis is None:
        # It runs with a batch of one, and fails with any other.
        if not is_length and more.dims[place] == ONE:
            call.mixes("gets the state of one fixed row")
        call.unclear("it gets states or lengths for a fixed number of rows")
    if more.axis != place:
        call.crosses(value, more)
    if (more.outer, more.inner) != (value.outer, value.inner):
        call.unclear("its states do not have the rows in the same places")


def _leading(call: RowCall, places: Sequence[int]) -> list[RowTensor]:
    """Return those inputs at `places` that are rows along dim 0, as all of them that are rows are.

    Raises an error for rows that lie elsewhere.
    """
    rows = []
    for index in places:
        value = call.given(index)
        if value is None or value.is_plain:
            continue
        if value.axis is None:
            call.mixes("computes with the number of rows")
        if value.axis != 0:
            call.mixes(f"works along dim {value.axis} of input {index}, the batch")
        if value.outer != ONE or value.inner != ONE:
            call.unclear("its inputs have several rows for each of the batch")
        rows.append(value)
    if not rows:
        call.unclear("none of its inputs are rows")
    call.flow.join(*rows)
    return rows


def _attention(call: RowCall) -> Sequence[RowTensor]:
    """ONNX's own: Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen."""
    query, keys, contents = (call.needed(n) for n in range(3))
    if any(value.axis is None for value in (query, keys, contents)):
        call.unclear("not all of its inputs are rows")
    mask = call.given(3)
    if mask is not None and mask.axis is None and mask.rank > 3 and mask.dims[0] != ONE:
        call.unclear("its mask has a fixed number of rows")
    if mask is not None and mask.axis == 0 and mask.rank < 4:  # with 3 dims, the first is heads
        call.mixes("takes the batch for a dim of its mask that is none")
    if any(one is not None and one.axis is None for one in call.values[4:]):
        call.unclear("its past states are the same for all rows")
    rows = _leading(call, range(len(call.values)))
    # [batch, heads, steps, width], or with 3 dims [batch, steps, heads * width] (ONNX, Attention).
    if query.rank == 4:
        shape = (*query.dims[:3], contents.dims[3])
    else:
        shape = (*query.dims[:2], call.flow.letter())
    first = call.joined(query.shaped(shape, 0), *rows)
    made = [first]
    for name in call.node.outputs[1:4]:
        more = first.shaped((query.dims[0], *call.flow.letters(3)), 0)
        made.append(more if name else RowTensor(None))
    return made


def _fused_attention(call: RowCall) -> Sequence[RowTensor]:
    """Attention and MultiHeadAttention of com.microsoft, without a past."""
    if len([name for name in call.node.outputs if name]) > 1:
        call.unclear("its present states are not known")
    query = call.needed(0)
    is_one = call.node.op == "Attention"
    # query or input, then weights and bias, or key, value, bias; then masks
    rowed = (0, 3, 5) if is_one else (0, 1, 2, 4, 5)
    fixed = [n for n in range(len(call.values)) if n not in rowed]
    call.plain([call.values[n] for n in fixed], "weights")
    if is_one and call.given(4) is not None:
        call.unclear("its past states are not known")
    rows = _leading(call, rowed)
    for index in rowed:
        value = call.given(index)
        if value is not None and value.axis is None and value.dims[0] != ONE:
            call.unclear(f"input {index} has a fixed number of rows")
        # The shape of a mask decides what it means: [n] may be the lengths of n rows.
        if index in (3, 4) and value is not None and value.axis is None:
            call.unclear("its mask is the same for all rows")
    # With 5 dims, query, keys and values lie interleaved in one tensor.
    if query.rank != 3 or query.axis != 0:
        call.unclear("its packed inputs are not known")
    return [call.joined(query.resized(2, call.flow.letter()), *rows)]


def _rotary(call: RowCall) -> RowTensor:
    value = call.needed(0)
    for other in call.values[1:]:
        if other is not None and other.axis is None and other.rank > 2:
            call.unclear("its angles are not known to be those of each row")
    if value.axis is None:
        call.unclear("its input is the same for all rows")
    rows = _leading(call, range(len(call.values)))
    return call.joined(value.same(), *rows)


def _skip_normalization(call: RowCall) -> Sequence[RowTensor]:
    value, skip = call.needed(0), call.needed(1)
    call.plain(call.values[2:], "weights")
    if value.axis is None or value.axis == value.rank - 1:
        call.along(value, [value.rank - 1])
        call.unclear("its input is the same for all rows")
    both = broadcast(call, value, skip)
    stats = both.resized(both.rank - 1, ONE)
    return [both, stats, stats, both][: len(call.node.outputs)]


def _embed_normalization(call: RowCall) -> Sequence[RowTensor]:
    ids = call.needed(0)
    call.plain(call.values[2:7], "weights")
    for index in (1, 7, 8):
        value = call.given(index)
        if value is not None and value.axis is None:
            call.unclear(f"input {index} is the same for all rows")
    rows = _leading(call, (0, 1, 7, 8))
    if ids.axis != 0:
        call.unclear("its input is the same for all rows")
    whole = call.joined(ids.widened(ids.rank, call.flow.letter()), *rows)
    # mask_index: how many words each row has.
    counted = whole.shaped(ids.dims[:1], 0)
    return [whole, counted, whole][: len(call.node.outputs)]


RULES: Rules = {
    **named(_attention, "Attention"),
    **named(_pool, "AveragePool", "LpPool", "MaxPool"),
    **named(_conv, "Conv", "ConvInteger", "ConvTranspose", "QLinearConv"),
    **named(recurrent, "GRU", "LSTM", "RNN"),
    **named(_global_pool, "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"),
    **named(_reverse_sequence, "ReverseSequence"),
    **named(_rotary, "RotaryEmbedding"),
    **named(_fused_attention, "Attention", "MultiHeadAttention", domain=MICROSOFT),
    **named(_embed_normalization, "EmbedLayerNormalization", domain=MICROSOFT),
    **named(_conv, "FusedConv", domain=MICROSOFT),
    **named(
        _skip_normalization,
        "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization",
        domain=MICROSOFT,
    ),
}
