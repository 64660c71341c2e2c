"""Images as all formats have them: windows that slide over them, resizing, pooled regions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inferd_convert import formulas
from inferd_convert.call import OperatorCall
from inferd_convert.graph import Graph, Value


@dataclass(slots=True)
class Window:
    """A window over the spatial dims; `pads` are those before each dim, then those after."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]

    @property
    def rank(self) -> int:
        """The number of dims of the tensor it slides over, including batch and channels."""
        return len(self.kernel) + 2

    @property
    def head(self) -> list[int]:
        """The pads before each dim."""
        return self.pads[: len(self.kernel)]

    def leaves_gaps(self) -> bool:
        """Return whether it steps over some places of its input."""
        return any(step > size for step, size in zip(self.strides, self.kernel, strict=True))

    def slide(self, graph: Graph, op: str, *operands: Value | None, **more: Any) -> Value:
        """Return the output of `op`, a pool or convolution; `more` are pads and the like."""
        sizes = {"kernel_shape": self.kernel, "strides": self.strides}
        return graph.add(op, *operands, rank=self.rank, **(sizes | more))

    def last_start(self, graph: Graph, sizes: Value) -> Value:
        """Return where the last window starts in the padded input if their number is rounded up.

        The padding behind is that before; `sizes` are those of the input.
        """
        steps = zip(self.head, self.kernel, self.strides, strict=True)
        # Rounded up in whole numbers, as Div cuts off: (n + d - 1) / d.
        more = graph.ints(*(2 * pad - size + step - 1 for pad, size, step in steps))
        strides = graph.ints(*self.strides)
        return (sizes + more) / strides * strides

    def convolve(
        self,
        graph: Graph,
        op: str,
        operands: tuple[Value, Value, Value | None],
        *,
        is_last: bool = False,
        **more: Any,
    ) -> Value:
        """Return the output of `op`, Conv or ConvTranspose, for x, weight and an optional bias.

        Channels come first in x, the weight and the output, unless `is_last`. `more` adds
        attributes to the window's own, or overrides them.
        """
        x, weight, bias = operands
        rank = self.rank
        if is_last:
            x, weight = channels_first(graph, x, rank), channels_first(graph, weight, rank)
        own = {"dilations": self.dilations, "pads": self.pads}
        y = self.slide(graph, op, x, weight, bias, **(own | more))
        return channels_last(graph, y, rank) if is_last else y


def mean_inside(graph: Graph, mean: Value, share: Value) -> Value:
    """Return `mean`, over windows of which only a `share` counts, over that share alone."""
    # A window that lies in padding alone has no share; it becomes 0 rather than NaN.
    return mean / graph.add("Max", share, graph.like(share, float(np.finfo(np.float32).tiny)))


def channels_first(graph: Graph, value: Value, rank: int) -> Value:
    """Return `value`, which has `rank` dims, with its last dim, the channels, moved to second."""
    return graph.transpose(value, (0, rank - 1, *range(1, rank - 1)))


def channels_last(graph: Graph, value: Value, rank: int) -> Value:
    """Return `value`, which has `rank` dims, with its second dim, the channels, moved to last."""
    return graph.transpose(value, (0, *range(2, rank), 1))


def scaled_nearest(graph: Graph, x: Value, scales: Value) -> Value:
    """Return `x` with each dim scaled: each pixel is that at its place divided by the scale."""
    return graph.add(
        "Resize",
        *(x, None, scales),
        rank=4,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def resized(
    graph: Graph, x: Value, scales: Value | None, where: str, sizes: Value | None = None
) -> Value:
    """Return images whose pixels are interpolated, at places found as `where` says for ONNX."""
    operands = x, None, scales, sizes
    return graph.add(
        "Resize", *operands, rank=4, mode="linear", coordinate_transformation_mode=where
    )


def upsampled(graph: Graph, x: Value, scale: int) -> Value:
    """Return images whose pixels are repeated `scale` times in each direction."""
    return scaled_nearest(graph, x, graph.constant(np.array([1, 1, scale, scale], np.float32)))


def pooled_regions(call: OperatorCall, sizes: Sequence[int]) -> Value:
    """Return the maxima of parts of regions, which are an image's index and four coordinates."""
    scale = call.number("spatial_scale", 1.0)
    operands = call.input(0), call.input(1)
    return call.graph.add("MaxRoiPool", *operands, rank=4, pooled_shape=sizes, spatial_scale=scale)


def aligned_regions(
    call: OperatorCall, operands: Sequence[Value], sizes: Sequence[int], ratio: int
) -> Value:
    """Return samples of parts of regions; `operands` are images, corners, and images' indices."""
    images, corners, numbers = operands
    return call.graph.add(
        "RoiAlign",
        *(formulas.with_places(call.graph, images), corners, numbers),
        rank=4,
        # "aligned" takes half a pixel off, ONNX's half_pixel; without it nothing is.
        coordinate_transformation_mode="half_pixel"
        if call.flag("aligned")
        else "output_half_pixel",
        output_height=sizes[0],
        output_width=sizes[1],
        # -1 means "as many as fit" in the frameworks, 0 in ONNX.
        sampling_ratio=max(ratio, 0),
        spatial_scale=call.number("spatial_scale", 1.0),
    )
