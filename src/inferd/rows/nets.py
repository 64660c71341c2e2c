"""Rules of operators made for networks: convolutions, pooling, recurrence, attention."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from inferd.formats.onnx_graph import RowNode
from inferd.rows.elementwise import broadcast
from inferd.rows.flow import RowFlow, RowTensors, Rule, steps_through
from inferd.rows.size import ONE, Size
from inferd.rows.value import (
    RowTensor,
    Unclear,
    along,
    given,
    mixes,
    needed,
    plain,
)


def _conv(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    plain(node, values[1:], "weights")
    return _convolved(flow, node, needed(values, 0), needed(values, 1))


def _quantized_conv(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    plain(node, values[1:], "weights")
    return _convolved(flow, node, needed(values, 0), needed(values, 3))


def _convolved(flow: RowFlow, node: RowNode, value: RowTensor, weights: RowTensor) -> RowTensor:
    # A convolution sums along the channels and moves along the rest,
    # so that rows can only lie in dim 0.
    along(node, value, range(1, value.rank))
    window = [size.number for size in weights.dims[2:]]
    is_upwards = node.op == "ConvTranspose"
    # Weights are [out, in, ...], those of ConvTranspose [in, out / group, ...] (ONNX).
    channels = weights.dims[1 if is_upwards else 0]
    if is_upwards:
        channels = Size(channels.number * node.attributes.get("group", 1))
        spatial = [flow.letter() for _ in window]
    else:
        spatial = _windows(flow, node, value.dims[2:], node.attributes.get("kernel_shape", window))
    return value.shaped((value.dims[0], channels, *spatial), value.axis)


def _windows(
    flow: RowFlow, node: RowNode, sizes: Sequence[Size], window: Sequence[int]
) -> list[Size]:
    """Return the lengths that a window that moves over `sizes` makes."""
    count = len(window)
    strides = node.attributes.get("strides") or [1] * count
    dilations = node.attributes.get("dilations") or [1] * count
    pads = node.attributes.get("pads") or [0] * 2 * count
    padded = node.attributes.get("auto_pad", "NOTSET")
    is_up = bool(node.attributes.get("ceil_mode", 0))
    # Lists of other lengths make ONNX Runtime fail at load; here they must only do no harm.
    if len(sizes) != count or not len(strides) == len(dilations) == len(pads) // 2 == count:
        return [flow.letter() for _ in sizes]
    found = []
    for n, size in enumerate(sizes):
        stride = strides[n]
        if size.letters or stride < 1:
            found.append(flow.letter())
        elif padded in ("SAME_UPPER", "SAME_LOWER"):
            # SAME pads for exactly ceil(size / stride) windows (ONNX, auto_pad).
            found.append(Size(ceil(size.number / stride)))
        else:
            added = 0 if padded == "VALID" else pads[n] + pads[n + count]
            room = size.number + added - dilations[n] * (window[n] - 1) - 1
            # How the last, partial window is counted differs between versions.
            is_sure = room % stride == 0 or not is_up
            found.append(Size(room // stride + 1) if is_sure and room >= 0 else flow.letter())
    return found


def _pool(flow: RowFlow, node: RowNode, values: RowTensors) -> Sequence[RowTensor]:
    value = needed(values, 0)
    plain(node, values[1:], "scales")
    along(node, value, range(2, value.rank))
    spatial = _windows(flow, node, value.dims[2:], node.attributes.get("kernel_shape", []))
    made = value.shaped((*value.dims[:2], *spatial), value.axis)
    # MaxPool's Indices count from the first element of the whole tensor (ONNX).
    if len(node.outputs) > 1:
        msg = "its second output numbers the elements of the whole batch"
        raise Unclear(msg)
    return [made]


def _global_pool(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    del flow
    value = needed(values, 0)
    plain(node, values[1:], "scales")
    along(node, value, range(2, value.rank))
    return value.shaped((*value.dims[:2], *[ONE] * (value.rank - 2)), value.axis)


def recurrent(flow: RowFlow, node: RowNode, values: RowTensors) -> Sequence[RowTensor]:
    """Return what an RNN, GRU or LSTM makes of the rows of a sequence. Raises Mixed, Unclear."""
    value = needed(values, 0)
    # W, R and B (ONNX, LSTM).
    plain(node, values[1:4], "weights")
    plain(node, values[7:], "weights")  # peepholes
    if value.axis is None:
        msg = "it gets the same sequence for all rows"
        raise Unclear(msg)
    # Layout 1, since opset 14, puts the batch before the steps.
    is_batch_first = bool(node.attributes.get("layout", 0))
    batch, time = (0, 1) if is_batch_first else (1, 0)
    if value.axis == time:
        raise steps_through(node, time)
    along(node, value, [2])
    # The lengths of sequences are [batch], states [directions, batch, hidden].
    states = [(n, given(values, n), place) for n, place in ((4, 0), (5, batch), (6, batch))]
    for index, more, place in states:
        if more is not None:
            _check_state(flow, node, value, more, place, is_length=index == 4)
    sources = flow.join(value, *(more for _, more, _ in states if more is not None))
    both = node.attributes.get("direction", "forward") == "bidirectional"
    directions = Size(2 if both else 1)
    hidden = node.attributes.get("hidden_size")
    width = Size(hidden) if hidden else flow.letter()
    steps, count = value.dims[time], value.dims[batch]
    if is_batch_first:
        whole, last, axis = (count, steps, directions, width), (count, directions, width), 0
    else:
        whole, last, axis = (steps, directions, count, width), (directions, count, width), 2
    made = replace(value.shaped(whole, axis), sources=sources)
    ended = replace(value.shaped(last, 0 if is_batch_first else 1), sources=sources)
    # Y, Y_h and, of an LSTM, Y_c.
    return [made, ended, ended][: max(len(node.outputs), 1)]


def _reverse_sequence(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    value, lengths = needed(values, 0), needed(values, 1)
    batch, time = node.number("batch_axis", 1), node.number("time_axis", 0)
    if value.axis is None:
        msg = "it turns the same sequences for all rows"
        raise Unclear(msg)
    if value.axis == time:
        raise mixes(node, f"turns what lies along dim {time}, the batch")
    if value.axis != batch:
        plain(node, [lengths], "lengths")
        return value.same()
    _check_state(flow, node, value, lengths, 0, is_length=True)
    return replace(value.same(), sources=flow.join(value, lengths))


def _check_state(
    flow: RowFlow, node: RowNode, value: RowTensor, more: RowTensor, place: int, *, is_length: bool
) -> None:
    """Raise an error unless `more` has for each row of `value` its length, or state, at `place`."""
    if more.axis is None:
        # It runs with a batch of one, and fails with any other.
        if not is_length and more.dims[place] == ONE:
            raise mixes(node, "gets the state of one fixed row")
        msg = "it gets states or lengths for a fixed number of rows"
        raise Unclear(msg)
    if more.axis != place:
        raise flow.crossing(node, value, more)
    if (more.outer, more.inner) != (value.outer, value.inner):
        msg = "its states do not have the rows in the same places"
        raise Unclear(msg)


def _leading(
    flow: RowFlow, node: RowNode, values: RowTensors, places: Sequence[int]
) -> list[RowTensor]:
    """Return those inputs at `places` that are rows along dim 0, as all of them that are rows are.

    Raises an error for rows that lie elsewhere.
    """
    rows = []
    for index in places:
        value = given(values, index)
        if value is None or value.is_plain:
            continue
        if value.axis is None:
            raise mixes(node, "computes with the number of rows")
        if value.axis != 0:
            raise mixes(node, f"works along dim {value.axis} of input {index}, the batch")
        if value.outer != ONE or value.inner != ONE:
            msg = "its inputs have several rows for each of the batch"
            raise Unclear(msg)
        rows.append(value)
    if not rows:
        msg = "none of its inputs are rows"
        raise Unclear(msg)
    flow.join(*rows)
    return rows


def _attention(flow: RowFlow, node: RowNode, values: RowTensors) -> Sequence[RowTensor]:
    """ONNX's own: Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen."""
    query, keys, contents = (needed(values, n) for n in range(3))
    if any(value.axis is None for value in (query, keys, contents)):
        msg = "not all of its inputs are rows"
        raise Unclear(msg)
    mask = given(values, 3)
    if mask is not None and mask.axis is None and mask.rank > 3 and mask.dims[0] != ONE:
        msg = "its mask has a fixed number of rows"
        raise Unclear(msg)
    if mask is not None and mask.axis == 0 and mask.rank < 4:  # with 3 dims, the first is heads
        raise mixes(node, "takes the batch for a dim of its mask that is none")
    if any(one is not None and one.axis is None for one in values[4:]):
        msg = "its past states are the same for all rows"
        raise Unclear(msg)
    rows = _leading(flow, node, values, range(len(values)))
    sources = flow.join(*rows)
    # [batch, heads, steps, width], or with 3 dims [batch, steps, heads * width] (ONNX, Attention).
    if query.rank == 4:
        shape = (*query.dims[:3], contents.dims[3])
    else:
        shape = (*query.dims[:2], flow.letter())
    made = [replace(query.shaped(shape, 0), sources=sources)]
    for name in node.outputs[1:3]:
        if name:
            past = (query.dims[0], *flow.letters(3))
            made.append(replace(query.shaped(past, 0), sources=sources))
        else:
            made.append(RowTensor(None))
    if len(node.outputs) > 3:
        made.append(replace(query.shaped((query.dims[0], *flow.letters(3)), 0), sources=sources))
    return made


def _fused_attention(flow: RowFlow, node: RowNode, values: RowTensors) -> Sequence[RowTensor]:
    """Attention and MultiHeadAttention of com.microsoft, without a past."""
    if len([name for name in node.outputs if name]) > 1:
        msg = "its present states are not known"
        raise Unclear(msg)
    query = needed(values, 0)
    is_one = node.op == "Attention"
    # query or input, then weights and bias, or key, value, bias; then masks
    rowed = (0, 3, 5) if is_one else (0, 1, 2, 4, 5)
    fixed = [n for n in range(len(values)) if n not in rowed]
    plain(node, [values[n] for n in fixed], "weights")
    if is_one and given(values, 4) is not None:
        msg = "its past states are not known"
        raise Unclear(msg)
    rows = _leading(flow, node, values, rowed)
    for index in rowed:
        value = given(values, index)
        if value is not None and value.axis is None and value.dims[0] != ONE:
            msg = f"input {index} has a fixed number of rows"
            raise Unclear(msg)
        # The shape of a mask decides what it means: [n] may be the lengths of n rows.
        if index in (3, 4) and value is not None and value.axis is None:
            msg = "its mask is the same for all rows"
            raise Unclear(msg)
    # With 5 dims, query, keys and values lie interleaved in one tensor.
    if query.rank != 3 or query.axis != 0:
        msg = "its packed inputs are not known"
        raise Unclear(msg)
    width = flow.letter()
    return [replace(query.shaped((*query.dims[:2], width), 0), sources=flow.join(*rows))]


def _rotary(flow: RowFlow, node: RowNode, values: RowTensors) -> RowTensor:
    value = needed(values, 0)
    for index in range(1, len(values)):
        other = given(values, index)
        if other is not None and other.axis is None and other.rank > 2:
            msg = "its angles are not known to be those of each row"
            raise Unclear(msg)
    if value.axis is None:
        msg = "its input is the same for all rows"
        raise Unclear(msg)
    rows = _leading(flow, node, values, range(len(values)))
    return replace(value.same(), sources=flow.join(*rows))


def _skip_normalization(flow: RowFlow, node: RowNode, values: RowTensors) -> Sequence[RowTensor]:
    value, skip = needed(values, 0), needed(values, 1)
    plain(node, values[2:], "weights")
    if value.axis is None or value.axis == value.rank - 1:
        along(node, value, [value.rank - 1])
        msg = "its input is the same for all rows"
        raise Unclear(msg)
    both = broadcast(flow, node, value, skip)
    stats = both.shaped((*both.dims[:-1], ONE), both.axis)
    return [both, stats, stats, both][: len(node.outputs)]


def _embed_normalization(flow: RowFlow, node: RowNode, values: RowTensors) -> Sequence[RowTensor]:
    ids = needed(values, 0)
    plain(node, values[2:7], "weights")
    for index in (1, 7, 8):
        value = given(values, index)
        if value is not None and value.axis is None:
            msg = f"input {index} is the same for all rows"
            raise Unclear(msg)
    rows = _leading(flow, node, values, (0, 1, 7, 8))
    if ids.axis != 0:
        msg = "its input is the same for all rows"
        raise Unclear(msg)
    sources = flow.join(*rows)
    whole = replace(ids.shaped((*ids.dims, flow.letter()), 0), sources=sources)
    # mask_index: how many words each row has.
    counted = replace(ids.shaped((ids.dims[0],), 0), sources=sources)
    return [whole, counted, whole][: len(node.outputs)]


RULES: dict[tuple[str, str], Rule] = {
    ("", "Attention"): _attention,
    ("", "AveragePool"): _pool,
    ("", "Conv"): _conv,
    ("", "ConvInteger"): _conv,
    ("", "ConvTranspose"): _conv,
    ("", "GRU"): recurrent,
    ("", "GlobalAveragePool"): _global_pool,
    ("", "GlobalLpPool"): _global_pool,
    ("", "GlobalMaxPool"): _global_pool,
    ("", "LSTM"): recurrent,
    ("", "LpPool"): _pool,
    ("", "MaxPool"): _pool,
    ("", "QLinearConv"): _quantized_conv,
    ("", "RNN"): recurrent,
    ("", "ReverseSequence"): _reverse_sequence,
    ("", "RotaryEmbedding"): _rotary,
    ("com.microsoft", "Attention"): _fused_attention,
    ("com.microsoft", "EmbedLayerNormalization"): _embed_normalization,
    ("com.microsoft", "FusedConv"): _conv,
    ("com.microsoft", "MultiHeadAttention"): _fused_attention,
    ("com.microsoft", "SkipLayerNormalization"): _skip_normalization,
    ("com.microsoft", "SkipSimplifiedLayerNormalization"): _skip_normalization,
}
