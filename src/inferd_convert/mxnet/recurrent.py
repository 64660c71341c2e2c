"""MXNet operators on sequences: fused recurrent layers, and operators with sequence lengths."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType
from inferd_convert.call import Converted, Converter
from inferd_convert.graph import Graph, Value
from inferd_convert.mxnet.call import MxnetCall
from inferd_convert.mxnet.shape import places_along

# Mode -> ONNX's operator, its activation, and MXNet's indices of its gates in ONNX's order.
_MODES = {
    "rnn_relu": ("RNN", "Relu", (0,)),
    "rnn_tanh": ("RNN", "Tanh", (0,)),
    "lstm": ("LSTM", None, (0, 3, 1, 2)),
    "gru": ("GRU", None, (1, 0, 2)),
}


def _rnn(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    """Convert RNN, whose parameters are one vector: the weights of all layers, then the biases."""
    mode = call.word("mode", "")
    call.refuse_if(mode not in _MODES, f"there is no mode '{mode[:100]}'")
    if call.has("projection_size") or call.has("lstm_state_clip_min"):
        call.cannot("projections and clipped states cannot be converted")
    layers, both = call.integer("num_layers"), call.flag("bidirectional")
    call.refuse_if(not 1 <= layers <= 256, f"num_layers is {layers}")
    lengths = _lengths(call, 4 if mode == "lstm" else 3)
    states = [_state(call, index, x) for index in ((2, 3) if mode == "lstm" else (2,))]
    last: list[list[Value]] = [[] for _ in states]
    for number, weights in enumerate(_weights(call, layers, 2 if both else 1, mode)):
        outputs = _layer(call, x, weights, lengths, [_part(graph, s, number, both) for s in states])
        # ONNX has [time, direction, batch, hidden]; the next layer
        # takes the directions side by side.
        y = graph.transpose(outputs[0], (0, 2, 1, 3))
        x = graph.add("Reshape", y, graph.ints(0, 0, -1), rank=3)
        for state, output in zip(last, outputs[1:], strict=True):
            state.append(output)
    if not call.flag("state_outputs"):
        return x
    return (x, *(graph.add("Concat", *parts, axis=0) for parts in last))


def _layer(
    call: MxnetCall, x: Value, weights: list[Array], lengths: Value | None, states: list[Value]
) -> tuple[Value, ...]:
    graph, mode = call.graph, call.word("mode", "")
    op, activation, _ = _MODES[mode]
    both = call.flag("bidirectional")
    more: dict[str, Any] = {"hidden_size": call.integer("state_size")}
    more["direction"] = "bidirectional" if both else "forward"
    if activation is not None:
        more["activations"] = [activation] * (2 if both else 1)
    if op == "GRU":
        # MXNet, like cuDNN, multiplies by the reset gate after the product.
        more["linear_before_reset"] = 1
    constants = [graph.constant(array) for array in weights]
    outputs = graph.add_several(1 + len(states), op, x, *constants, lengths, *states, **more)
    return (_of_rank(outputs[0], 4), *(_of_rank(one, 3) for one in outputs[1:]))


def _of_rank(value: Value, rank: int) -> Value:
    # add_several gives all outputs one rank; those of a recurrent layer have two.
    return Value(value.graph, value.name, rank)


def _weights(call: MxnetCall, layers: int, directions: int, mode: str) -> Iterator[list[Array]]:
    """Yield W, R and B of each layer, in ONNX's layout."""
    vector, size = call.input(1).array, call.integer("state_size")
    if vector is None or vector.ndim != 1:
        call.cannot("its parameters are no constant vector")
    order = _MODES[mode][2]
    rows = len(order) * size
    # Everything but the first layer's input weights, whose width
    # only the length of the vector tells.
    fixed = rows * directions * layers * (size + 2) + rows * directions * (layers - 1) * (
        directions * size
    )
    first, rest = divmod(vector.size - fixed, max(1, rows * directions))
    if size < 1 or rest or first < 1:
        call.refuse(f"its {vector.size} parameters are not those of state_size {size}")
    sizes = [first, *[directions * size] * (layers - 1)]
    pieces, at = [], 0
    for width in [each for one in sizes for _ in range(directions) for each in (one, size)]:
        pieces.append(_gates(vector[at : at + rows * width].reshape(rows, width), order))
        at += rows * width
    # Two of each, as cuDNN has them: of the input and of the state;
    # ONNX takes both, one behind the other.
    biases = vector[at:].reshape(layers, directions, 2, rows)
    for layer in range(layers):
        own = pieces[layer * 2 * directions : (layer + 1) * 2 * directions]
        bias = [np.concatenate([_gates(b, order) for b in pair]) for pair in biases[layer]]
        yield [np.stack(own[::2]), np.stack(own[1::2]), np.stack(bias)]


def _gates(array: Array, order: tuple[int, ...]) -> Array:
    """Return the rows of `array` with its gates in `order`."""
    parts = np.split(array, len(order))
    return np.concatenate([parts[gate] for gate in order])


def _state(call: MxnetCall, index: int, x: Value) -> Value:
    """Return an initial state as [layers · directions, batch, size]; a batch of 1 is expanded."""
    graph, state = call.graph, call.input(index)
    batch = graph.join(graph.ints(1), graph.length(x, 1), graph.ints(1))
    return graph.add("Expand", state, batch, rank=3)


def _part(graph: Graph, state: Value, layer: int, both: bool) -> Value:  # noqa: FBT001
    count = 2 if both else 1
    return graph.slice(state, 0, layer * count, (layer + 1) * count)


def _lengths(call: MxnetCall, index: int, datatype: DataType = DataType.INT32) -> Value | None:
    if not call.flag("use_sequence_length"):
        return None
    return call.graph.cast(call.input(index), datatype)


def _param_concat(graph: Graph, call: MxnetCall) -> Converted:
    """Convert _rnn_param_concat; the joined parameters of an RNN stay a constant."""
    arrays = [value.array for value in call.inputs]
    if not arrays or call.integer("dim", 1) != 0 or any(array is None for array in arrays):
        call.cannot("its inputs are no constants")
    return graph.constant(np.concatenate([one for one in arrays if one is not None]))


def _axes(call: MxnetCall) -> tuple[int, int]:
    """Return the axes of time and batch, in this order."""
    axis = call.integer("axis")
    call.refuse_if(axis not in (0, 1), f"its axis is {axis}, expected 0 or 1")
    return axis, 1 - axis


def _last(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    time, batch = _axes(call)
    rank = None if x.rank is None else x.rank - 1
    lengths = _lengths(call, 1, DataType.INT64)
    if lengths is None:
        return graph.add("Gather", x, graph.whole(-1), rank=rank, axis=time)
    x = graph.transpose(x, (batch, time, *range(2, call.known_rank(x))))
    places = graph.unsqueeze(lengths - graph.ints(1), (1,))
    return graph.add("GatherND", x, places, rank=rank, batch_dims=1)


def _mask(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    time, batch = _axes(call)
    lengths = _lengths(call, 1, DataType.INT64)
    if lengths is None:
        return x
    others = [axis for axis in range(call.known_rank(x)) if axis != batch]
    lengths = graph.unsqueeze(lengths, others)
    inside = graph.add("Less", places_along(graph, x, time), lengths, rank=x.rank)
    return graph.add("Where", inside, x, graph.like(x, call.number("value")), rank=x.rank)


def _reversed(graph: Graph, call: MxnetCall, x: Value) -> Converted:
    call.refuse_if(call.integer("axis") != 0, "its axis can only be 0")
    lengths = _lengths(call, 1, DataType.INT64)
    if lengths is None:
        # A step of -1 ends before the first element, where -1 would mean the last.
        bounds = (graph.ints(-1), graph.ints(-(2**63) + 1), graph.ints(0), graph.ints(-1))
        return graph.add("Slice", x, *bounds)
    return graph.add("ReverseSequence", x, lengths, time_axis=0, batch_axis=1)


OPERATORS: dict[str, Converter] = {
    "RNN": _rnn,
    "_rnn_param_concat": _param_concat,
    "SequenceLast": _last,
    "SequenceMask": _mask,
    "SequenceReverse": _reversed,
}
