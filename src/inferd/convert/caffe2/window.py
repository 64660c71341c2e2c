"""Caffe2 operators that slide a window: convolutions and pools, with all their paddings."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from inferd.convert.caffe2.call import Call, Converted
from inferd.convert.graph import Graph, Value

_VALID, _SAME, _CAFFE_POOLING = 1, 2, 3  # caffe2::LegacyPadding


@dataclass(slots=True)
class Window:
    """Size and steps of a window along its spatial axes; `pads` are the heads, then the tails."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]
    legacy_pad: int

    @property
    def auto_pad(self) -> str | None:
        """ONNX's word for the paddings that depend on the size of the input."""
        return {_VALID: "VALID", _SAME: "SAME_UPPER"}.get(self.legacy_pad)

    @property
    def explicit_pads(self) -> list[int] | None:
        """The pads ONNX gets: none beside an auto_pad."""
        return None if self.auto_pad else self.pads


def _window(call: Call) -> Window:
    kernel = _sizes(call, "kernel")
    dims = len(kernel)
    window = Window(
        kernel,
        _sizes(call, "stride") or [1] * dims,
        _sizes(call, "dilation") or [1] * dims,
        pads_of(call) or [0] * (2 * dims),
        call.integer("legacy_pad"),
    )
    if not len(window.strides) == len(window.dilations) == dims or len(window.pads) != 2 * dims:
        call.refuse("kernel, stride, dilation and pad are of different numbers of dims")
    if dims and min(*kernel, *window.strides, *window.dilations) < 1:
        call.refuse("kernel, stride and dilation should be at least 1")
    if min(window.pads, default=0) < 0 or not 0 <= window.legacy_pad <= _CAFFE_POOLING:
        call.refuse("its padding is negative, or of an unknown kind")
    return window


def _sizes(call: Call, name: str) -> list[int]:
    """Return kernel, stride, dilation or adj, whichever way it is given."""
    if call.has(name):
        return [call.integer(name)] * 2
    if call.has(f"{name}_h", f"{name}_w"):
        return [call.integer(f"{name}_h"), call.integer(f"{name}_w")]
    return call.integers(f"{name}s")


def pads_of(call: Call) -> list[int]:
    """Return what is put around an image, heads and then tails; nothing where nothing is said."""
    if call.has("pad"):
        return [call.integer("pad")] * 4
    sides = ("pad_t", "pad_l", "pad_b", "pad_r")
    if call.has(*sides):
        return [call.integer(side) for side in sides]
    return call.integers("pads")


# --- the order of dims ---


def channels_first(graph: Graph, value: Value, rank: int) -> Value:
    """Return `value`, of `rank` dims in NHWC order, in NCHW order."""
    return graph.transpose(value, (0, rank - 1, *range(1, rank - 1)))


def channels_last(graph: Graph, value: Value, rank: int) -> Value:
    """Return `value`, of `rank` dims in NCHW order, in NHWC order."""
    return graph.transpose(value, (0, *range(2, rank), 1))


# --- convolutions ---


def _conv(call: Call) -> Converted:
    graph, x, weight = call.graph, call.input(0), call.input(1)
    window = _window(call)
    rank = len(window.kernel) + 2
    if call.is_nhwc:
        x, weight = channels_first(graph, x, rank), channels_first(graph, weight, rank)
    x = _cropped(graph, x, window)
    if window.legacy_pad == _CAFFE_POOLING:
        x = _padded_for_caffe(graph, x, window)
    y = graph.add(
        "Conv",
        x,
        weight,
        call.inputs[2] if len(call.inputs) > 2 else None,
        rank=rank,
        kernel_shape=window.kernel,
        strides=window.strides,
        dilations=window.dilations,
        pads=window.explicit_pads,
        auto_pad=window.auto_pad,
        group=call.integer("group", 1),
    )
    return channels_last(graph, y, rank) if call.is_nhwc else y


def _conv_transpose(call: Call) -> Converted:
    graph, x, weight = call.graph, call.input(0), call.input(1)
    window = _window(call)
    if window.legacy_pad not in (0, _VALID):
        call.refuse("legacy_pad of a ConvTranspose can only be NOTSET or VALID")
    rank = len(window.kernel) + 2
    if call.is_nhwc:
        x, weight = channels_first(graph, x, rank), channels_first(graph, weight, rank)
    y = graph.add(
        "ConvTranspose",
        x,
        weight,
        call.inputs[2] if len(call.inputs) > 2 else None,
        rank=rank,
        kernel_shape=window.kernel,
        strides=window.strides,
        dilations=window.dilations,
        pads=[0] * len(window.pads) if window.legacy_pad == _VALID else window.pads,
        output_padding=_sizes(call, "adj") or None,
        group=call.integer("group", 1),
    )
    return channels_last(graph, y, rank) if call.is_nhwc else y


# --- pools ---


def _pool(op: str) -> Callable[[Call], Converted]:
    """Return the converter of "Max" or "Average" pools."""

    def convert(call: Call) -> Converted:
        graph, x = call.graph, call.input(0)
        if call.flag("global_pooling"):
            rank = x.rank or 4
            x = channels_first(graph, x, rank) if call.is_nhwc else x
            y = graph.add(f"Global{op}Pool", x, rank=rank)
        else:
            window = _window(call)
            rank = len(window.kernel) + 2
            x = channels_first(graph, x, rank) if call.is_nhwc else x
            y = _pool_window(call, op, x, window)
        return channels_last(graph, y, rank) if call.is_nhwc else y

    return convert


def _pool_window(call: Call, op: str, x: Value, window: Window) -> Value:
    if set(window.dilations) != {1}:
        call.refuse("there are no pools with dilation")
    graph = call.graph
    counts_pads = op == "Average" and call.flag("count_include_pad")
    x = _cropped(graph, x, window)
    is_caffe = window.legacy_pad == _CAFFE_POOLING
    if is_caffe and counts_pads:
        x = _padded_for_caffe(graph, x, window)
    if is_caffe and not counts_pads:
        window.pads[len(window.kernel) :] = window.pads[: len(window.kernel)]
    return graph.add(
        f"{op}Pool",
        x,
        rank=len(window.kernel) + 2,
        kernel_shape=window.kernel,
        strides=window.strides,
        pads=window.explicit_pads,
        auto_pad=window.auto_pad,
        ceil_mode=1 if is_caffe and not counts_pads else None,
        count_include_pad=1 if counts_pads else None,
    )


# --- paddings that depend on the size of the input ---


def _cropped(graph: Graph, x: Value, window: Window) -> Value:
    """Return `x` without what SAME passes over before the first window.

    Where steps are longer than the window by two and more, Caffe2 centres the windows, so that
    the first does not start at 0; ONNX starts there.
    """
    steps = zip(window.strides, window.kernel, strict=True)
    if window.legacy_pad != _SAME or all(stride - size < 2 for stride, size in steps):
        return x
    sizes = graph.shape(x, 2)
    kernel, strides = graph.ints(*window.kernel), graph.ints(*window.strides)
    ones = graph.ints(*[1] * len(window.kernel))
    before = graph.add("Sub", sizes, ones)
    reach = graph.add("Mul", graph.add("Div", before, strides), strides)
    needed = graph.add("Sub", graph.add("Add", reach, kernel), sizes)
    head = graph.add("Div", needed, graph.ints(2))  # towards zero, as C++ does
    start = graph.add("Max", graph.add("Neg", head), graph.ints(0))
    axes = graph.ints(*range(2, 2 + len(window.kernel)))
    return graph.add("Slice", x, start, sizes, axes)


def _padded_for_caffe(graph: Graph, x: Value, window: Window) -> Value:
    """Return `x` with the zeros that Caffe's own rule puts around it; none are left to do.

    Caffe rounds the number of windows up, and then leaves out a last one that would start in the
    padding. https://github.com/BVLC/caffe, the pooling layer.
    """
    dims = len(window.kernel)
    head = window.pads[:dims]
    window.pads = [0] * (2 * dims)
    sizes, one = graph.shape(x, 2), graph.ints(1)
    strides, heads = graph.ints(*window.strides), graph.ints(*head)
    free = graph.add("Add", sizes, graph.ints(*(2 * h - k for h, k in _pairs(head, window))))
    standard = graph.add("Div", free, strides)
    rounded = graph.add("Div", graph.add("Sub", graph.add("Add", free, strides), one), strides)
    starts = graph.add("Mul", rounded, strides)
    is_outside = graph.add("GreaterOrEqual", starts, graph.add("Add", sizes, heads))
    is_padded = graph.constant(np.array([h > 0 for h in head]))
    left_out = graph.add("Where", graph.add("And", is_outside, is_padded), one, graph.ints(0))
    more = graph.add("Sub", graph.add("Sub", rounded, left_out), standard)
    tail = graph.add("Add", heads, graph.add("Mul", more, strides))
    none = graph.ints(0, 0)
    return graph.add("Pad", x, graph.join(none, heads, none, tail))


def _pairs(head: list[int], window: Window) -> list[tuple[int, int]]:
    return list(zip(head, window.kernel, strict=True))


OPERATORS: dict[str, Callable[[Call], Converted]] = {
    **dict.fromkeys(("Conv", "Conv1D", "Conv2D", "Conv3D"), _conv),
    **dict.fromkeys(
        ("ConvTranspose", "ConvTranspose1D", "ConvTranspose2D", "ConvTranspose3D"), _conv_transpose
    ),
    **dict.fromkeys(("MaxPool", "MaxPool1D", "MaxPool2D", "MaxPool3D"), _pool("Max")),
    **dict.fromkeys(
        ("AveragePool", "AveragePool1D", "AveragePool2D", "AveragePool3D"), _pool("Average")
    ),
}
